"""Classes are SentencePiece's pieces without its control pieces, and the end of sentence after them."""

import pickle
from pathlib import Path
from random import Random

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from priormatch.data.normalizer import Normalizer
from priormatch.data.tokenizer import MARK, Tokenizer, train_tokenizer
from priormatch.errors import UserError
from priormatch.prepare.demo_grammar import draw_sentences

MOST_SENTENCES = "priormatch.data.tokenizer.MOST_SENTENCES"
WORDS = ["monday", "tuesday", "morning", "evening", "meeting", "doctor", "at", "nine", "ten", "with"]


@pytest.fixture(scope="session")
def processor(tiny_tokenizer: Tokenizer) -> sentencepiece.SentencePieceProcessor:
    """SentencePiece's own view of the same model."""
    return sentencepiece.SentencePieceProcessor(model_proto=tiny_tokenizer.model)


def test_a_vocabulary_of_31_has_28_pieces_and_29_classes(tiny_tokenizer: Tokenizer) -> None:
    assert len(tiny_tokenizer.pieces) == 28
    assert (tiny_tokenizer.eos, tiny_tokenizer.classes) == (28, 29)
    assert not {"<unk>", "<s>", "</s>"} & set(tiny_tokenizer.pieces)


def test_the_first_spelling_is_the_best_one(
    tiny_tokenizer: Tokenizer, processor: sentencepiece.SentencePieceProcessor
) -> None:
    for word in [*WORDS, "nineteen", "withdoctor"]:
        best = processor.encode(word, out_type=str)
        assert [tiny_tokenizer.pieces[each] for each in tiny_tokenizer.encode(word)] == best
        assert list(tiny_tokenizer.spellings(word)[0]) == tiny_tokenizer.encode(word)


def test_spellings_are_at_most_ten_distinct_ways_to_write_the_word(tiny_tokenizer: Tokenizer) -> None:
    spellings = tiny_tokenizer.spellings("tenninewith")
    assert 1 < len(spellings) == len(set(spellings)) <= 10
    assert {tiny_tokenizer.decode(each) for each in spellings} == {"tenninewith"}


@given(
    words=st.lists(st.text("adeghimnorstuvwy", min_size=1, max_size=8), max_size=6), seed=st.integers(0, 99)
)
def test_text_comes_back_however_it_is_spelled(
    tiny_tokenizer: Tokenizer, words: list[str], seed: int
) -> None:
    text = " ".join(words)
    assert tiny_tokenizer.decode(tiny_tokenizer.encode(text)) == text
    assert tiny_tokenizer.decode(tiny_tokenizer.encode(text, 1.0, np.random.default_rng(seed))) == text


def test_words_are_spelled_one_by_one(tiny_tokenizer: Tokenizer) -> None:
    each = [tiny_tokenizer.encode(word) for word in ("nine", "ten", "xat")]
    assert tiny_tokenizer.encode("  nine ten\txat ") == [piece for word in each for piece in word]


def test_sampling_takes_the_asked_share_of_words(tiny_tokenizer: Tokenizer) -> None:
    best = tiny_tokenizer.encode("monday")
    share = 0.2
    assert len(best) == 1
    text, random = " ".join(["monday"] * 1000), np.random.default_rng(0)
    others = len(tiny_tokenizer.spellings("monday")) - 1
    pieces = tiny_tokenizer.encode(text, share, random)
    kept = pieces.count(best[0])
    expected = 1000 * (1 - share * others / (others + 1))
    assert others >= 1
    assert kept == pytest.approx(expected, abs=45)


def test_sampling_is_uniform_over_the_spellings(tiny_tokenizer: Tokenizer) -> None:
    spellings, random = tiny_tokenizer.spellings("tenninewith"), np.random.default_rng(0)
    drawn = [tuple(tiny_tokenizer.encode("tenninewith", 1.0, random)) for _ in range(2000)]
    counts = [drawn.count(each) for each in spellings]
    assert sum(counts) == 2000
    expected = 2000 / len(spellings)
    assert sum((count - expected) ** 2 / expected for count in counts) < 3 * len(spellings)  # chi-squared


def test_without_a_generator_nothing_is_sampled(tiny_tokenizer: Tokenizer) -> None:
    assert tiny_tokenizer.encode("monday ten", 1.0) == tiny_tokenizer.encode("monday ten")


def test_unknown_letters_are_left_out(tiny_tokenizer: Tokenizer) -> None:
    classes = tiny_tokenizer.encode("mo€nd好ay 9 ten", 1.0, np.random.default_rng(0))
    assert tiny_tokenizer.decode(classes) == "monday ten"
    assert max(classes) < tiny_tokenizer.eos
    assert tiny_tokenizer.decode(tiny_tokenizer.encode("mo€nd好ay 9 ten")) == "monday ten"


def test_an_empty_text_has_no_pieces(tiny_tokenizer: Tokenizer) -> None:
    assert tiny_tokenizer.encode("") == tiny_tokenizer.encode(" \n", 1.0, np.random.default_rng(0)) == []


def test_decoding_stops_at_the_end_of_sentence(tiny_tokenizer: Tokenizer) -> None:
    nine, ten = tiny_tokenizer.encode("nine"), tiny_tokenizer.encode("ten")
    assert tiny_tokenizer.decode([*nine, tiny_tokenizer.eos, *ten]) == "nine"
    assert tiny_tokenizer.decode([tiny_tokenizer.eos]) == tiny_tokenizer.decode([]) == ""


def test_known_words_are_not_spelled_in_letters(tiny_tokenizer: Tokenizer, tiny_sentences: list[str]) -> None:
    assert 1.0 <= tiny_tokenizer.pieces_per_word(tiny_sentences) < 2.0
    assert tiny_tokenizer.pieces_per_word(["vroum dryad"]) > 3.0
    assert tiny_tokenizer.pieces_per_word([]) == 0.0


def test_words_that_never_end_a_sentence_become_pieces() -> None:
    sentences = draw_sentences(3000, Random(0))
    assert not any(sentence.endswith(("wednesday", "mister")) for sentence in sentences)
    tokenizer = train_tokenizer(sentences, 230)
    assert {f"{MARK}wednesday", f"{MARK}mister"} <= set(tokenizer.pieces)
    assert tokenizer.pieces_per_word(sentences) < 1.1


def test_of_much_text_a_sample_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = draw_sentences(1200, Random(0))
    whole = train_tokenizer(sentences, 150)
    monkeypatch.setattr(MOST_SENTENCES, 1200)
    assert train_tokenizer(sentences, 150).model == whole.model
    monkeypatch.setattr(MOST_SENTENCES, 1000)
    found = train_tokenizer(sentences, 150)
    assert train_tokenizer(sentences, 150).model == found.model != whole.model
    assert found.pieces_per_word(sentences) < 1.1 * whole.pieces_per_word(sentences)


def test_rare_words_of_a_sample_do_not_become_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = [*draw_sentences(1000, Random(0)), *["vroum at nine"] * 50, *["dryad at nine"] * 4]
    often, rarely = f"{MARK}vroum", f"{MARK}dryad"
    assert {often, rarely} <= set(train_tokenizer(sentences, 250).pieces)
    monkeypatch.setattr(MOST_SENTENCES, len(sentences) - 1)
    pieces = train_tokenizer(sentences, 250).pieces
    assert often in pieces
    assert rarely not in pieces


def test_training_twice_gives_the_same_model(tiny_tokenizer: Tokenizer, tiny_sentences: list[str]) -> None:
    assert train_tokenizer(tiny_sentences, 31).model == tiny_tokenizer.model


def test_save_and_load(tmp_path: Path, tiny_tokenizer: Tokenizer, other_tokenizer: Tokenizer) -> None:
    tiny_tokenizer.save(tmp_path / "new")
    folder, file = Tokenizer.load(tmp_path / "new"), Tokenizer.load(tmp_path / "new" / "tokenizer.model")
    assert folder == file == tiny_tokenizer != other_tokenizer
    assert hash(folder) == hash(tiny_tokenizer)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["tokenizer.model"]


def test_it_travels_into_worker_processes(tiny_tokenizer: Tokenizer) -> None:
    copy = pickle.loads(pickle.dumps(tiny_tokenizer))
    assert copy == tiny_tokenizer
    assert copy.encode("monday with ten") == tiny_tokenizer.encode("monday with ten")


@pytest.mark.parametrize("content", [b"", b"not a model at all", "truncated"])
def test_a_damaged_file_is_named(tmp_path: Path, tiny_tokenizer: Tokenizer, content: bytes | str) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(tiny_tokenizer.model[:500] if isinstance(content, str) else content)
    with pytest.raises(UserError, match=r"tokenizer\.model is not a SentencePiece model"):
        Tokenizer.load(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no tokenizer at .*tokenizer\.model"):
        Tokenizer.load(tmp_path)
    with pytest.raises(UserError, match=r"no tokenizer at .*nowhere"):
        Tokenizer.load(tmp_path / "nowhere")


def test_too_many_pieces_for_the_text_says_how_many_there_can_be(tiny_sentences: list[str]) -> None:
    with pytest.raises(UserError, match=r"of 5000 pieces.*<= 31.*tokenizer\.pieces .* lower"):
        train_tokenizer(tiny_sentences, 5000)


def test_fewer_pieces_than_letters_says_so(tiny_sentences: list[str]) -> None:
    with pytest.raises(UserError, match=r"of 12 pieces.*12 vs 21.*tokenizer\.pieces .* higher"):
        train_tokenizer(tiny_sentences, 12)


@pytest.mark.parametrize("sentences", [[], ["", "  "]])
def test_no_text_says_so(sentences: list[str]) -> None:
    with pytest.raises(UserError, match="the text for the tokenizer is empty"):
        train_tokenizer(sentences, 31)


@pytest.mark.parametrize(
    "words", ["नमस्ते दुनिया क्षण हिन्दी ज्ञान", "می\u200cخواهم كتاب مَرْحَبًا", "น้ำ คำ ไทย", "straße l'été col·lega"]
)
def test_other_scripts_come_back_as_they_were(words: str, tmp_path: Path) -> None:
    normalizer = Normalizer("unicode")
    assert normalizer(words) == words
    trained = train_tokenizer([words] * 3 + words.split(), len(set(words)) + 3, normalizer)
    trained.save(tmp_path)
    loaded = pickle.loads(pickle.dumps(Tokenizer.load(tmp_path)))
    assert loaded.decode(loaded.encode(words)) == words
    assert loaded.normalizer == normalizer

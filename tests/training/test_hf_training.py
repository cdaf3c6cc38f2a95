"""Hugging Face recognizers in supervised training and in matching: learning, exact resume, long utterances."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from narrowing import of_type
from test_resume import ADAMW, Dying, Killed, assert_same, train
from tiny_hf import LANGUAGE

from priormatch.config import (
    AudioSettings,
    BatchSettings,
    MatchingSettings,
    PretrainedSettings,
    TrainingSettings,
    load_settings,
)
from priormatch.data.corpus import Corpus
from priormatch.decoding.beam import Hypotheses
from priormatch.errors import UserError
from priormatch.library import _digest_of, match
from priormatch.matching.lpm import BeamTargets, Proposal, Weighing
from priormatch.recognizers.decode import (
    decode,
    decode_greedily,
    decode_to_file,
    plain_search,
    validation_errors,
)
from priormatch.recognizers.hf_recognizer import HuggingFaceRecognizer
from priormatch.recognizers.load import load_recognizer
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.scoring.transcripts import read_transcripts
from priormatch.training.checkpoint import read_checkpoint
from priormatch.training.loop import Schedule
from priormatch.training.matching_step import Matching
from priormatch.training.supervised_step import Supervised

Folder = Callable[[str], Path]
TRAINING = TrainingSettings(seed=3, batch=BatchSettings(utterances=2), label_smoothing=0.0)
AUDIO = AudioSettings(workers=0)


class ByLength:
    """A prior that prefers short texts."""

    def score(self, hypotheses: Hypotheses, context: Sequence[str] | None = None) -> torch.Tensor:
        return torch.tensor([[-float(len(each)) for each in row] for row in hypotheses.texts])


@pytest.fixture
def load(hf_folder: Folder) -> Callable[..., HuggingFaceRecognizer]:
    def load(name: str, **settings: Any) -> HuggingFaceRecognizer:
        chosen = PretrainedSettings(language=LANGUAGE.get(name, ""), **settings)
        return HuggingFaceRecognizer.load(hf_folder(name), settings=chosen)

    return load


@pytest.fixture
def make(
    load: Callable[..., HuggingFaceRecognizer], tiny_corpus: Callable[..., Path]
) -> Callable[..., Matching | Supervised]:
    labeled, unlabeled = tiny_corpus(4, "labeled"), tiny_corpus(4, "unlabeled", transcribed=False)

    def make(matching: bool, name: str, **settings: Any) -> Matching | Supervised:
        online, speech = load(name, **settings), Corpus.load(labeled, AUDIO)
        if not matching:
            return Supervised(online, speech, {"dev": speech}, TRAINING, TRAINING.batch)
        proposal = Proposal(online, 1e9)
        return Matching(
            online,
            speech,
            Corpus.load(unlabeled, AUDIO),
            {"dev": speech},
            targets=BeamTargets(proposal, ByLength(), 2, Weighing()),
            proposal=proposal,
            training=TRAINING,
            matching=MatchingSettings(batch=BatchSettings(utterances=2), mixing=[1, 1], combine="sum"),
        )

    return make


@pytest.mark.parametrize("matching", [False, True], ids=["supervised", "matching"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("whisper", {"train": "lora", "lora_rank": 2}),
        ("whisper", {"train": "decoder"}),
        ("wav2vec2", {"gradient_checkpointing": True}),
        ("wav2vec2", {"train": "lora", "lora_rank": 2}),
    ],
    ids=lambda each: each if isinstance(each, str) else each.get("train", "full"),
)
def test_training_resumes_with_the_same_weights(
    make: Callable[..., Any], tmp_path: Path, matching: bool, name: str, settings: dict[str, Any]
) -> None:
    how = Schedule(4, ADAMW, 3, 2, report_every=2, checkpoint_seconds=1e9)
    train(make(matching, name, **settings), tmp_path / "straight", how)
    with pytest.raises(Killed):
        train(Dying(make(matching, name, **settings), 3), tmp_path / "killed", how)
    train(make(matching, name, **settings), tmp_path / "killed", how)
    assert_same(tmp_path / "straight", tmp_path / "killed")

    found = read_checkpoint(tmp_path / "killed")
    assert found is not None
    frozen = make(matching, name, **settings).model.frozen
    assert frozen
    assert not any(key.partition("/")[2].partition("|")[0] in frozen for key in found[0])
    assert load_recognizer(tmp_path / "killed" / "model").longest_heard > 0


@pytest.fixture
def long_and_short(tmp_path: Path) -> Corpus:
    """Two utterances of 1 s and one of 4.5 s with a pause in its middle; the tiny Whisper takes 2 s."""
    from lhotse import Recording

    from priormatch.data.manifest import utterance

    random, cuts = np.random.default_rng(0), []
    for name, parts in (("a", [1.0]), ("long", [1.9, 0, 1.9]), ("b", [1.0])):
        sound = [
            0.1 * random.standard_normal(int(each * 16_000)) if each else np.zeros(11_200) for each in parts
        ]
        soundfile.write(tmp_path / f"{name}.wav", np.concatenate(sound), 16_000)
        recording = Recording.from_file(tmp_path / f"{name}.wav", recording_id=name)
        cuts.append(utterance(name, recording, "at nine", "ann", "English"))
    return Corpus(cuts, AUDIO, "speech")


def test_long_utterances_are_left_out_of_training(
    load: Callable[..., HuggingFaceRecognizer],
    long_and_short: Corpus,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, sets = load("whisper"), {"dev": long_and_short}
    task = Supervised(model, long_and_short, sets, TRAINING, TRAINING.batch)
    assert [cut.id for cut in task.stream.reader.corpus.cuts] == ["a", "b"]
    said = capsys.readouterr().err
    assert "speech: 1 of 3 utterances are longer than 2 s" in said
    assert "audio.segment=2" in said
    alone = long_and_short.only([False, True, False])
    with pytest.raises(UserError, match="all utterances are longer than 2 s"):
        Supervised(model, alone, sets, TRAINING, TRAINING.batch)


def test_long_utterances_are_decoded_in_pieces(
    load: Callable[..., HuggingFaceRecognizer], long_and_short: Corpus
) -> None:
    model = load("whisper")
    (found,) = decode(model, long_and_short)
    greedy = {each.id: each for batch in decode_greedily(model, long_and_short) for each in batch}
    assert [each.id for each in found] == ["a", "long", "b"]
    assert {each.id: each.hypothesis for each in found} == {
        name: each.hypothesis for name, each in greedy.items()
    }
    (cut,) = [cut for cut in long_and_short.cuts if cut.id == "long"]
    segments = model.transcribe(cut.load_audio()[0]).segments
    assert len(segments) > 1
    assert found[1].hypothesis == " ".join(each.text for each in segments)
    assert found[1].pieces > max(found[0].pieces, found[2].pieces)


def test_error_rates_ignore_case_and_punctuation(
    load: Callable[..., HuggingFaceRecognizer],
    tiny_corpus: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    model, corpus = load("whisper"), Corpus.load(tiny_corpus(["at nine"]), AUDIO)
    monkeypatch.setattr(type(model.tokenizer), "decode", lambda self, classes: "At nine.")
    assert validation_errors(model, {"dev": corpus})["dev"] == {"wer": 0.0, "cer": 0.0}
    for words, written in ((True, "at nine"), (False, "At nine.")):
        out = tmp_path / f"{words}.jsonl"
        decode_to_file(model, corpus, out, "key", plain_search(2), words=words)
        (found,) = read_transcripts(out)
        assert {found.hypothesis, *(text for text, _ in found.nbest)} == {written}


def test_our_own_prior_reads_words_without_case_and_punctuation(
    load: Callable[..., HuggingFaceRecognizer], tiny_prior: ConvPrior
) -> None:
    tokenizer = load("whisper").tokenizer
    given = Hypotheses.of_texts([["At nine.", "at nine", "at ten"]], tokenizer)
    written, plain, other = tiny_prior.score(given)[0]
    assert written == plain == tiny_prior.score_texts(["at nine"])[0]
    assert other != plain


def test_match_from_python(
    load: Callable[..., HuggingFaceRecognizer],
    hf_folder: Folder,
    tiny_corpus: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """With adapters: the base weights count when an interrupted call is resumed, and the result has them merged."""
    settings = load_settings(
        None,
        [
            "pretrained.train=lora",
            "pretrained.language=en",
            "audio.workers=0",
            "matching.updates=2",
            "matching.refresh_every=2",
            "matching.batch.utterances=2",
            "matching.beam_size=2",
            "matching.length_filter=[]",
            "matching.max_proposal_cer=1e9",
        ],
    )
    speech = tiny_corpus(4)
    given = (ByLength(), speech, speech, {"dev": speech}, tmp_path / "out")
    matched = of_type(HuggingFaceRecognizer, match(hf_folder("whisper"), *given, settings=settings))
    assert not any("lora" in name for name, _ in matched.named_parameters())
    assert (tmp_path / "out" / "model" / "generation_config.json").is_file()
    other = load("whisper", train="lora")
    with torch.no_grad():
        next(other.network.parameters()).add_(1.0)  # frozen
    assert _digest_of(other) != _digest_of(load("whisper", train="lora"))
    with pytest.raises(UserError, match="load_recognizer"):
        SpeechRecognizer.load(tmp_path / "out" / "model")


def test_every_utterance_costs_the_window_of_whisper(
    load: Callable[..., HuggingFaceRecognizer], tiny_corpus: Callable[..., Path]
) -> None:
    corpus, size = Corpus.load(tiny_corpus(4), AUDIO), BatchSettings(seconds=4.1)
    assert corpus.durations.sum() < 8
    for name, most in (("whisper", 2), ("wav2vec2", 4)):
        task = Supervised(load(name), corpus, {"dev": corpus}, TRAINING, size)
        counts = {len(batch) for _ in range(4) for batch in task.stream.take()}
        assert max(counts) == most

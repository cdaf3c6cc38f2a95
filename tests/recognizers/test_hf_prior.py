import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_models import byte_tokenizer, saved, tiny_gpt2, tiny_llama

from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.beam import Hypotheses
from priormatch.errors import UserError
from priormatch.recognizers.hf_prior import HuggingFacePrior, write
from priormatch.recognizers.protocols import Prior

TEXTS = ["one two three", "one two four", "one", "", "monday tuesday one two", "one two three"]


@pytest.fixture(scope="module", params=[tiny_gpt2, tiny_llama])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2, whose end also begins a text, and a Llama."""
    make: Callable[[Path], Path] = request.param
    return make(tmp_path_factory.mktemp("lm"))


@pytest.fixture(scope="module")
def prior(folder: Path) -> HuggingFacePrior:
    return HuggingFacePrior.load(folder)


def alone(prior: HuggingFacePrior, text: str, context: str = "") -> float:
    """log p of a text by a call of the network of its own, from the tokenizer's output."""
    tokenizer, network = prior.reads, prior.network
    before = [prior.begin, *tokenizer(context, add_special_tokens=False).input_ids]
    joined = f"{context} {text}".strip()
    tokens = [prior.begin, *tokenizer(joined, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
    labels = torch.tensor([tokens])
    labels[:, : len(before)] = -100
    with torch.no_grad():
        loss = network(input_ids=torch.tensor([tokens]), labels=labels).loss
    return float(-loss * (len(tokens) - len(before)))


def test_a_score_is_the_loss_of_transformers(prior: HuggingFacePrior) -> None:
    found = prior.score_texts(TEXTS)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, torch.tensor([alone(prior, each) for each in TEXTS]))


def test_context_comes_first_and_is_not_scored(prior: HuggingFacePrior) -> None:
    contexts = ["six seven", "six seven", "Anything at all.", "one", "", "one two"]
    found = prior.score_texts(TEXTS, contexts)
    wanted = [alone(prior, text, context) for text, context in zip(TEXTS, contexts, strict=True)]
    torch.testing.assert_close(found, torch.tensor(wanted))


def test_shared_beginnings_padding_and_company_change_nothing(prior: HuggingFacePrior) -> None:
    plain = HuggingFacePrior(prior.network, prior.reads, "plain")
    plain.shares = False
    assert prior.shares
    texts = [*TEXTS, " ".join(["one two three four"] * 5)]
    together = prior.log_p([("six", text) for text in texts])
    torch.testing.assert_close(plain.log_p([("six", text) for text in texts]), together, atol=1e-3, rtol=0)
    each = torch.cat([prior.log_p([("six", text)]) for text in texts])
    torch.testing.assert_close(each, together, atol=1e-3, rtol=0)


def test_a_beam_is_read_as_text(prior: HuggingFacePrior, tiny_tokenizer: Tokenizer) -> None:
    judge: Prior = prior
    beam = Hypotheses.of_texts([["one two", "one"], ["six", ""]], tiny_tokenizer)
    scores = judge.score(beam, ["monday", ""])
    wanted = [
        [alone(prior, text, context) for text in texts]
        for texts, context in zip(beam.texts, ["monday", ""], strict=True)
    ]
    torch.testing.assert_close(scores, torch.tensor(wanted))


def test_texts_are_computed_once_but_in_training_every_time(folder: Path) -> None:
    prior, widths = HuggingFacePrior.load(folder), []
    prior.network.register_forward_hook(lambda *args: widths.append(1))
    first = prior.score_texts(TEXTS)
    calls = len(widths)
    assert torch.equal(prior.score_texts(TEXTS), first)
    assert len(widths) == calls
    training = prior.recorded()
    assert torch.equal(training.score_texts(TEXTS), training.score_texts(TEXTS))
    assert len(widths) == 3 * calls
    prior.form = training.form = "lower"
    assert prior.recorded().form == "lower"


def test_half_precision_must_not_change_scores(tmp_path: Path) -> None:
    prior = HuggingFacePrior.load(tiny_llama(tmp_path / "lm"))
    sequences = [each for parts in prior.encode([("", text) for text in TEXTS]) for each in parts]
    plain = prior.log_p_of(sequences)
    prior.halve(sequences, plain + 1)
    assert prior.network.dtype == torch.float32
    prior.halve(sequences, plain)
    assert prior.network.dtype == torch.float16
    torch.testing.assert_close(prior.log_p_of(sequences), plain, atol=0.1, rtol=0)
    assert prior.log_p_of(sequences).dtype == torch.float32


def test_special_tokens_in_a_text_are_letters(prior: HuggingFacePrior) -> None:
    end = prior.reads.eos_token
    ((sequence,),) = prior.encode([("", f"one {end} two")])
    assert prior.end not in sequence.tokens[1:-1]
    assert prior.reads.decode(sequence.tokens[1:-1]) == f"one {end} two"


@pytest.mark.parametrize(
    ("form", "text", "written"),
    [
        ("as_written", "ONE two", "ONE two"),
        ("lower", "ONE Two.", "one two."),
        ("sentence", "one two", "One two."),
        ("sentence", "ONE TWO", "One two."),
        ("sentence", "one Two?", "One Two?"),
        ("sentence", "éa", "Éa."),
        ("sentence", "", ""),
    ],
)
def test_forms_of_text(form: Any, text: str, written: str) -> None:
    assert write(text, form) == written


def test_a_form_changes_what_is_scored(folder: Path, prior: HuggingFacePrior) -> None:
    sentence = HuggingFacePrior.load(folder, form="sentence")
    found = sentence.score_texts(["one two", "ONE TWO", "One two."], ["six", "SIX", "Six."])
    torch.testing.assert_close(found, torch.tensor([alone(prior, "One two.", "Six.")] * 3))


def test_a_context_that_is_too_long_loses_its_beginning(prior: HuggingFacePrior) -> None:
    text, context = "one two", " ".join(["six seven monday"] * 60)
    ((sequence,),) = prior.encode([(context, text)])
    assert len(sequence.tokens) == prior.longest + 1
    ((shorter,),) = prior.encode([("monday", text)])
    assert sequence.tokens[sequence.start :] == shorter.tokens[shorter.start :]
    assert prior.score_texts([text], [context]).isfinite()


def test_a_long_text_is_scored_in_parts(prior: HuggingFacePrior) -> None:
    text = " ".join(["six seven monday"] * 30)
    tokens = [prior.begin, *prior.reads(text, add_special_tokens=False).input_ids, prior.end]
    half, wanted = prior.longest // 2, 0.0
    assert len(tokens) > prior.longest + half
    for first in range(1, len(tokens), half):
        last = min(first + half, len(tokens))
        window = [prior.begin, *tokens[max(last - prior.longest, 1) : last]]
        with torch.no_grad():
            log_p = prior.network(torch.tensor([window[:-1]])).logits[0].log_softmax(dim=-1)
        places = range(len(window) - (last - first), len(window))
        wanted += sum(float(log_p[place - 1, window[place]]) for place in places)
    assert float(prior.score_texts([text])) == pytest.approx(wanted, rel=1e-5)
    assert float(prior.score_texts([""], [text])) == pytest.approx(
        float(prior.score_texts([""], [text[1:]])), rel=1e-5
    )


def test_windows_limit_the_trees(tmp_path: Path) -> None:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        hidden_size=16,
        intermediate_size=16,
        vocab_size=300,
        sliding_window=30,
        initializer_range=0.5,
    )
    made = saved(MistralForCausalLM(config), byte_tokenizer(eos_token="</s>"), tmp_path / "mistral")
    prior = HuggingFacePrior.load(made)
    assert prior.window == 30
    texts = [" ".join(["one two three six"] * count) for count in (2, 3, 9)]
    torch.testing.assert_close(
        prior.score_texts(texts), torch.tensor([alone(prior, text) for text in texts]), atol=1e-3, rtol=1e-5
    )


@pytest.mark.parametrize("kind", ["Bloom", "Mamba"])
def test_models_without_positions_or_attention_read_plain_rows(kind: str, tmp_path: Path) -> None:
    import transformers

    torch.manual_seed(0)
    sizes = {
        "Bloom": {"n_layer": 1, "n_head": 2},
        "Mamba": {"num_hidden_layers": 1, "state_size": 4, "intermediate_size": 32},
    }
    config = getattr(transformers, f"{kind}Config")(
        hidden_size=16, vocab_size=300, initializer_range=0.5, **sizes[kind]
    )
    network = getattr(transformers, f"{kind}ForCausalLM")(config)
    prior = HuggingFacePrior.load(saved(network, byte_tokenizer(eos_token="</s>"), tmp_path / kind))
    assert not prior.shares
    found = prior.score_texts(TEXTS)
    torch.testing.assert_close(
        found, torch.tensor([alone(prior, each) for each in TEXTS]), atol=1e-3, rtol=1e-5
    )


def test_a_model_that_sees_later_words_is_refused(tmp_path: Path) -> None:
    from transformers import BertConfig, BertLMHeadModel

    config = BertConfig(
        num_hidden_layers=1,
        num_attention_heads=2,
        hidden_size=16,
        intermediate_size=16,
        vocab_size=300,
        initializer_range=0.5,
    )
    made = saved(BertLMHeadModel(config), byte_tokenizer(eos_token="</s>"), tmp_path / "bert")
    with pytest.raises(UserError, match="scores depend on later words"):
        HuggingFacePrior.load(made)


def test_models_of_another_kind_are_refused(tmp_path: Path) -> None:
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    sizes: dict[str, Any] = {
        "conv_dim": [8],
        "conv_kernel": [4],
        "conv_stride": [4],
        "num_conv_pos_embeddings": 4,
    }
    config = Wav2Vec2Config(
        **sizes,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        num_conv_pos_embedding_groups=2,
        vocab_size=300,
    )
    made = saved(Wav2Vec2ForCTC(config), byte_tokenizer(eos_token="</s>"), tmp_path / "ctc")
    with pytest.raises(UserError, match=r"is not a causal language model \(Wav2Vec2ForCTC, wav2vec2\)"):
        HuggingFacePrior.load(made)


def test_tokenizers_that_do_not_fit(tmp_path: Path) -> None:
    made = tiny_gpt2(tmp_path / "lm")
    tokenizer = byte_tokenizer(eos_token="</s>")
    tokenizer.add_tokens([f"word{number}" for number in range(40)])
    tokenizer.save_pretrained(made)
    with pytest.raises(UserError, match="do not belong together"):
        HuggingFacePrior.load(made)
    without = byte_tokenizer()
    without.save_pretrained(made)
    with pytest.raises(UserError, match="neither a begin nor an end token"):
        HuggingFacePrior.load(made)
    for file in made.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(UserError, match="has no tokenizer"):
        HuggingFacePrior.load(made)
    (made / "tokenizer.json").write_text("[")
    with pytest.raises(UserError, match=r"the tokenizer in .* cannot be read"):
        HuggingFacePrior.load(made)


def test_an_alphabet_that_cannot_write_the_output_is_known(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Pieces
    from tokenizers import models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = tiny_gpt2(tmp_path / "lm")
    assert HuggingFacePrior.load(made).cannot_write("abcé'д") == []
    letters = Pieces(models.WordLevel({"</s>": 0, "<unk>": 1, "a": 2, "b": 3}, unk_token="<unk>"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=letters, eos_token="</s>", unk_token="<unk>").save_pretrained(
        made
    )
    prior = HuggingFacePrior.load(made)
    assert prior.cannot_write("abcA") == ["c", "A"]
    prior.form = "lower"
    assert prior.cannot_write("abcA") == ["c"]


def test_too_little_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("priormatch.device.memory_of", lambda device: 1000)
    with pytest.raises(UserError, match=r"needs 0\.0 GB of memory, but cpu has 0\.0 GB"):
        HuggingFacePrior.load(folder)


def test_weights_that_compute_nothing_finite(tmp_path: Path) -> None:
    made = tiny_gpt2(tmp_path / "lm")
    config = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps(config | {"layer_norm_epsilon": -1e9}))
    with pytest.raises(UserError, match="computes NaN or infinity"):
        HuggingFacePrior.load(made)

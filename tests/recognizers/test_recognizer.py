"""The whole recognizer: padding leaves no trace, and its folder gives it back."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from narrowing import of_type, present

from priormatch.config import AudioSettings, AugmentSettings, FusionSettings
from priormatch.data.augment import numbers_of
from priormatch.data.batches import Batch, UtteranceReader, once
from priormatch.data.corpus import Corpus
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.beam import Beam
from priormatch.errors import UserError
from priormatch.models.tds import TDSEncoder
from priormatch.recognizers import heads
from priormatch.recognizers.heads import MOST_HYPOTHESES, Frames
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import FusedProposals, SpeechRecognizer


def log_probabilities(
    model: SpeechRecognizer, waveforms: torch.Tensor, samples: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    decoder = present(model.decoder)
    memory = decoder.memory(*model.encode(waveforms, samples))
    return decoder(memory, labels).log_softmax(dim=-1)


@torch.no_grad()
def test_log_probabilities_and_hypotheses_do_not_depend_on_padding(tiny_recognizer: SpeechRecognizer) -> None:
    lengths = [16_000, 5_000, 1_600, 9_999]
    waves = [0.1 * torch.randn(1, length) for length in lengths]
    padded = torch.zeros(4, 20_000)
    for row, wave in zip(padded, waves, strict=True):
        row[: wave.shape[1]] = wave[0]
    samples, labels = torch.tensor(lengths), torch.randint(tiny_recognizer.tokenizer.classes, (4, 2, 6))
    together = log_probabilities(tiny_recognizer, padded, samples, labels)
    beam = tiny_recognizer.propose(Batch.of_audio(padded, samples), 3)
    for row, wave in enumerate(waves):
        own = slice(row, row + 1)
        alone = log_probabilities(tiny_recognizer, wave, samples[own], labels[own])
        torch.testing.assert_close(together[own], alone, atol=2e-5, rtol=0)
        single = tiny_recognizer.propose(Batch.of_audio(wave, samples[own]), 3)
        torch.testing.assert_close(beam.scores[own], single.scores, atol=1e-4, rtol=0)
        assert beam.lengths[own].tolist() == single.lengths.tolist()
        width = single.classes.shape[2]
        assert torch.equal(beam.classes[own, :, :width], single.classes)


def test_an_encoder_derived_from_ours_is_called_on_a_gpu_too(
    tiny_recognizer: SpeechRecognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Doubled(TDSEncoder):
        def forward(self, features: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            frames, lengths = super().forward(features, lengths)
            return 2 * frames, lengths

    tiny_recognizer.eval()
    heard = 0.1 * torch.randn(1, 8_000), torch.tensor([8_000])
    frames, _ = tiny_recognizer.encode(*heard)
    tiny_recognizer.encoder.__class__ = Doubled
    monkeypatch.setattr("priormatch.recognizers.recognizer.has_kernels", lambda device: True)
    torch.set_autocast_enabled("cuda", True)
    try:
        doubled, _ = tiny_recognizer.encode(*heard)
    finally:
        torch.set_autocast_enabled("cuda", False)
    torch.testing.assert_close(doubled, 2 * frames)


@torch.no_grad()
def test_proposals_score_what_the_decoder_says_of_them(tiny_recognizer: SpeechRecognizer) -> None:
    present(tiny_recognizer.decoder).output.bias[tiny_recognizer.tokenizer.eos] += 2  # so that hypotheses end
    waveforms, samples = 0.1 * torch.randn(2, 8_000), torch.tensor([8_000, 6_000])
    beam = tiny_recognizer.propose(Batch.of_audio(waveforms, samples), 4)
    assert beam.ended.all()
    log_q = log_probabilities(tiny_recognizer, waveforms, samples, beam.classes)
    chosen = log_q.gather(-1, beam.classes[..., None])[..., 0]
    exists = torch.arange(beam.classes.shape[2]) < beam.lengths[:, :, None]
    torch.testing.assert_close((chosen * exists).sum(dim=-1), beam.scores, atol=1e-4, rtol=0)


@torch.no_grad()
def test_too_little_audio_for_a_frame_is_heard_as_nothing(tiny_recognizer: SpeechRecognizer) -> None:
    beam = tiny_recognizer.propose(Batch.of_audio(torch.zeros(2, 300), torch.tensor([300, 10])), 2)
    assert torch.isfinite(beam.scores).all()


@torch.no_grad()
def test_augmentation_happens_where_it_is_asked_for(tiny_recognizer: SpeechRecognizer) -> None:
    waveforms, samples = 0.1 * torch.randn(1, 8_000), torch.tensor([8_000])
    clean, _ = tiny_recognizer.encode(waveforms, samples)
    masks = AugmentSettings(frequency_masks=4, frequency_width=10)
    masked, _ = tiny_recognizer.encode(waveforms, samples, torch.rand(1, numbers_of(masks)), masks)
    assert torch.equal(clean, tiny_recognizer.encode(waveforms, samples)[0])
    assert not torch.allclose(clean, masked)


def test_real_audio_goes_through(tiny_recognizer: SpeechRecognizer, tiny_corpus: Callable[..., Path]) -> None:
    corpus = Corpus.load(tiny_corpus(4), AudioSettings())
    batch: Batch = next(once(UtteranceReader(corpus, tiny_recognizer.tokenizer), 60.0))
    beam = tiny_recognizer.propose(batch, 2)
    assert beam.classes.shape[:2] == (4, 2)
    assert beam.classes.shape[2] <= tiny_recognizer.settings.longest_output + 1


def test_save_and_load(tmp_path: Path, tiny_recognizer: SpeechRecognizer) -> None:
    tiny_recognizer.save(tmp_path / "a" / "model")
    assert sorted(path.name for path in (tmp_path / "a" / "model").iterdir()) == [
        "model.safetensors",
        "model.yaml",
        "tokenizer.model",
    ]
    loaded = SpeechRecognizer.load(tmp_path / "a" / "model")
    assert loaded.settings == tiny_recognizer.settings
    assert loaded.tokenizer == tiny_recognizer.tokenizer
    assert not loaded.training
    waveforms, samples = 0.1 * torch.randn(1, 8_000), torch.tensor([8_000])
    assert torch.equal(loaded.encode(waveforms, samples)[0], tiny_recognizer.encode(waveforms, samples)[0])
    assert all(
        torch.equal(a, b) for a, b in zip(loaded.parameters(), tiny_recognizer.parameters(), strict=True)
    )


def test_whoever_may_read_one_file_of_a_model_may_read_all(
    tmp_path: Path, tiny_recognizer: SpeechRecognizer
) -> None:
    tiny_recognizer.save(tmp_path / "model")
    assert len({file.stat().st_mode for file in (tmp_path / "model").iterdir()}) == 1


def test_saving_again_replaces(tmp_path: Path, tiny_recognizer: SpeechRecognizer) -> None:
    tiny_recognizer.save(tmp_path)
    with torch.no_grad():
        present(tiny_recognizer.decoder).start.fill_(7.0)
    tiny_recognizer.save(tmp_path)
    assert torch.all(present(SpeechRecognizer.load(tmp_path).decoder).start == 7.0)
    assert len(list(tmp_path.iterdir())) == 3


def test_the_longest_utterance_is_remembered(tmp_path: Path, tiny_recognizer: SpeechRecognizer) -> None:
    tiny_recognizer.save(tmp_path)
    assert SpeechRecognizer.load(tmp_path).longest_heard == 0.0, "as in folders that know nothing of it"
    tiny_recognizer.longest_heard = 5.678
    tiny_recognizer.save(tmp_path)
    assert SpeechRecognizer.load(tmp_path).longest_heard == 5.68


@pytest.mark.parametrize("value", ["long", "-1", ".nan", "[1]"])
def test_a_longest_utterance_that_is_none_is_refused(
    tmp_path: Path, tiny_recognizer: SpeechRecognizer, value: str
) -> None:
    tiny_recognizer.save(tmp_path)
    with (tmp_path / "model.yaml").open("a") as file:
        file.write(f"longest_heard: {value}\n")
    with pytest.raises(UserError, match=r"longest_heard is .* must be a number"):
        SpeechRecognizer.load(tmp_path)


def test_a_prior_comes_back_too(tmp_path: Path, tiny_prior: ConvPrior) -> None:
    tiny_prior.save(tmp_path / "one")
    loaded = ConvPrior.load(tmp_path / "one")
    texts = ["monday at nine", "ten"]
    torch.testing.assert_close(loaded.score_texts(texts), tiny_prior.score_texts(texts))
    loaded.save(tmp_path / "two")
    torch.testing.assert_close(
        ConvPrior.load(tmp_path / "two").score_texts(texts), tiny_prior.score_texts(texts)
    )


@pytest.fixture
def folder(tmp_path: Path, tiny_recognizer: SpeechRecognizer) -> Path:
    tiny_recognizer.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["model.safetensors", "model.yaml", "tokenizer.model"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(UserError, match=name):
        SpeechRecognizer.load(folder)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere does not exist"):
        SpeechRecognizer.load(tmp_path / "nowhere")


def test_the_wrong_kind_is_named(folder: Path, tmp_path: Path, tiny_prior: ConvPrior) -> None:
    with pytest.raises(UserError, match="holds a recognizer, not a prior"):
        ConvPrior.load(folder)
    tiny_prior.save(tmp_path / "prior")
    with pytest.raises(UserError, match="holds a prior, not a recognizer"):
        SpeechRecognizer.load(tmp_path / "prior")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b""),
        ("model.safetensors", b"nonsense" * 50),
        ("model.yaml", b""),
        ("model.yaml", b"- a\n- list\n"),
        ("model.yaml", b"just words"),
        ("model.yaml", b"kind: recognizer\n"),
        ("model.yaml", b"kind: recognizer\nsettings: 3\n"),
        ("model.yaml", b"kind: recognizer\nsettings: {sise: 16}\n"),
        ("model.yaml", b"kind: recognizer\nsettings: {size: big}\n"),
        ("model.yaml", b"kind: [recognizer\n"),
        ("model.yaml", b"\xff\xfe\xff"),
        ("tokenizer.model", b"nonsense"),
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=str(folder)) as caught:
        SpeechRecognizer.load(folder)
    assert "\n" not in str(caught.value)


def test_truncated_weights_are_refused(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UserError, match="cannot be read"):
        SpeechRecognizer.load(folder)


def test_weights_that_do_not_fit_are_refused(
    folder: Path, tmp_path: Path, other_tokenizer: Tokenizer, tiny_prior: ConvPrior
) -> None:
    other_tokenizer.save(folder)
    with pytest.raises(UserError, match=f"{folder}.*do not fit") as caught:
        SpeechRecognizer.load(folder)
    assert "\n" not in str(caught.value)
    tiny_prior.save(tmp_path / "prior")
    other_tokenizer.save(tmp_path / "prior")
    with pytest.raises(UserError, match="do not fit"):
        ConvPrior.load(tmp_path / "prior")


@torch.no_grad()
def test_a_beam_too_wide_for_the_kernels_is_searched_plainly(
    tiny_recognizer: SpeechRecognizer, tiny_prior: ConvPrior, monkeypatch: pytest.MonkeyPatch
) -> None:
    def searches() -> list[Beam]:
        fusion = FusionSettings(beam_size=MOST_HYPOTHESES + 1)
        fused = of_type(FusedProposals, tiny_recognizer.fused(tiny_prior, fusion)).recorded()
        frames = Frames(*tiny_recognizer.encode(waves, samples))
        return [
            tiny_recognizer.search(frames, MOST_HYPOTHESES + 1),
            tiny_recognizer.search_with(tiny_prior.lm, frames, fusion),
            fused.propose(Batch.of_audio(waves, samples), 2),
        ]

    waves, samples = 0.1 * torch.randn(2, 8_000), torch.tensor([8_000, 5_000])
    expected = searches()
    monkeypatch.setattr(heads, "has_kernels", lambda device: True)
    assert tiny_recognizer.attention_head.searches_on_gpu(MOST_HYPOTHESES)
    for found, wanted in zip(searches(), expected, strict=True):
        assert torch.equal(found.classes, wanted.classes)

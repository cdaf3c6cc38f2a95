"""Tiny things that many tests want: a tokenizer, a corpus of tones, a recognizer and a prior."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
import soundfile
import torch
from hub_stub import TOKEN, Hub, running_hub
from hypothesis import settings
from tiny_language import sentences, speak

from priormatch.config import ConvLMSettings, ModelSettings
from priormatch.data.tokenizer import Tokenizer, train_tokenizer
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer

TinyCorpus = Callable[..., Path]

settings.register_profile(
    "priormatch", deadline=None, derandomize=True
)  # a busy machine must not fail a test
settings.load_profile("priormatch")

torch.set_num_threads(1)  # tiny products gain nothing by more, and wait for each other on a busy machine
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that tests start


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def tiny_sentences() -> list[str]:
    """200 sentences of the tiny language."""
    return sentences(200)


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_sentences: list[str]) -> Tokenizer:
    """28 pieces and EOS, for the tiny language."""
    return train_tokenizer(tiny_sentences, 31)


@pytest.fixture(scope="session")
def other_tokenizer(tiny_sentences: list[str]) -> Tokenizer:
    """A tokenizer whose pieces are not those of `tiny_tokenizer`."""
    return train_tokenizer(tiny_sentences, 28)


@pytest.fixture
def tiny_corpus(tmp_path: Path) -> TinyCorpus:
    """Factory: `tiny_corpus(texts, name=..., transcribed=..., rate=..., suffix=...)` writes the audio of the
    texts and a manifest, and gives the manifest's path; utterances are called NAME-0, NAME-1 and so on, and
    alternate between the speakers `ann` and `bob`.
    """
    from lhotse import CutSet, Recording

    from priormatch.data.manifest import utterance

    def make(
        texts: Sequence[str] | int = 6,
        name: str = "tiny",
        transcribed: bool = True,
        rate: int = 16_000,
        suffix: str = "wav",
    ) -> Path:
        if isinstance(texts, int):
            texts = sentences(texts, seed=sum(name.encode()))
        folder = tmp_path / name
        folder.mkdir(parents=True)
        cuts = []
        for number, text in enumerate(texts):
            path = folder / f"{name}-{number}.{suffix}"
            soundfile.write(path, speak(text, rate), rate)
            recording = Recording.from_file(path, recording_id=path.stem)
            speaker = ("ann", "bob")[number % 2]
            cuts.append(utterance(path.stem, recording, text if transcribed else None, speaker, "English"))
        manifest = tmp_path / f"{name}.jsonl.gz"
        CutSet.from_cuts(cuts).to_file(manifest)
        return manifest

    return make


@pytest.fixture
def tiny_model_settings() -> ModelSettings:
    """A recognizer of a few thousand parameters at a quarter of the frame rate."""
    return ModelSettings(
        n_mels=20,
        channels=[2, 3],
        blocks=[1, 1],
        kernel=5,
        size=16,
        dropout=0.1,
        kind="hybrid",
        longest_output=12,
    )


@pytest.fixture
def tiny_recognizer(tiny_model_settings: ModelSettings, tiny_tokenizer: Tokenizer) -> SpeechRecognizer:
    """An untrained recognizer for the tiny language, in evaluation mode."""
    from priormatch.recognizers.recognizer import SpeechRecognizer

    return SpeechRecognizer(tiny_model_settings, tiny_tokenizer).eval()


@pytest.fixture
def tiny_prior_settings() -> ConvLMSettings:
    """A prior of a few thousand parameters."""
    return ConvLMSettings(
        embedding=12, width=8, bottlenecks=[[4, 8, 1], [6, 12, 2]], head=10, kernel=3, dropout=0.1
    )


@pytest.fixture
def tiny_prior(tiny_prior_settings: ConvLMSettings, tiny_tokenizer: Tokenizer) -> ConvPrior:
    """An untrained prior for the tiny language, in evaluation mode."""
    from priormatch.recognizers.prior import ConvPrior

    return ConvPrior(tiny_prior_settings, tiny_tokenizer).eval()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub to which this process is logged in, with a cache of its own."""
    from huggingface_hub import constants

    with running_hub() as hub:
        address = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address)
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        yield hub


@pytest.fixture(scope="session")
def hf_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Factory: `hf_folder(name)` is the folder of a tiny model of transformers; tests must not change it."""
    from tiny_hf import MAKERS

    made = cache(lambda name: MAKERS[name](tmp_path_factory.mktemp("hf") / name))
    return lambda name: made(name)

"""Matching as one call from Python, and what the package offers by name."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict

import pytest
import torch
from lhotse import CutSet
from tiny_run import command, files
from torch import nn

import priormatch
from priormatch import Settings, SpeechRecognizer, UserError, library, load_settings, match
from priormatch.config import recipe_path
from priormatch.data.corpus import Corpus, durations_of, ids_of, read_cuts
from priormatch.data.recordings import PART_OF
from priormatch.data.tokenizer import Tokenizer
from priormatch.matching.reference_lengths import lengths_by_rate, pieces_a_second
from priormatch.progress import Meter
from priormatch.recognizers.decode import greedy_transcripts
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.protocols import Recognizer

TINY = (
    "device=cpu",
    "threads=1",
    "audio.workers=0",
    "training.report_every=2",
    "matching.updates=4",
    "matching.refresh_every=2",
    "matching.batch.utterances=6",
    "matching.combine=sum",
    "matching.mixing=[1,1]",
    "matching.optimizer.kind=adamw",
    "matching.optimizer.learning_rate=0.02",
    "matching.max_proposal_cer=1000",
    "matching.start_counts=false",
)


def tiny(*overrides: str) -> Settings:
    return load_settings(None, [*TINY, *overrides])


class Models(TypedDict):
    """A recognizer and a prior, as `match` takes them."""

    model: SpeechRecognizer
    prior: ConvPrior


class Speech(TypedDict):
    """Manifests of labeled, unlabeled and validation speech, as `match` takes them."""

    labeled: Path
    unlabeled: Path
    validation: dict[str, Path]


def save(models: Models, folder: Path) -> None:
    """Save both models under their names."""
    models["model"].save(folder / "model")
    models["prior"].save(folder / "prior")


def weights(model: nn.Module | Recognizer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture
def speech(tiny_corpus: Callable[..., Path]) -> Speech:
    """Manifests of labeled, unlabeled and validation speech, as `match` takes them."""
    return {
        "labeled": tiny_corpus(8, "labeled"),
        "unlabeled": tiny_corpus(8, "unlabeled", transcribed=False),
        "validation": {"dev": tiny_corpus(4, "dev")},
    }


@pytest.fixture
def models(tiny_recognizer: SpeechRecognizer, tiny_prior: ConvPrior) -> Models:
    return {"model": tiny_recognizer, "prior": tiny_prior}


@pytest.fixture
def finished(models: Models, speech: Speech, tmp_path: Path) -> tuple[Path, Recognizer]:
    """The folder of a call that has ended, and the model it gave."""
    out = tmp_path / "lpm"
    return out, match(**models, **speech, out=out, settings=tiny())


@pytest.mark.parametrize("training", [True, False])
def test_the_models_given_stay_as_they_are_and_another_is_returned(
    models: Models,
    speech: Speech,
    tmp_path: Path,
    training: bool,
) -> None:
    given = {"model": models["model"], "prior": models["prior"]}
    before = {name: weights(model) for name, model in given.items()}
    for model in given.values():
        model.train(training)
    better = match(**models, **speech, out=tmp_path / "lpm", settings=tiny())
    for name, model in given.items():
        assert same(weights(model), before[name])
        assert model.training is training
        assert all(each.requires_grad for each in model.parameters())
    assert isinstance(better, SpeechRecognizer)
    assert not same(weights(better), before["model"])
    assert same(weights(better), weights(SpeechRecognizer.load(tmp_path / "lpm" / "model")))


def test_a_second_call_reuses_the_work(
    finished: tuple[Path, Recognizer],
    models: Models,
    speech: Speech,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, better = finished
    before = files(out)
    again = match(**models, **speech, out=str(out), settings=tiny("training.report_every=1"))
    assert "finished before, reused" in capsys.readouterr().err
    assert same(weights(again), weights(better))
    assert files(out) == before


@contextmanager
def stopped_at_the_third_update(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Press Ctrl-C in a training called `stopped`."""
    advance = Meter.advance

    def stop(self: Meter, amount: int = 1, note: str | None = None) -> None:
        advance(self, amount, note)
        if (self.description, self.done) == ("stopped", 3):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Meter, "advance", stop)
        yield


def test_a_call_that_was_stopped_goes_on(
    finished: tuple[Path, Recognizer],
    models: Models,
    speech: Speech,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "stopped"
    with stopped_at_the_third_update(monkeypatch):
        match(**models, **speech, out=out, settings=tiny())
    better = match(**models, **speech, out=out, settings=tiny())
    assert "resuming from update 2" in capsys.readouterr().err
    assert same(weights(better), weights(finished[1]))


def test_other_lengths_settings_models_or_speech_are_refused(
    finished: tuple[Path, Recognizer],
    models: Models,
    speech: Speech,
    tiny_corpus: Callable[..., Path],
    tiny_tokenizer: Tokenizer,
) -> None:
    out, _ = finished
    before = files(out)
    torch.manual_seed(5)
    other_model = SpeechRecognizer(models["model"].settings, tiny_tokenizer)
    other_prior = ConvPrior(models["prior"].settings, tiny_tokenizer)
    given: dict[str, Any] = {**models, **speech, "out": out, "settings": tiny()}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"lengths": {f"unlabeled-{number}": 3 for number in range(8)}}, "lengths"),
        ({"settings": tiny("matching.beam_size=2")}, r"matching\.beam_size"),
        ({"settings": tiny("training.seed=7")}, r"training\.seed"),
        ({"model": other_model}, "models"),
        ({"prior": other_prior}, "models"),
        ({"unlabeled": tiny_corpus(3, "others")}, "cuts"),
    ]
    for changed, named in cases:
        with pytest.raises(UserError, match=rf"lpm was made with other settings \({named}\)"):
            match(**{**given, **changed})
    assert files(out) == before


def test_cuts_can_be_given_as_objects(
    finished: tuple[Path, Recognizer],
    models: Models,
    speech: Speech,
    tmp_path: Path,
) -> None:
    cuts = {
        "labeled": CutSet.from_file(speech["labeled"]),
        "unlabeled": CutSet.from_file(speech["unlabeled"]),
    }
    dev = (cut for cut in CutSet.from_file(speech["validation"]["dev"]))
    settings = tiny()
    better = match(**models, **cuts, validation={"dev": dev}, out=tmp_path / "objects", settings=settings)
    assert same(weights(better), weights(finished[1]))


def test_lengths_are_those_of_greedy_decoding_unless_given(
    finished: tuple[Path, Recognizer],
    models: Models,
    speech: Speech,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard = greedy_transcripts(models["model"], Corpus.load(speech["unlabeled"], tiny().audio))
    lengths = {each.id: each.pieces for each in heard}
    monkeypatch.setattr(library, "greedy_transcripts", None)  # not called
    given = match(**models, **speech, out=tmp_path / "given", lengths=lengths, settings=tiny())
    assert same(weights(given), weights(finished[1]))
    wrong = dict.fromkeys(lengths, 1000)  # no hypothesis is so long: the filter leaves none
    other = match(**models, **speech, out=tmp_path / "wrong", lengths=wrong, settings=tiny())
    assert not same(weights(other), weights(finished[1]))


def test_lengths_by_the_labeled_speaking_rate_need_no_decoding(
    models: Models,
    speech: Speech,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(library, "greedy_transcripts", None)  # not called
    by_rate = tiny("matching.reference_lengths=speaking_rate", "matching.length_filter=[0.05,20]")
    found = match(**models, **speech, out=tmp_path / "found", settings=by_rate)
    rate = pieces_a_second(read_cuts(speech["labeled"]), models["model"].tokenizer)
    cuts = read_cuts(speech["unlabeled"])
    lengths = lengths_by_rate(ids_of(cuts), durations_of(cuts), rate)
    for name, given in (("same", lengths), ("other", dict.fromkeys(lengths, 1000))):
        told = match(**models, **speech, out=tmp_path / name, lengths=given, settings=by_rate)
        assert same(weights(told), weights(found)) == (name == "same")


def test_the_recipe_for_ones_own_data_can_be_used(
    models: Models,
    speech: Speech,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    advice = "run `priormatch tune --for-matching` to find better values for settings.fusion"
    untuned = ["fusion.beam_size=8", "fusion.lm_weight=0.3", "fusion.token_bonus=0.5"]
    searched, tuned = "matching.hypotheses=asr_lm", "fusion.lm_weight=0.2"
    for name, more, told in (
        ("plain", untuned, False),
        ("untuned", [searched, *untuned], True),
        ("tuned", [searched, *untuned, tuned], False),
        ("stays", [searched, *untuned, "matching.refresh=never"], False),
    ):
        few = load_settings(recipe_path("own"), [*TINY, "matching.batch.seconds=0", *more])
        match(**models, **speech, out=tmp_path / name, settings=few)
        assert (advice in capsys.readouterr().err) == told


@pytest.mark.parametrize("prior_exponent", [0, 1])
def test_that_a_prior_has_no_say_is_told(
    models: Models,
    speech: Speech,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    prior_exponent: int,
) -> None:
    settings = tiny(f"matching.prior_exponent={prior_exponent}", "matching.proposal_exponent=1")
    match(**models, **speech, out=tmp_path / "lpm", settings=settings)
    told = "the prior has no effect; set matching.prior_exponent=1 to weigh hypotheses by it"
    assert (told in capsys.readouterr().err) == (prior_exponent == 0)


CONTEXT = ("matching.context=true", "prior.model.context=true")
WIDE = "matching.length_filter=[0.05,20]"  # keeps several hypotheses of an untrained model


@pytest.fixture
def reader(models: Models) -> Models:
    """Models whose prior reads what comes before, and is not of one mind about it."""
    models["prior"].settings.context = True
    with torch.no_grad():
        for each in models["prior"].parameters():
            each.mul_(3.0)
    return models


@pytest.fixture
def consecutive(speech: Speech, tmp_path: Path) -> Speech:
    """The same speech, its unlabeled part being two recordings of four utterances each."""
    cuts = list(CutSet.from_file(speech["unlabeled"]))
    for number, cut in enumerate(cuts):
        cut.custom = {PART_OF: [f"talk-{number // 4}", number % 4]}
    CutSet.from_cuts(cuts).to_file(tmp_path / "talks.jsonl.gz")
    return {**speech, "unlabeled": tmp_path / "talks.jsonl.gz"}


def test_contexts_are_what_was_heard_before_unless_given(
    reader: Models,
    consecutive: Speech,
    tmp_path: Path,
) -> None:
    unlabeled = Corpus.load(consecutive["unlabeled"], tiny().audio)
    heard = {each.id: each.hypothesis for each in greedy_transcripts(reader["model"], unlabeled)}
    before = {f"unlabeled-{n}": heard[f"unlabeled-{n - 1}"] for n in range(8) if n % 4}
    assert any(before.values())
    given: dict[str, Any] = {**reader, **consecutive}
    own = match(**given, out=tmp_path / "own", settings=tiny(*CONTEXT, WIDE))
    told = match(**given, out=tmp_path / "told", settings=tiny(WIDE), contexts=before)
    assert same(weights(own), weights(told))
    plain = match(**given, out=tmp_path / "plain", settings=tiny(WIDE))
    assert not same(weights(own), weights(plain))
    other = match(
        **given, out=tmp_path / "other", settings=tiny(*CONTEXT, WIDE), contexts=dict.fromkeys(before, "at")
    )
    assert not same(weights(own), weights(other))
    with pytest.raises(UserError, match=r"other settings \(contexts\)"):
        match(**given, out=tmp_path / "told", settings=tiny(WIDE), contexts=dict.fromkeys(before, "at"))


def test_matching_with_contexts_goes_on_after_a_stop(
    reader: Models,
    consecutive: Speech,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given: dict[str, Any] = {**reader, **consecutive, "settings": tiny(*CONTEXT)}
    straight = match(**given, out=tmp_path / "straight")

    with stopped_at_the_third_update(monkeypatch):
        match(**given, out=tmp_path / "stopped")
    again = match(**given, out=tmp_path / "stopped")
    assert "resuming from update 2" in capsys.readouterr().err
    assert same(weights(again), weights(straight))


def test_contexts_that_cannot_be_used_are_refused(
    models: Models,
    reader: Models,
    speech: Speech,
    consecutive: Speech,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "lpm"
    with pytest.raises(UserError, match="no utterance of unlabeled follows another in its recording"):
        match(**reader, **speech, out=out, settings=tiny(*CONTEXT))
    with pytest.raises(UserError, match="contexts contains no text for an utterance of unlabeled"):
        match(**reader, **consecutive, out=out, settings=tiny(), contexts={"stranger": "at"})
    with pytest.raises(UserError, match="contexts only affect the prior's weights"):
        weighed = tiny("matching.prior_exponent=0", "matching.proposal_exponent=1")
        match(**reader, **consecutive, out=out, settings=weighed, contexts={"unlabeled-1": "at"})
    models["prior"].settings.context = False
    monkeypatch.setattr(library, "greedy_transcripts", None)  # refused before it is called
    for contexts in (None, {"unlabeled-1": "at"}):
        with pytest.raises(UserError, match=r"train it with prior\.model\.context=true"):
            match(**models, **consecutive, out=out, settings=tiny(*CONTEXT), contexts=contexts)


def test_the_verb_reads_contexts_from_the_transcripts(
    reader: Models,
    consecutive: Speech,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    save(reader, tmp_path)
    words = ("--model", "model", "--unlabeled", consecutive["unlabeled"])
    assert command("decode", *words[:2], "--cuts", words[3], "--out", "lengths.jsonl", *TINY) == 0
    more = ("--prior", "prior", "--labeled", consecutive["labeled"])
    sets = ("--validation", consecutive["validation"]["dev"])
    wanted = (*TINY, *CONTEXT)
    assert command("match", *words, *more, *sets, "--lengths", "lengths.jsonl", "--out", "verb", *wanted) == 0
    by_call = match(**reader, **consecutive, out=tmp_path / "call", settings=tiny(*CONTEXT))
    assert same(weights(SpeechRecognizer.load("verb/model")), weights(by_call))
    Path("bare.jsonl").write_text('{"id": "unlabeled-0", "hypothesis": "", "pieces": 3}\n')
    capsys.readouterr()
    assert command("match", *words, *more, *sets, "--lengths", "bare.jsonl", "--out", "bare", *wanted) == 2
    assert "matching.context needs transcripts of the unlabeled speech" in capsys.readouterr().err
    assert command("match", *words, *more, *sets, "--out", "decoded", *wanted) == 0
    assert same(weights(SpeechRecognizer.load("decoded/model")), weights(by_call))


def test_the_verb_gives_the_same(
    finished: tuple[Path, Recognizer],
    models: Models,
    speech: Speech,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    save(models, tmp_path)
    unlabeled = ("--model", "model", "--unlabeled", speech["unlabeled"])
    assert command("decode", *unlabeled[:2], "--cuts", unlabeled[3], "--out", "lengths.jsonl", *TINY) == 0
    more = ("--prior", "prior", "--labeled", speech["labeled"], "--lengths", "lengths.jsonl")
    sets = ("--validation", speech["validation"]["dev"])
    assert command("match", *unlabeled, *more, *sets, "--out", "verb", *TINY) == 0
    by_verb = weights(SpeechRecognizer.load("verb/model"))
    assert same(by_verb, weights(finished[1]))
    from_folders = match("model", Path("prior"), **speech, out="call", settings=tiny())
    assert same(by_verb, weights(from_folders))


def test_validation_speech_is_wanted(
    models: Models,
    speech: Speech,
    tmp_path: Path,
    tiny_corpus: Callable[..., Path],
) -> None:
    silent = tiny_corpus(2, "silent", transcribed=False)
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "validation is empty: use at least one set of transcribed cuts"),
        ({"dev": []}, "dev contains no transcribed utterance"),
        ({"dev": silent}, "dev contains no transcribed utterance"),
        ({"dev": tmp_path / "nowhere.jsonl.gz"}, "no cuts at"),
    ]
    for validation, sentence in cases:
        given: dict[str, Any] = {**speech, "validation": validation}
        with pytest.raises(UserError, match=sentence):
            match(**models, **given, out=tmp_path / "lpm", settings=tiny())
    assert not (tmp_path / "lpm").exists()


def test_speech_without_an_utterance_is_named(models: Models, speech: Speech, tmp_path: Path) -> None:
    for name, sentence in (
        ("labeled", "labeled contains no transcribed"),
        ("unlabeled", "unlabeled contains no utt"),
    ):
        given: dict[str, Any] = {**speech, name: []}
        with pytest.raises(UserError, match=sentence):
            match(**models, **given, out=tmp_path / "lpm", settings=tiny())


def test_a_prior_of_other_pieces_weighs_and_rescores_texts(
    models: Models,
    speech: Speech,
    tmp_path: Path,
    other_tokenizer: Tokenizer,
) -> None:
    other = ConvPrior(models["prior"].settings, other_tokenizer)
    assert match(models["model"], other, **speech, out=tmp_path / "lpm", settings=tiny())
    fused = tiny("matching.hypotheses=asr_lm", "fusion.lm_weight=0.2")
    assert match(models["model"], other, **speech, out=tmp_path / "fused", settings=fused)


def test_a_folder_of_others_is_left_alone(models: Models, speech: Speech, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    with pytest.raises(UserError, match="was not made by priormatch"):
        match(**models, **speech, out=tmp_path / "thesis", settings=tiny())
    assert [each.name for each in (tmp_path / "thesis").iterdir()] == ["chapter.txt"]


@pytest.mark.parametrize("name", priormatch._HOMES)
def test_every_name_is_there_and_the_thing_of_its_home(name: str) -> None:
    thing = getattr(priormatch, name)
    assert thing is getattr(import_module(f"priormatch.{priormatch._HOMES[name]}"), name)
    assert thing.__module__ == f"priormatch.{priormatch._HOMES[name]}"  # not merely passed on from there


def test_the_names_for_type_checkers_are_the_same() -> None:
    source = Path(priormatch.__file__).read_text()
    promised = set(re.findall(r"^    from priormatch\..* import (\w+) as \1$", source, re.MULTILINE))
    assert promised == set(priormatch._HOMES)


def test_the_names_are_listed_without_loading_their_homes() -> None:
    code = "import sys, priormatch; print(*dir(priormatch)); print('torch' in sys.modules)"
    source = str(Path(priormatch.__file__).parents[1])
    listed, loaded = subprocess.check_output(
        [sys.executable, "-c", code], env={"PYTHONPATH": source}, text=True
    ).splitlines()
    assert set(listed.split()) == {*priormatch._HOMES, "__version__"}
    assert loaded == "False"


def test_any_other_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'mach'"):
        _ = priormatch.mach


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, priormatch; sys.exit(bool({'torch', 'lhotse', 'numpy'} & sys.modules.keys()))"
    source = str(Path(priormatch.__file__).parents[1])
    assert (
        subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": source}, check=False).returncode == 0
    )

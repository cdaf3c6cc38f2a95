"""Work of versions that wrote `labelled`, `unlabelled` and `centred` is still found."""

from pathlib import Path

import pytest

from priormatch.config import DemoSettings, FusionSettings, Settings, load_settings
from priormatch.data.corpus import Corpus
from priormatch.decoding.tuning import Errors, Trials, read_tuned
from priormatch.errors import UserError
from priormatch.old_names import existing_manifest
from priormatch.pipeline import work
from priormatch.pipeline.run_data import make_data
from priormatch.pipeline.transcribe import Transcribed
from priormatch.prepare.demo import VERSION, DemoSizes, prepare_demo
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.runs.stage import Stage, digest_of_recipe

OLD_RECIPE = {
    "settings": {"fusion": {"lm_weight": 0.2, "centred": True}},
    "inputs": {
        "labelled": "labelled.jsonl.gz of 0123456789abcdef",
        "unlabelled": "b",
        "pseudo_labelled": "c",
    },
    "format": 1,
}


def test_the_hash_of_an_older_recipe_is_the_same_under_new_names() -> None:
    new = {
        "settings": {"fusion": {"lm_weight": 0.2, "centered": True}},
        "inputs": {
            "labeled": "labelled.jsonl.gz of 0123456789abcdef",
            "unlabeled": "b",
            "pseudo_labeled": "c",
        },
        "format": 1,
    }
    assert digest_of_recipe(new) == digest_of_recipe(OLD_RECIPE) == "846315963f3c952e"


def test_a_stage_of_an_older_run_is_finished(tmp_path: Path) -> None:
    cuts, out = tmp_path / "labelled.jsonl.gz", tmp_path / "labels"
    cuts.write_bytes(b"cuts")
    made = Stage(out, {"fusion": {"centered": True}}, {"unlabeled": cuts})
    with made.work():
        (out / "work").write_text("done")
    file = out / "stage.json"
    file.write_text(file.read_text().replace("unlabeled", "unlabelled").replace("centered", "centred"))
    assert Stage(out, {"fusion": {"centered": True}}, {"unlabeled": cuts}).finished
    with pytest.raises(UserError, match=r"other settings \(fusion.centered\)"):
        Stage(out, {"fusion": {"centered": False}}, {"unlabeled": cuts})


def test_manifests_of_an_older_run_are_found_and_new_ones_preferred(tmp_path: Path) -> None:
    old, new = (tmp_path / f"{name}.jsonl.gz" for name in ("labelled", "labeled"))
    assert existing_manifest(tmp_path, "labeled", ".jsonl.gz") == new
    old.touch()
    assert existing_manifest(tmp_path, "labeled", ".jsonl.gz") == old
    new.touch()
    assert existing_manifest(tmp_path, "labeled", ".jsonl.gz") == new


def test_an_older_demo_corpus_is_used_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("espeakng_loader")
    corpus, sizes = tmp_path / "data", DemoSizes(2, 2, 2, 2, 2, 2)
    stage = Stage(corpus, {"demo": DemoSettings(), "version": VERSION}, {})
    with stage.work():
        prepare_demo(corpus, 0, sizes, processes=1)
        for each in list(corpus.glob("*labeled*.gz")):
            each.rename(each.with_name(each.name.replace("labeled", "labelled")))
        about = corpus / "demo.json"
        about.write_text(about.read_text().replace("labeled", "labelled"))
    written = {each: each.stat().st_mtime_ns for each in corpus.iterdir()}
    prepare_demo(corpus, 0, sizes)
    data = make_data(load_settings(None, ["corpus=demo"]), tmp_path)
    assert [data.labeled.name, data.unlabeled.name] == ["labelled.jsonl.gz", "unlabelled.jsonl.gz"]
    assert data.topline is not None and data.topline.is_file()
    assert written == {each: each.stat().st_mtime_ns for each in corpus.iterdir()}


def test_tuned_values_of_an_older_run_are_read(tmp_path: Path) -> None:
    file = tmp_path / "fusion.yaml"
    file.write_text("fusion:\n  lm_weight: 0.2\n  centred: true\n")
    assert read_tuned(file) == ["fusion.lm_weight=0.2", "fusion.centered=True"]


def test_transcripts_of_an_older_version_are_recognized(tmp_path: Path) -> None:
    transcript, recording = tmp_path / "talk.txt", tmp_path / "talk.wav"
    made_with = {"search": {"beam_size": 8, "centered": False}}
    Transcribed(tmp_path, made_with).note(transcript, recording)
    file = tmp_path / "transcribed.jsonl"
    file.write_text(file.read_text().replace("centered", "centred"))
    Transcribed(tmp_path, made_with).require_same(transcript, recording)
    with pytest.raises(UserError, match=r"made with another search\.centered"):
        Transcribed(tmp_path, {"search": {"beam_size": 8, "centered": True}}).require_same(
            transcript, recording
        )


def test_decoding_with_a_prior_that_an_older_version_began_resumes(
    tmp_path: Path, tiny_recognizer: SpeechRecognizer, tiny_prior: ConvPrior, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_recognizer.save(tmp_path / "model")
    tiny_prior.save(tmp_path / "prior")
    keys: list[str] = []
    monkeypatch.setattr(work, "decode_to_file", lambda *given, **options: keys.append(given[3]))
    monkeypatch.setattr(Corpus, "load", lambda *given: None)
    settings = Settings(device="cpu", fusion=FusionSettings(centered=True))
    work.decode_to(
        tmp_path / "model", tmp_path / "cuts", settings, tmp_path / "out", prior=tmp_path / "prior"
    )
    assert "lm_weight=0.3, centred=True, token_bonus=0.5" in keys[0]


def test_trials_of_an_older_run_are_not_repeated(tmp_path: Path) -> None:
    file, settings = tmp_path / "fusion.yaml.trials.jsonl", FusionSettings(centered=True)
    Trials(file, "key").measured(lambda _: Errors(1.0, 2.0))(settings)
    file.write_text(file.read_text().replace("centered", "centred"))
    assert Trials(file, "key").measured(lambda _: Errors(9.0, 9.0))(settings) == Errors(1.0, 2.0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("labelled: a", "labeled"),
        ("unlabelled: a", "unlabeled"),
        ("fusion: {centred: true}", "fusion.centered"),
    ],
)
def test_an_older_recipe_is_told_the_new_name(tmp_path: Path, old: str, new: str) -> None:
    recipe = tmp_path / "own.yaml"
    recipe.write_text(f"{old}\n")
    with pytest.raises(UserError, match=rf"there is no setting .*: did you mean {new}\?"):
        load_settings(recipe)

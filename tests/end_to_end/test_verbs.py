"""Every verb, from folders of audio to scores, and what each says to bad input."""

import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import soundfile
from tiny_run import command, files, make_folders

from priormatch.data.corpus import read_cuts
from priormatch.data.tokenizer import train_tokenizer


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every verb has been run once."""
    root = tmp_path_factory.mktemp("verbs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        make_folders(root)
        for name in ("labeled", "unlabeled", "test"):
            assert command("prepare", "audio", name, "--out", f"data/{name}.jsonl.gz") == 0
        assert (
            command("prepare", "text", "text.txt", "--cuts", "data/test.jsonl.gz", "--out", "data/text.txt")
            == 0
        )
        lines = (root / "data/text.txt").read_text().splitlines(keepends=True)
        (root / "data/held-out.txt").write_text("".join(lines[:10]))
        tiny = ("--recipe", "tiny.yaml")
        assert command("tokenizer", "--text", "data/text.txt", "--out", "exp/tokenizer", *tiny) == 0
        assert command(*train_prior(), *tiny) == 0
        assert command(*train(), *tiny) == 0
        assert command(*lengths(), *tiny) == 0
        assert command(*match(), *tiny) == 0
        for name in ("sup", "lpm"):
            decoded = ("decode", "--model", f"exp/{name}/model", "--cuts", "data/test.jsonl.gz")
            assert command(*decoded, "--out", f"exp/{name}-test.jsonl", *tiny) == 0
    return root


def train_prior(
    text: str = "data/text.txt", tokenizer: str = "exp/tokenizer", out: str = "exp/prior"
) -> tuple[str, ...]:
    held_out = "data/held-out.txt"
    return (
        "train-prior",
        "--text",
        text,
        "--validation-text",
        held_out,
        "--tokenizer",
        tokenizer,
        "--out",
        out,
    )


def train(
    labeled: str = "data/labeled.jsonl.gz", tokenizer: str = "exp/tokenizer", out: str = "exp/sup"
) -> tuple[str, ...]:
    sets = ("--labeled", labeled, "--validation", "data/test.jsonl.gz")
    return "train", *sets, "--tokenizer", tokenizer, "--out", out


def lengths(model: str = "exp/sup/model", out: str = "exp/lengths.jsonl") -> tuple[str, ...]:
    return "decode", "--model", model, "--cuts", "data/unlabeled.jsonl.gz", "--out", out


def match(
    model: str = "exp/sup/model",
    prior: str = "exp/prior/model",
    lengths: str = "exp/lengths.jsonl",
    out: str = "exp/lpm",
) -> tuple[str, ...]:
    speech = ("--labeled", "data/labeled.jsonl.gz", "--unlabeled", "data/unlabeled.jsonl.gz")
    models = ("--model", model, "--prior", prior)
    return "match", *models, *speech, "--lengths", lengths, "--validation", "data/test.jsonl.gz", "--out", out


@pytest.fixture
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def refused(at_home: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must be refused in one sentence, with code 2, and with nothing written over."""

    def refused(*words: str) -> str:
        before = files(at_home)
        capsys.readouterr()
        assert command(*words) == 2
        after = files(at_home)
        assert {name: after.get(name) for name in before} == before
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert said.startswith("priormatch: ")
        return said

    return refused


def test_every_folder_is_whole(home: Path) -> None:
    for name, kind in (("prior", "prior"), ("sup", "recognizer"), ("lpm", "recognizer")):
        model = home / "exp" / name / "model"
        assert {each.name for each in model.iterdir()} == {
            "model.safetensors",
            "model.yaml",
            "tokenizer.model",
            "README.md",
        }
        assert f"kind: {kind}" in (model / "model.yaml").read_text()
        assert json.loads((home / "exp" / name / "stage.json").read_text())["finished"]
        assert list((home / "exp" / name / "tensorboard").rglob("events*"))
    assert not list(home.rglob("*.tmp*"))


def test_every_model_has_a_card(home: Path) -> None:
    cards = {
        name: (home / "exp" / name / "model" / "README.md").read_text() for name in ("prior", "sup", "lpm")
    }
    assert "- text: " in cards["prior"] and "sentences: " in cards["prior"]
    assert "- transcribed speech: labeled (12s, 24 utterances)" in cards["sup"]
    assert re.search(r"- untranscribed speech: unlabeled \(\d+s, \d+ utterances\)", cards["lpm"])
    assert "- prior: prior, a language model of " in cards["lpm"]
    assert "mean CER on test, used to select the model: " in cards["lpm"]
    assert not any(str(home) in card for card in cards.values())


def test_an_edited_card_stays_and_changes_nothing_that_follows(
    at_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card = at_home / "exp/sup/model/README.md"
    written = card.read_text()
    card.write_text("mine\n")
    try:
        for words in (train(), match()):
            assert command(*words, "--recipe", "tiny.yaml") == 0
            assert "finished before, reused" in capsys.readouterr().err
        assert card.read_text() == "mine\n"
    finally:
        card.write_text(written)


def test_matching_tells_its_diagnostics_at_every_report_and_its_refreshes(home: Path) -> None:
    lines = [json.loads(line) for line in (home / "exp/lpm/metrics.jsonl").read_text().splitlines()]
    validations = [each for each in lines if "validation_score" in each]
    assert [each["update"] for each in validations] == [0, 4, 8]
    assert all({"proposal_refreshed", "refreshes", "proposal_cer"} <= each.keys() for each in validations[1:])
    reports = [each for each in lines if "loss" in each]
    assert [each["update"] for each in reports] == [4, 8]
    diagnostics = {
        "local_prior_entropy",
        "survivors",
        "share_without_survivor",
        "paired_loss",
        "unpaired_loss",
    }
    assert all(diagnostics <= each.keys() for each in reports)


def test_decoding_knows_references_and_order(home: Path) -> None:
    lines = [json.loads(line) for line in (home / "exp/sup-test.jsonl").read_text().splitlines()]
    assert len(lines) == 8
    assert all(
        {"id", "hypothesis", "pieces", "reference", "score"} == each.keys() - {"ended"} for each in lines
    )


def test_scoring_two_systems(at_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("score", "exp/sup-test.jsonl", "exp/lpm-test.jsonl") == 0
    said = capsys.readouterr().out
    assert "WER %" in said
    assert "8 common utterances" in " ".join(said.split())


def test_an_n_best_list(at_home: Path, tmp_path: Path) -> None:
    out = tmp_path / "nbest.jsonl"
    words = ("--cuts", "data/test.jsonl.gz", "--out", out, "--beam-size", 3, "audio.workers=0")
    assert command("decode", "--model", "exp/sup/model", *words) == 0
    for line in out.read_text().splitlines():
        entry = json.loads(line)
        assert entry["nbest"][0]["text"] == entry["hypothesis"]


@pytest.mark.parametrize("words", [train_prior(), train(), match()], ids=lambda words: words[0])
def test_the_same_command_again_reuses_the_work(
    at_home: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(at_home)
    assert command(*words, "--recipe", "tiny.yaml") == 0
    assert "finished before, reused" in capsys.readouterr().err
    assert files(at_home) == before


@pytest.mark.parametrize("words", [train_prior(), train(), match()], ids=lambda words: words[0])
def test_other_settings_in_the_same_place_are_refused(
    refused: Callable[..., str], words: tuple[str, ...]
) -> None:
    said = refused(*words, "--recipe", "tiny.yaml", "training.seed=5")
    assert f"{words[-1]} was made with other settings" in said
    assert "seed" in said


def test_an_existing_file_of_transcripts_is_refused_unless_asked(refused: Callable[..., str]) -> None:
    assert "exp/lengths.jsonl exists" in refused(*lengths())
    assert command(*lengths(), "--overwrite", "audio.workers=0") == 0


def test_a_prior_with_another_tokenizer_weighs_and_rescores_texts(at_home: Path) -> None:
    other = at_home / "exp/other-tokenizer"
    if not other.exists():
        train_tokenizer((at_home / "data/text.txt").read_text().splitlines(), 28).save(other)
        words = train_prior(tokenizer="exp/other-tokenizer", out="exp/other-prior")
        assert command(*words, "--recipe", "tiny.yaml", "prior.updates=1") == 0
    words = (*match(prior="exp/other-prior/model", out="exp/of-texts"), "--recipe", "tiny.yaml")
    assert command(*words, "matching.max_proposal_cer=1000", "matching.updates=2") == 0
    words = (*match(prior="exp/other-prior/model", out="exp/rescored"), "--recipe", "tiny.yaml")
    short = ("matching.max_proposal_cer=1000", "matching.updates=2", "matching.hypotheses=asr_lm")
    assert command(*words, *short) == 0


def test_a_proposal_so_bad_that_it_would_teach_nonsense_and_the_way_out(refused: Callable[..., str]) -> None:
    words = (*match(out="exp/barred"), "--recipe", "tiny.yaml", "matching.updates=1")
    said = refused(*words, "matching.max_proposal_cer=0.1")
    assert "matching.max_proposal_cer=0.1" in said
    assert "useless for training" in said
    assert command(*words, "matching.max_proposal_cer=1000") == 0


def test_models_of_the_wrong_kind_or_none_at_all(refused: Callable[..., str]) -> None:
    assert "exp/prior/model holds a prior, not a recognizer" in refused(
        *match(model="exp/prior/model", out="exp/n1")
    )
    assert "exp/sup/model holds a recognizer, not a prior" in refused(
        *match(prior="exp/sup/model", out="exp/n2")
    )
    assert "nowhere does not exist" in refused(*lengths(model="nowhere", out="exp/n3"))
    assert "exp/tokenizer contains no recognizer" in refused(*lengths(model="exp/tokenizer", out="exp/n3"))


def test_lengths_of_other_speech(refused: Callable[..., str]) -> None:
    said = refused(*match(lengths="exp/sup-test.jsonl", out="exp/n4"), "--recipe", "tiny.yaml")
    assert "no utterance of data/unlabeled.jsonl.gz has a reference length" in said


def test_a_mistyped_path_is_no_hindrance_to_the_mended_command(
    refused: Callable[..., str], at_home: Path
) -> None:
    words = ("--out", "exp/again", "--recipe", "tiny.yaml")
    assert "no cuts at data/tets.jsonl.gz" in refused("tokenizer", "--cuts", "data/tets.jsonl.gz", *words)
    assert command("tokenizer", "--text", "data/text.txt", *words) == 0


def test_an_empty_text_is_named(refused: Callable[..., str], at_home: Path) -> None:
    (at_home / "empty.txt").write_text("\n")
    assert "empty.txt" in refused("prepare", "text", "empty.txt", "--out", "n5.txt")
    assert "empty.txt" in refused("tokenizer", "--text", "empty.txt", "--out", "n6")
    assert "empty.txt" in refused(*train_prior(text="empty.txt", out="n7"))


def test_speech_without_transcripts_is_named(refused: Callable[..., str]) -> None:
    said = refused(*train(labeled="data/unlabeled.jsonl.gz", out="n8"), "--recipe", "tiny.yaml")
    assert "data/unlabeled.jsonl.gz contains no transcribed utterance" in said


def test_a_tokenizer_that_is_not_there(refused: Callable[..., str], at_home: Path) -> None:
    assert "no tokenizer at" in refused(*train(tokenizer="nowhere", out="n9"))
    (at_home / "noise").mkdir(exist_ok=True)
    (at_home / "noise" / "tokenizer.model").write_bytes(b"noise")
    assert "is not a SentencePiece model" in refused(*train(tokenizer="noise", out="n9"))


def test_a_manifest_that_is_none(refused: Callable[..., str], at_home: Path) -> None:
    (at_home / "noise.jsonl.gz").write_bytes(b"noise")
    said = refused("decode", "--model", "exp/sup/model", "--cuts", "noise.jsonl.gz", "--out", "n10.jsonl")
    assert "noise.jsonl.gz is not a usable manifest" in said


def hostile_manifest(folder: Path, path: Path, changes: dict[str, str]) -> None:
    """The labeled cuts with other sources of audio, each of which would write the file PROOF if it were run."""
    lines = gzip.decompress((folder / "data/labeled.jsonl.gz").read_bytes()).decode().splitlines()
    cuts = [json.loads(line) for line in lines]
    for cut in cuts:
        cut["recording"]["sources"][0].update(changes)
    path.write_text("".join(json.dumps(cut) + "\n" for cut in cuts))


HOSTILE = "hostile.jsonl"
MODELS = ("--model", "exp/sup/model", "--prior", "exp/prior/model")
OF_CUTS = {
    "decode": ("decode", *MODELS[:2], "--cuts", HOSTILE, "--out", "h1.jsonl"),
    "train": (*train(labeled=HOSTILE, out="h3"), "--recipe", "tiny.yaml"),
    "train, validation": (*train(out="h4"), "--validation", HOSTILE, "--recipe", "tiny.yaml"),
    "match": (
        *("match", *MODELS, "--labeled", "data/labeled.jsonl.gz", "--unlabeled", HOSTILE),
        *("--lengths", "exp/lengths.jsonl", "--validation", "data/test.jsonl.gz"),
        *("--out", "h5", "--recipe", "tiny.yaml"),
    ),
    "hypotheses": ("hypotheses", *MODELS, "--cuts", HOSTILE),
    "tune": ("tune", *MODELS, "--validation", HOSTILE, "--out", "h6.yaml"),
    "pack": ("pack", HOSTILE, "--out", "h7"),
    "label": ("label", *MODELS[:2], "--cuts", HOSTILE, "--out", "h8.jsonl.gz"),
    "score": ("score", "exp/sup-test.jsonl", "--references", HOSTILE),
    "tokenizer": ("tokenizer", "--cuts", HOSTILE, "--out", "h9", "--recipe", "tiny.yaml"),
    "prepare audio": ("prepare", "audio", HOSTILE, "--out", "h10.jsonl.gz"),
    "prepare text": ("prepare", "text", "text.txt", "--cuts", HOSTILE, "--out", "h11.txt"),
    "run": (
        *("run", "tiny.yaml", "--force", "name=h12", "text=text.txt"),
        *(f"labeled={HOSTILE}", "unlabeled=unlabeled", "validation=[data/test.jsonl.gz]"),
    ),
}


SKIPPING = ("prepare audio", "run")  # which skip what they cannot use, and stop where nothing is left


@pytest.mark.parametrize("verb", OF_CUTS)
def test_no_verb_runs_a_command_that_a_manifest_names(
    refused: Callable[..., str], at_home: Path, verb: str
) -> None:
    proof = at_home / "PROOF"
    hostile_manifest(at_home, at_home / HOSTILE, {"type": "command", "source": f"touch {proof}"})
    said = refused(*OF_CUTS[verb])
    assert not proof.exists()
    assert f"{HOSTILE} is not a usable manifest of cuts: line 1" in said or verb in SKIPPING
    assert "labeled-speaker0-0" in said
    assert "its audio is a command, but must be a file" in said


def test_the_doctor_runs_no_command_either(at_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proof = at_home / "PROOF"
    hostile_manifest(at_home, at_home / HOSTILE, {"type": "command", "source": f"touch {proof}"})
    data = (
        f"labeled={HOSTILE}",
        "unlabeled=unlabeled",
        "validation=[data/test.jsonl.gz]",
        "text=text.txt",
    )
    assert command("doctor", "tiny.yaml", *data) != 0
    said = capsys.readouterr()
    assert "its audio is a command, but must be a file" in said.out + said.err
    assert not proof.exists()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"type": "url", "source": "http://127.0.0.1:9/a.wav"}, "its audio is a url, but must be a file"),
        ({"source": "http://127.0.0.1:9/a.wav"}, "its audio is at a URL"),
        ({"type": "memory"}, "its audio is a memory"),
    ],
)
def test_audio_elsewhere_than_in_files_is_refused(
    refused: Callable[..., str], at_home: Path, changes: dict[str, str], reason: str
) -> None:
    hostile_manifest(at_home, at_home / HOSTILE, changes)
    assert reason in refused(*OF_CUTS["decode"])


def test_a_folder_of_others_is_not_written_into(refused: Callable[..., str]) -> None:
    assert "test exists and was not made by priormatch" in refused(
        *train(out="test"), "--recipe", "tiny.yaml"
    )
    assert "text.txt is a file" in refused(*train(out="text.txt"), "--recipe", "tiny.yaml")


def test_two_validation_sets_of_one_name(refused: Callable[..., str], at_home: Path) -> None:
    (at_home / "copy").mkdir(exist_ok=True)
    shutil.copy(at_home / "data/test.jsonl.gz", at_home / "copy/test.jsonl.gz")
    assert "same name" in refused(*train(out="n11"), "--validation", "copy/test.jsonl.gz")


@pytest.mark.parametrize("suffix", ["wav", "flac"])
def test_audio_broken_after_it_was_prepared_is_skipped_counted_and_stops_at_a_share(
    at_home: Path, suffix: str, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = at_home / f"fragile-{suffix}"
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    for path in sorted((at_home / "labeled").rglob("*.wav")):
        sound, rate = soundfile.read(path)
        soundfile.write(folder / f"{path.stem}.{suffix}", sound, rate)
        shutil.copy(path.with_suffix(".txt"), folder / f"{path.stem}.txt")
    cuts = f"data/fragile-{suffix}.jsonl.gz"
    assert command("prepare", "audio", folder, "--out", cuts) == 0
    audio = sorted(folder.glob(f"*.{suffix}"))
    cut_short(audio[0])
    words = (*train(labeled=cuts, out=f"exp/one-{suffix}"), "--recipe", "tiny.yaml", "training.updates=8")
    assert command(*words) == 0
    assert f"{audio[0].stem} cannot be read and is skipped" in capsys.readouterr().err
    for path in audio[1:8]:
        cut_short(path)
    words = (*train(labeled=cuts, out=f"exp/many-{suffix}"), "--recipe", "tiny.yaml", "training.updates=80")
    said = refused(*words)
    assert f"fragile-{suffix}.jsonl.gz" in said
    assert "audio.max_bad_share" in said


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_broken_audio_is_listed_when_it_is_prepared(
    at_home: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    folder = at_home / "mixed"
    shutil.copytree(at_home / "labeled", folder, dirs_exist_ok=True)
    broken = sorted(folder.rglob("*.wav"))
    cut_short(broken[0])
    assert command("prepare", "audio", "mixed", "--out", "data/mixed.jsonl.gz") == 0
    assert "1 of 24 skipped" in capsys.readouterr().err
    assert str(broken[0].name) in (at_home / "data/mixed.bad.tsv").read_text()
    assert "exists already" in refused("prepare", "audio", "mixed", "--out", "data/mixed.jsonl.gz")
    for path in broken[1:6]:
        path.write_bytes(b"RIFF")
    said = refused("prepare", "audio", "mixed", "--out", "data/more.jsonl.gz")
    assert "6 of 24 files" in said
    assert not (at_home / "data/more.jsonl.gz").exists()


MATCH = (
    "match",
    "--model",
    "exp/sup/model",
    "--labeled",
    "data/labeled.jsonl.gz",
    "--validation",
    "data/test.jsonl.gz",
)


def test_matching_without_prior_and_lengths_where_the_settings_need_none(
    refused: Callable[..., str], at_home: Path
) -> None:
    words = (
        *MATCH,
        "--unlabeled",
        "data/unlabeled.jsonl.gz",
        "--recipe",
        "tiny.yaml",
        "matching.updates=2",
    )
    without = ("matching.prior_exponent=0", "matching.length_filter=[]")
    said = refused(*words, "--out", "exp/m1", without[1])
    assert "there is no prior: provide one" in said
    said = refused(*words, "--out", "exp/m1", *without, "matching.hypotheses=asr_lm")
    assert "there is no prior: provide one, or search without it" in said
    assert command(*words, "--out", "exp/m1", *without, "--proposal", "exp/lpm/model") == 0
    assert (at_home / "exp/m1/model/model.safetensors").is_file()
    by_rate = "matching.reference_lengths=speaking_rate"
    assert command(*words, "--out", "exp/m2", without[0], by_rate) == 0
    said = refused(*words, "--out", "exp/m3", without[0], "matching.reference_lengths=asr_lm")
    assert "matching.reference_lengths=asr_lm is for `priormatch run`" in said


def test_labels_of_the_proposal_are_scored_where_transcripts_are_known(at_home: Path) -> None:
    known = "data/labeled.jsonl.gz"  # as if it were not
    words = (*MATCH, "--unlabeled", known, "--recipe", "tiny.yaml", "matching.updates=2")
    without = ("matching.prior_exponent=0", "matching.length_filter=[]", "matching.start_counts=false")
    assert command(*words, *without, "--out", "exp/scored", "--transcribed", known) == 0
    lines = [json.loads(line) for line in (at_home / "exp/scored/metrics.jsonl").read_text().splitlines()]
    first = next(each for each in lines if each["update"] == 0)
    assert first["label_wer"] > 0
    assert list((at_home / "exp/scored/tensorboard").rglob("events*"))


def test_labels_are_written_and_learned(refused: Callable[..., str], at_home: Path) -> None:
    cuts = ("--cuts", "data/unlabeled.jsonl.gz", "--keep-unended", "--most-repeats", "0")
    assert command("label", "--model", "exp/sup/model", *cuts, "--out", "exp/labels.jsonl.gz") == 0
    words = (
        *MATCH,
        "--unlabeled",
        "exp/labels.jsonl.gz",
        "--labels-given",
        "--recipe",
        "tiny.yaml",
        "matching.updates=2",
    )
    for option in ("--prior", "--transcribed", "--fusion"):
        assert "omit them" in refused(*words, "--out", "exp/given", option, "exp/prior/model")
    assert command(*words, "--out", "exp/given") == 0
    assert (at_home / "exp/given/model/model.safetensors").is_file()


def test_matching_converts_folders_holds_out_speakers_and_decodes_for_the_length_filter(
    at_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    speech = ("--labeled", "labeled", "--unlabeled", "unlabeled")
    settings = ("--recipe", "tiny.yaml", "matching.updates=2", "validation_share=0.25")
    words = ("match", *MODELS, *speech, "--out", "exp/folders", *settings)
    assert command(*words) == 0
    data = at_home / "exp/folders/data"
    cuts = {
        name: list(read_cuts(data / f"{name}.jsonl.gz")) for name in ("labeled", "validation", "unlabeled")
    }
    assert {name: len(each) for name, each in cuts.items()} == {
        "labeled": 18,
        "validation": 6,
        "unlabeled": 20,
    }
    speakers = [{each.supervisions[0].speaker for each in cuts[name]} for name in ("labeled", "validation")]
    assert not speakers[0] & speakers[1]
    lengths = [json.loads(line) for line in (at_home / "exp/folders/lengths.jsonl").read_text().splitlines()]
    assert len(lengths) == 20
    assert (at_home / "exp/folders/model/model.safetensors").is_file()
    before = files(at_home / "exp/folders")
    assert command(*words) == 0
    assert files(at_home / "exp/folders") == before


def test_matching_without_labels_warns_and_follows_the_prior_alone(
    at_home: Path, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ("--recipe", "tiny.yaml", "matching.updates=2", "training.report_every=1")
    words = ("match", *MODELS, "--unlabeled", "data/unlabeled.jsonl.gz", *settings)
    assert "there are no transcripts at all" in refused(*words, "--out", "exp/nothing")
    sets = ("--validation", "data/test.jsonl.gz")
    by_rate = "matching.reference_lengths=speaking_rate"
    assert command(*words, *sets, "--out", "exp/unlabeled", by_rate) == 0
    assert "no labeled speech: every update follows the prior" in capsys.readouterr().err
    lines = map(json.loads, (at_home / "exp/unlabeled/metrics.jsonl").read_text().splitlines())
    losses = [line for line in lines if "loss" in line]
    assert len(losses) == 2
    assert all("unpaired_loss" in line and "paired_loss" not in line for line in losses)
    card = (at_home / "exp/unlabeled/model/README.md").read_text()
    assert "untranscribed speech" in card
    assert "\n- transcribed speech" not in card

"""The user's own data, whatever it is, as a run takes it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import CutSet
from lhotse.utils import fastcopy
from narrowing import present
from tiny_language import sentences, speak

from priormatch.config import load_settings
from priormatch.data.corpus import read_cuts
from priormatch.data.manifest import SUFFIX
from priormatch.errors import UserError
from priormatch.pipeline.run_data import RunData, make_data


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """Folders of labeled and unlabeled audio by three speakers each, and a file of text."""
    for name, transcribed in (("labeled", True), ("unlabeled", False)):
        for number, text in enumerate(sentences(9, seed=len(name))):
            path = tmp_path / name / f"speaker{number % 3}" / f"{number}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(path, speak(text), 16_000)
            if transcribed:
                path.with_suffix(".txt").write_text(text.upper())
    (tmp_path / "text.txt").write_text("\n".join(sentences(40, seed=1)) + "\n")
    return {name: tmp_path / name for name in ("labeled", "unlabeled")} | {"text": tmp_path / "text.txt"}


def make(folders: dict[str, Path], tmp_path: Path, *overrides: str) -> RunData:
    given = [f"{name}={path}" for name, path in folders.items()]
    settings = load_settings(None, [*given, "prior.validation_share=0.1", *overrides])
    return make_data(settings, tmp_path / "run")


def texts(path: Path) -> list[str | None]:
    return [cut.supervisions[0].text for cut in read_cuts(path)]


def transcripts(path: Path) -> list[str]:
    """The texts of cuts all of which have one."""
    return [present(text) for text in texts(path)]


def speakers(path: Path) -> set[str]:
    return {cut.supervisions[0].speaker for cut in read_cuts(path)}


def test_folders_become_cuts_with_speakers_held_apart(folders: dict[str, Path], tmp_path: Path) -> None:
    data = make(folders, tmp_path, "validation_share=0.3")
    assert list(data.validation) == ["validation"]
    assert speakers(data.labeled).isdisjoint(speakers(data.validation["validation"]))
    assert len(texts(data.labeled) + texts(data.validation["validation"])) == 9
    assert all(text == text.lower() for text in transcripts(data.labeled))
    assert texts(data.unlabeled) == [None] * 9
    assert data.test == data.validation
    assert "no test set" in data.notes[0]
    assert data.topline is None


def test_some_of_the_text_is_held_out(folders: dict[str, Path], tmp_path: Path) -> None:
    data = make(folders, tmp_path)
    rest, held_out = data.text.read_text().splitlines(), data.held_out_text.read_text().splitlines()
    assert (len(rest), len(held_out)) == (36, 4)
    assert sorted(rest + held_out) == sorted(sentences(40, seed=1))


def test_sentences_in_a_row_are_held_out_for_a_prior_that_reads_the_one_before(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    given = sentences(250, seed=1)
    folders["text"].write_text("".join(f"{each}\n" for each in given))
    data = make(folders, tmp_path, "prior.model.context=true")
    assert data.held_out_text.read_text().splitlines() == given[:10] + given[100:110] + given[200:210]
    assert data.text.read_text().splitlines() == given[10:100] + given[110:200] + given[210:]
    folders["text"].write_text("".join(f"{each}\n" for each in given[:90]))
    with pytest.raises(UserError, match="contains only 90 sentences"):
        make(folders, tmp_path, "prior.model.context=true")


def test_a_second_call_does_nothing(folders: dict[str, Path], tmp_path: Path) -> None:
    data = make(folders, tmp_path)
    before = data.labeled.stat().st_mtime_ns
    assert make(folders, tmp_path).labeled.stat().st_mtime_ns == before


def test_validation_and_test_sets_of_the_users_own(
    folders: dict[str, Path], tmp_path: Path, tiny_corpus: Callable[..., Path]
) -> None:
    dev, clean, other = tiny_corpus(3, "dev"), tiny_corpus(2, "clean"), tiny_corpus(4, "other")
    data = make(folders, tmp_path, f"validation=[{dev}]", f"test.clean={clean}", f"test.model={other}")
    assert len(texts(data.labeled)) == 9
    assert [len(texts(path)) for path in data.validation.values()] == [3]
    assert {name: len(texts(path)) for name, path in data.test.items()} == {"clean": 2, "model": 4}
    assert data.notes == []


def test_cuts_of_any_origin_are_brought_into_shape(
    folders: dict[str, Path], tmp_path: Path, tiny_corpus: Callable[..., Path]
) -> None:
    """Unlabeled cuts may have no supervision at all, and transcripts may be in capitals."""
    cuts = read_cuts(tiny_corpus(4, "foreign"))
    bare, loud = tmp_path / "bare.jsonl.gz", tmp_path / "loud.jsonl.gz"
    CutSet.from_cuts(fastcopy(cut, supervisions=[]) for cut in cuts).to_file(bare)
    CutSet.from_cuts(
        fastcopy(
            cut, supervisions=[fastcopy(cut.supervisions[0], text=f"{cut.supervisions[0].text.upper()}!")]
        )
        for cut in cuts
    ).to_file(loud)
    data = make({**folders, "unlabeled": bare, "labeled": loud}, tmp_path, "validation_share=0.5")
    assert texts(data.unlabeled) == [None] * 4
    found = transcripts(data.labeled) + transcripts(data.validation["validation"])
    assert sorted(found) == sorted(cut.supervisions[0].text for cut in cuts)


def test_validation_sets_are_called_after_their_files(
    folders: dict[str, Path], tmp_path: Path, tiny_corpus: Callable[..., Path]
) -> None:
    dev, named = tiny_corpus(3, "dev"), tiny_corpus(2, "validation-other")
    data = make(folders, tmp_path, f"validation=[{dev},{named}]")
    assert {name: len(texts(path)) for name, path in data.validation.items()} == {
        "validation-dev": 3,
        "validation-other": 2,
    }
    assert all(path.parent == tmp_path / "run" / "data" for path in data.validation.values())


@pytest.mark.parametrize("other", ["dev", "validation-dev"])
def test_two_validation_sets_of_one_name_are_refused(
    folders: dict[str, Path], tmp_path: Path, other: str
) -> None:
    one, two = f"a/dev{SUFFIX}", f"b/{other}{SUFFIX}"
    with pytest.raises(
        UserError, match=rf"^{one} and {two} would have the same name, validation-dev: rename"
    ):
        make(folders, tmp_path, f"validation=[{one},{two}]")


def test_only_the_transcribed_part_of_the_labeled_speech_is_split(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A speaker without any transcript must not become the whole validation set."""
    for number in (0, 3, 6):
        (folders["labeled"] / "speaker0" / f"{number}.txt").unlink()
    for seed in range(3):
        data = make(folders, tmp_path / str(seed), f"training.seed={seed}")
        parts = data.labeled, data.validation["validation"]
        assert [len(texts(path)) for path in parts] == [3, 3]
        assert None not in texts(parts[0]) + texts(parts[1])
        assert "labeled: 3 of 9 utterances have no transcript and are left out" in capsys.readouterr().err


def spoken(path: Path, transcripts: list[str], tiny_corpus: Callable[..., Path]) -> Path:
    """Cuts with these transcripts, each by a speaker of its own."""
    cuts = read_cuts(tiny_corpus(len(transcripts), f"of-{path.name.removesuffix(SUFFIX)}"))
    CutSet.from_cuts(
        fastcopy(cut, supervisions=[fastcopy(cut.supervisions[0], text=text, speaker=cut.id)])
        for cut, text in zip(cuts, transcripts, strict=True)
    ).to_file(path)
    return path


def test_given_cuts_with_digits_are_skipped_and_told(
    folders: dict[str, Path],
    tmp_path: Path,
    tiny_corpus: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = spoken(tmp_path / f"mine{SUFFIX}", ["at nine", "at 5 pm", "at ten", " "], tiny_corpus)
    bad = read_cuts(given)[1].id
    data = make({**folders, "labeled": given}, tmp_path, "validation_share=0.5")
    assert sorted(transcripts(data.labeled) + transcripts(data.validation["validation"])) == [
        "at nine",
        "at ten",
    ]
    said = capsys.readouterr().err
    assert "1 of 4 skipped (digits in the transcript: 1), listed with reasons in" in said
    (line,) = (data.labeled.parent / "labeled.bad.tsv").read_text().splitlines()[1:]
    assert line.endswith(f"{bad}.wav\tits transcript 'at 5 pm' has digits: write numbers as words")


def test_too_many_given_cuts_with_digits_stop_the_run(
    folders: dict[str, Path], tmp_path: Path, tiny_corpus: Callable[..., Path]
) -> None:
    given = spoken(tmp_path / f"mine{SUFFIX}", ["at nine", "at 5", "at 6", "at ten"], tiny_corpus)
    with pytest.raises(
        UserError,
        match=r"2 of 4 .* \(digits in the transcript: 2\), .* raise .*audio\.max_bad_share\); .*'at 5' has digits",
    ):
        make({**folders, "labeled": given}, tmp_path)
    data = make({**folders, "labeled": given}, tmp_path, "audio.max_bad_share=0.5")
    assert len(texts(data.labeled)) == 1


def test_unlabeled_cuts_need_no_good_transcript(
    folders: dict[str, Path], tmp_path: Path, tiny_corpus: Callable[..., Path]
) -> None:
    given = spoken(tmp_path / f"mine{SUFFIX}", ["at 5", "at 6", "At nine."], tiny_corpus)
    assert texts(make({**folders, "unlabeled": given}, tmp_path).unlabeled) == [None, None, "at nine"]


@pytest.mark.parametrize("name", ["labeled", "unlabeled", "text"])
def test_what_is_not_given_is_asked_for(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    del folders[name]
    with pytest.raises(UserError, match=f"^{name} is not set: set {name}=PATH"):
        make(folders, tmp_path)


@pytest.mark.parametrize("name", ["labeled", "unlabeled", "text", "topline"])
def test_what_is_not_there_is_named(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=f"^{name}=.*nowhere: there is no such file or folder"):
        make({**folders, name: tmp_path / "nowhere"}, tmp_path)
    assert not (tmp_path / "run" / "data").exists()


@pytest.mark.parametrize("name", ["labeled", "topline", "test.clean"])
def test_speech_that_must_be_transcribed_and_is_not_is_refused_before_any_training(
    folders: dict[str, Path], tmp_path: Path, name: str
) -> None:
    wrong = folders["unlabeled"]
    with pytest.raises(
        UserError, match=rf"{name.replace('.', '/')}={wrong} contains no transcribed utterance"
    ):
        make({**folders, name: wrong}, tmp_path)


def test_too_little_text_is_refused_by_name(folders: dict[str, Path], tmp_path: Path) -> None:
    folders["text"].write_text("at nine\n")
    with pytest.raises(UserError, match=r"text\.txt contains only 1 sentences"):
        make(folders, tmp_path)


def test_an_empty_text_is_refused_by_name(folders: dict[str, Path], tmp_path: Path) -> None:
    folders["text"].write_text(" \n")
    with pytest.raises(UserError, match=r"text\.txt"):
        make(folders, tmp_path)


def test_overlap_of_the_text_with_the_transcripts_is_told(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders["text"].write_text("".join(f"{text}\n" for text in sentences(40, seed=1) + sentences(9, seed=8)))
    make(folders, tmp_path)
    assert "overlap: " in capsys.readouterr().err


def test_after_a_failure_the_mended_command_goes_through(folders: dict[str, Path], tmp_path: Path) -> None:
    broken = folders["labeled"] / "speaker0"
    for path in broken.glob("*.wav"):
        path.write_bytes(b"RIFF")
    with pytest.raises(UserError, match="3 of 9 files"):
        make(folders, tmp_path)
    data = make(folders, tmp_path, "audio.max_bad_share=0.5")
    record = json.loads((tmp_path / "run" / "data" / "stage.json").read_text())
    assert record["finished"]
    assert len(texts(data.labeled) + texts(data.validation["validation"])) == 6


def test_long_unlabeled_recordings_are_cut_when_the_settings_say_so(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    quiet = 0.001 * np.random.default_rng(0).normal(size=16_000)
    talk = np.concatenate([part for text in sentences(6) for part in (speak(text), quiet)])
    soundfile.write(folders["unlabeled"] / "speaker0/talk.wav", talk, 16_000)
    soundfile.write(folders["labeled"] / "speaker0/talk.wav", talk, 16_000)
    (folders["labeled"] / "speaker0/talk.txt").write_text("monday at nine")
    data = make(folders, tmp_path, "audio.segment=4")
    assert sum(cut.recording_id == "speaker0-talk" for cut in read_cuts(data.unlabeled)) == 6
    labeled = [*read_cuts(data.labeled), *read_cuts(data.validation["validation"])]
    assert sum(cut.recording_id == "speaker0-talk" for cut in labeled) == 1
    whole = make(folders, tmp_path)
    assert sum(cut.recording_id == "speaker0-talk" for cut in read_cuts(whole.unlabeled)) == 1

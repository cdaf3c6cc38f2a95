"""The synthetic corpus: its passages, its voices, its recordings and its files."""

import gzip
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lhotse import CutSet, MonoCut
from scipy.signal import lfilter
from tiny_run import command, files

from priormatch.data import SAMPLE_RATE
from priormatch.data.waveforms import read_samples
from priormatch.errors import UserError
from priormatch.prepare import spoken, synthetic_speech
from priormatch.prepare.synthetic import (
    PASSAGE,
    SyntheticOptions,
    cut_passages,
    deal,
    prepare_synthetic,
    survey,
)
from priormatch.prepare.synthetic_speech import (
    CASTS,
    CLEAN,
    JOURNAL,
    OTHER,
    Manner,
    Reading,
    Speaker,
    expected_seconds,
    read_aloud,
    speakers_of,
)

pytest.importorskip("espeakng_loader")

TINY = SyntheticOptions(0.005, 0.012, 0.005, 0.002, 0.002, text_validation=8, longest=8, seed=3)
TRANSCRIBED = sorted(
    {*CASTS, "unlab-clean-transcribed", "unlab-other-transcribed"} - {"unlab-clean", "unlab-other"}
)
MANIFESTS = sorted({*TRANSCRIBED, "unlab-clean", "unlab-other"})
ODD = ("too short", "ça ne se lit pas ici", "it was all the same", "on and on and on and on and on")
"""Lines that cannot be spoken; the third, since it occurs again."""


def some_text() -> list[str]:
    """Sentences of five words, all different; now and then one that cannot be spoken or occurs again."""
    who = ("a man", "the dog", "my aunt", "that boy", "no king")
    did = ("saw", "met", "left", "found", "drew", "heard")
    what = ("the sea", "an owl", "old jack", "two ships", "her coat", "some light", "green hills", "the end")
    lines = [" ".join(words) for words in product(who, did, what)]
    random.Random(0).shuffle(lines)
    for place, line in zip(range(25, len(lines), 30), ODD + ODD, strict=True):
        lines.insert(place, line)
    return lines


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "books.txt.gz"
    lines = [f"{line.capitalize()}.\n" for line in some_text()]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


@pytest.fixture(scope="module")
def made(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("synthetic") / "corpus"
    prepare_synthetic([text], out, TINY, jobs=2)
    return out


def load(out: Path, name: str) -> list[MonoCut]:
    return list(CutSet.from_file(out / f"{name}.jsonl.gz"))


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def text_of(cut: MonoCut) -> str:
    return cut.supervisions[0].text


def anywhere(contents: dict[str, bytes], out: Path) -> dict[str, bytes]:
    """The files of a corpus as if they were in no folder."""
    return {
        name: gzip.decompress(each).replace(str(out).encode(), b"") if name.endswith(".gz") else each
        for name, each in contents.items()
    }


# Passages


def test_only_plain_sentences_of_the_right_length_that_occur_once_are_spoken() -> None:
    sentences = [
        "one two three",
        "one two",
        "i don't know",
        "né en un an",
        "i don't know",
        "a b c d e",
        "a_b c d",
    ]
    assert survey(sentences, 3, 4).tolist() == [13, 0, 0, 0, 0, 0, 0]
    assert survey(sentences, 2, 5).tolist() == [13, 7, 0, 0, 0, 9, 0]
    assert survey([], 3, 4).tolist() == []


@given(st.lists(st.sampled_from([0, 7]), max_size=200), st.integers(0, 9))
def test_passages_are_runs_of_five_to_twenty_spoken_sentences(characters: list[int], seed: int) -> None:
    passages = cut_passages(np.array(characters, np.uint32), random.Random(seed))
    taken = [number for passage in passages for number in passage]
    assert len(taken) == len(set(taken))
    assert all(characters[number] for number in taken)
    assert all(PASSAGE[0] <= len(passage) <= PASSAGE[1] for passage in passages)
    left = "".join("x" if each and number not in taken else " " for number, each in enumerate(characters))
    assert max(map(len, left.split()), default=0) < PASSAGE[0]


def test_more_unlabeled_speech_leaves_the_other_parts_alone() -> None:
    characters = np.full(3000, 60, np.uint32)
    small, validation = deal(characters, SyntheticOptions(0.1, 0.1, 0.1, 0.1, 0.1, 50))
    large, same_validation = deal(characters, SyntheticOptions(0.1, 0.9, 0.4, 0.1, 0.1, 50))
    assert validation == same_validation
    assert [each for each in small if each.part != "unlab-other"] == [
        each for each in large if each in small and each.part != "unlab-other"
    ]
    assert len(large) > len(small)


def test_speakers_take_turns_and_a_part_ends_once_it_is_long_enough() -> None:
    turns, _ = deal(np.full(3000, 60, np.uint32), SyntheticOptions(0.5, 0.1, 0.1, 0.1, 0.1, 50))
    turns = [each for each in turns if each.part == "labeled"]
    speakers = speakers_of(CASTS["labeled"], 0)
    assert [each.speaker for each in turns] == (speakers * 3)[: len(turns)]
    seconds = [expected_seconds(60 * len(each.passage), len(each.passage), each.speaker) for each in turns]
    assert sum(seconds[:-1]) < 0.5 * 3600 <= sum(seconds)


def test_a_text_that_is_too_short_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"gives 0\.\d+ hours of speech .* 0\.5 hours are needed: .* 100 sentences"
    ):
        deal(np.full(100, 60, np.uint32), SyntheticOptions(0.1, 0.1, 0.1, 0.05, 0.05, 5))
    with pytest.raises(UserError, match="of its 0 sentences, 0 can be spoken"):
        deal(np.zeros(0, np.uint32), TINY)


# Voices


def test_dev_and_test_voices_and_their_variants_are_new() -> None:
    voices = {name: set(cast.voices) for name, cast in CASTS.items()}
    assert all(len(voices[name]) == len(CASTS[name].voices) for name in CASTS)
    training = voices["labeled"] | voices["unlab-clean"] | voices["unlab-other"]
    held_out = [voices[name] for name in ("dev-clean", "dev-other", "test-clean", "test-other")]
    assert len(training.union(*held_out)) == len(training) + sum(map(len, held_out))
    variants = {voice.split("+")[1] for voice in training}
    assert variants.isdisjoint(voice.split("+")[1] for each in held_out for voice in each)
    assert voices["labeled"] < voices["unlab-clean"]
    assert voices["unlab-other"].isdisjoint(voices["unlab-clean"])


def test_the_manner_of_a_part_goes_with_its_name() -> None:
    assert all(cast.manner == (OTHER if name.endswith("-other") else CLEAN) for name, cast in CASTS.items())


def test_every_voice_exists() -> None:
    voices = sorted({voice for cast in CASTS.values() for voice in cast.voices})
    accents = sorted({voice.split("+")[0] for voice in voices})
    heard = spoken.speak([("see doctor kent at four", voice, 175, 50) for voice in (*voices, *accents)])
    spectra = dict(
        zip((*voices, *accents), (np.abs(np.fft.rfft(each, 2**16)) for each in heard), strict=True)
    )
    for voice in voices:  # an unknown variant would sound like its bare accent
        bare, own = spectra[voice.split("+")[0]], spectra[voice]
        assert np.linalg.norm(own - bare) / np.linalg.norm(own + bare) > 0.1, voice


def test_a_voice_has_the_same_speakers_in_every_part() -> None:
    labeled, unlabeled = speakers_of(CASTS["labeled"], 5), speakers_of(CASTS["unlab-clean"], 5)
    assert set(labeled) < set(unlabeled)
    assert len({each.name for each in unlabeled}) == len(unlabeled) == 12 * 6
    assert {each.name for each in labeled} == {each.name for each in speakers_of(CASTS["labeled"], 6)}
    assert labeled != speakers_of(CASTS["labeled"], 6)
    for speaker in speakers_of(CASTS["dev-other"], 5):
        assert OTHER.rate[0] <= speaker.rate <= OTHER.rate[1]
        assert OTHER.pitch[0] <= speaker.pitch <= OTHER.pitch[1]


# Recordings


@pytest.mark.parametrize("darkness", [0.0, 0.5, 0.9])
def test_dark_noise_is_a_filter_of_first_order(darkness: float) -> None:
    noise = np.random.default_rng(0).standard_normal(5000, np.float32)
    for length in (1, 100, 5000):
        found = spoken.darkened(noise[:length], darkness)
        np.testing.assert_allclose(
            found, lfilter([1.0], [1.0, -darkness], noise[:length]), rtol=0, atol=1e-13
        )


def test_a_recording_is_speech_between_pauses_in_noise_at_the_asked_level() -> None:
    manner = Manner(rate=(170, 170), rate_stray=0, pitch=(50, 50), pitch_stray=0, snr=(20.0, 20.0))
    sentences = ("the old man saw the sea", "and he never came back to his house", "no")
    samples, spans = read_aloud(Reading("a", Speaker("s", "en-us+m3", 170, 50, manner), sentences, 0))
    assert samples.dtype == np.int16 and len(samples) % 160 == 0
    audible = np.zeros(len(samples), np.bool_)
    for start, length in spans:
        audible[start * 160 : (start + length) * 160] = True
    edges = [0, *(edge for start, length in spans for edge in (start, start + length)), len(samples) // 160]
    pauses = [after - before for before, after in list(pairwise(edges))[::2]]
    assert len(pauses) == 4 and all(30 <= pause <= 100 for pause in pauses)
    noise, speech_and_noise = (spoken.rms(samples[where] / 32767) for where in (~audible, audible))
    inside = speech_and_noise * np.sqrt(audible.sum() / (audible.sum() - len(spans) * 0.25 * SAMPLE_RATE))
    assert 20 * np.log10(inside / noise) == pytest.approx(20, abs=1.0)
    assert -29.5 < 20 * np.log10(inside) < -20.5


def test_the_length_of_a_recording_is_foreseen() -> None:
    speakers = speakers_of(CASTS["unlab-other"], 0)[:4] + speakers_of(CASTS["labeled"], 0)[:4]
    sentences = (
        "the furniture is lacquer and there are cool chintzes on the chairs and sofas",
        "when the curtain rises the room is empty and it is dim and mysterious",
        "the servant goes out",
    )
    letters = sum(map(len, sentences))
    for speaker in speakers:
        seconds = sum(length for _, length in read_aloud(Reading("a", speaker, sentences, 0))[1]) / 100
        assert seconds == pytest.approx(expected_seconds(letters, 3, speaker), rel=0.15), speaker


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is read aloud from now on."""
    names: list[str] = []
    original = synthetic_speech.read_aloud

    def counting(reading: Reading) -> object:
        names.append(reading.name)
        return original(reading)

    monkeypatch.setattr(synthetic_speech, "read_aloud", counting)
    return names


def killing(call: int) -> Callable[[Reading], object]:
    """`read_aloud` that is interrupted at the call of this number."""
    calls, original = count(1), synthetic_speech.read_aloud

    def read_aloud(reading: Reading) -> object:
        if next(calls) == call:
            raise KeyboardInterrupt
        return original(reading)

    return read_aloud


@pytest.fixture(scope="module")
def readings() -> list[Reading]:
    speaker = Speaker("s", "en-us+m3", 170, 50, CLEAN)
    return [Reading(name, speaker, (f"this is {name}",), 0) for name in ("anne", "bill", "carl")]


@pytest.fixture(scope="module")
def recorded(readings: list[Reading], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings with their journal."""
    folder = tmp_path_factory.mktemp("recorded")
    synthetic_speech.record(readings, folder, jobs=1)
    return folder


@pytest.mark.parametrize(
    ("damage", "again"),
    [
        ("none", []),
        ("journal gone", ["anne", "bill", "carl"]),
        ("journal cut off", ["carl"]),
        ("journal of others", ["anne"]),
        ("recording gone", ["anne"]),
        ("recording cut off", ["anne"]),
    ],
)
def test_recordings_that_are_not_whole_are_made_again(
    damage: str, again: list[str], readings: list[Reading], recorded: Path, read: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "again"
    shutil.copytree(recorded, folder)
    journal, anne = folder / JOURNAL, folder / "anne.wav"
    if damage == "journal gone":
        journal.unlink()
    elif damage == "journal cut off":
        journal.write_text(journal.read_text()[:-9])
    elif damage == "journal of others":
        journal.write_text(journal.read_text().replace(readings[0].digest, "0" * 16))
    elif damage == "recording gone":
        anne.unlink()
    elif damage == "recording cut off":
        anne.write_bytes(anne.read_bytes()[:-320])
    synthetic_speech.record(readings, folder, jobs=1)
    assert sorted(read) == again
    ours, theirs = files(folder), files(recorded)
    assert sorted(ours.pop(JOURNAL).splitlines()) == sorted(theirs.pop(JOURNAL).splitlines())
    assert ours == theirs


def test_a_digest_changes_with_all_that_is_heard(readings: list[Reading]) -> None:
    first = readings[0]
    changes = (
        {"seed": 1},
        {"sentences": ("this is ann",)},
        {"name": "ann"},
        {"speaker": replace(first.speaker, pitch=51)},
        {"speaker": replace(first.speaker, manner=OTHER)},
    )
    digests = [first.digest, *(replace(first, **change).digest for change in changes)]
    assert len(set(digests)) == len(digests)


# The corpus


def test_all_files_are_there_and_nothing_else(made: Path) -> None:
    manifests = {f"{name}.jsonl.gz" for name in MANIFESTS}
    assert {path.name for path in made.iterdir()} == {
        "audio",
        "text.txt",
        "text-validation.txt",
        "synthetic.json",
    } | (manifests)
    names = {cut.recording.id for name in CASTS for cut in load(made, name)}
    assert {path.name for path in (made / "audio").iterdir()} == {f"{name}.wav" for name in names}


def test_everything_is_spoken_or_left_to_the_prior(made: Path) -> None:
    spoken = [text_of(cut) for name in TRANSCRIBED for cut in load(made, name)]
    prior, validation = lines_of(made / "text.txt"), lines_of(made / "text-validation.txt")
    source = some_text()
    assert sorted(spoken + prior + validation) == sorted(source)
    assert len(set(spoken + validation)) == len(spoken + validation)
    assert set(prior).isdisjoint(spoken + validation)
    assert [line for line in source if line in set(prior)] == prior
    assert 8 <= len(validation) < 8 + PASSAGE[1]
    assert set(ODD) <= set(prior)


def test_a_recording_reads_consecutive_lines_in_the_order_of_its_cuts(made: Path) -> None:
    source = some_text()
    for name in TRANSCRIBED:
        cuts = load(made, name)
        assert [cut.id for cut in cuts] == sorted(cut.id for cut in cuts)
        for recording in {cut.recording.id for cut in cuts}:
            inside = [cut for cut in cuts if cut.recording.id == recording]
            first = source.index(text_of(inside[0]))
            assert [text_of(cut) for cut in inside] == source[first : first + len(inside)]
            assert PASSAGE[0] <= len(inside) <= PASSAGE[1]
            assert len({cut.supervisions[0].speaker for cut in inside}) == 1
            assert all(one.end + 0.29 < two.start for one, two in pairwise(inside))
            assert all(cut.id.startswith(f"{recording}-") for cut in inside)


def test_cuts_hold_audible_speech_of_the_speakers_of_their_part(made: Path) -> None:
    for name, cast in CASTS.items():
        names = {speaker.name for speaker in speakers_of(cast, TINY.seed)}
        for cut in load(made, name):
            samples = read_samples(cut)
            assert samples.dtype == np.int16 and samples.shape == (round(cut.duration * SAMPLE_RATE),)
            assert 0.01 < spoken.rms(samples / 32768) < 0.2
            assert cut.supervisions[0].speaker in names
            assert (round(cut.start, 2), round(cut.duration, 2)) == (cut.start, cut.duration)


def test_unlabeled_cuts_differ_from_the_transcribed_ones_in_text_alone(made: Path) -> None:
    for name in ("unlab-clean", "unlab-other"):
        transcribed = [cut.to_dict() for cut in load(made, f"{name}-transcribed")]
        for cut in transcribed:
            assert cut["supervisions"][0].pop("text")
        assert transcribed == [cut.to_dict() for cut in load(made, name)]


def test_the_description_tells_what_was_made(made: Path) -> None:
    told = json.loads((made / "synthetic.json").read_text())
    assert told["options"]["unlab_clean"] == 0.012 and told["options"]["seed"] == 3
    for name, part in told["parts"].items():
        cuts = load(made, name)
        assert part["hours"] == pytest.approx(sum(cut.duration for cut in cuts) / 3600, abs=1e-4)
        assert (part["utterances"], part["recordings"]) == (
            len(cuts),
            len({cut.recording.id for cut in cuts}),
        )
        assert part["speakers"] == sorted({cut.supervisions[0].speaker for cut in cuts})
        assert {told["speakers"][speaker]["voice"] for speaker in part["speakers"]} <= set(CASTS[name].voices)
    assert told["parts"].keys() == CASTS.keys()


def test_the_corpus_depends_on_text_and_options_alone(made: Path, text: Path, tmp_path: Path) -> None:
    prepare_synthetic([text], tmp_path / "again", TINY, jobs=1)
    assert anywhere(files(tmp_path / "again"), tmp_path / "again") == anywhere(files(made), made)


def test_a_killed_run_is_gone_on_with(made: Path, text: Path, tmp_path: Path, read: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(synthetic_speech, "read_aloud", killing(3))
        prepare_synthetic([text], tmp_path, TINY, jobs=1)
    read.clear()
    prepare_synthetic([text], tmp_path, TINY, jobs=1)
    assert len(read) == len(list((made / "audio").iterdir())) - 2
    assert anywhere(files(tmp_path), tmp_path) == anywhere(files(made), made)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"labeled": 0}, "labeled: 0 hours"),
        ({"dev": float("nan")}, "dev-clean: nan hours"),
        ({"shortest": 9, "longest": 8}, "9 to 8 words"),
        ({"text_validation": 0}, "text_validation is 0"),
        ({"seed": -1}, "seed of the corpus is -1"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        SyntheticOptions(**options)


def test_a_place_that_cannot_be_written_to(text: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot write to .*file/out"):
        prepare_synthetic([text], tmp_path / "file" / "out", TINY)


def test_a_missing_espeak_is_named_with_the_way_out(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(UserError, match=r"pip install \"priormatch\[demo\]\""):
        prepare_synthetic([text], tmp_path / "out", TINY)
    assert not (tmp_path / "out").exists()


def test_the_verb(made: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    sizes = {"labeled": 0.005, "unlab-clean": 0.012, "unlab-other": 0.005, "dev": 0.002, "test": 0.002}
    options = {**sizes, "text-validation": 8, "longest": 8, "seed": 3, "jobs": 1}
    words = ["prepare", "synthetic", "--text", text, "--out", out]
    words += [word for name, value in options.items() for word in (f"--{name}", value)]
    assert command(*words) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed] == MANIFESTS
    assert "none transcribed" in printed[MANIFESTS.index("unlab-other")]
    before = files(out)
    assert anywhere(files(made), made).items() <= anywhere(before, out).items()
    assert command(*words) == 0
    assert "finished before, reused" in capsys.readouterr().err
    assert command(*words, "--seed", 4) == 2
    assert "options.seed" in capsys.readouterr().err
    assert files(out) == before


def test_the_verb_names_what_is_missing_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert command("prepare", "synthetic", "--text", tmp_path / "nowhere", "--out", out) == 2
    assert "nowhere" in capsys.readouterr().err
    assert command("prepare", "synthetic", "--text", tmp_path, "--out", out, "--labeled", 0) == 2
    assert "contains no text" in capsys.readouterr().err
    assert not out.exists()


def test_the_verb_explains_itself_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("prepare", "synthetic", "--help") == 0
    assert "Example: priormatch prepare synthetic" in " ".join(capsys.readouterr().out.split())

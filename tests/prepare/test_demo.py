"""The demo corpus: its grammar, its speech and its files."""

import calendar
import datetime
import os
import random
import re
import shutil
from itertools import combinations
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lhotse import CutSet, MonoCut

from priormatch.errors import UserError
from priormatch.prepare import demo, spoken
from priormatch.prepare.demo import DemoSizes, prepare_demo
from priormatch.prepare.demo_grammar import ORDINALS, PLACES, WEEKDAYS, _complete, draw_sentences

pytest.importorskip("espeakng_loader")

TINY = DemoSizes(labeled=4, unlabeled=16, validation=2, test=3, text=40, text_validation=5)
CUTS = (*demo.CUTS, demo.TRANSCRIBED)
OUTPUTS = {"audio", "demo.json", "text.txt", "text-validation.txt", *(f"{name}.jsonl.gz" for name in CUTS)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "corpus"
    prepare_demo(out, seed=3, sizes=TINY, processes=2)
    return out


def load(out: Path, name: str) -> list[MonoCut]:
    return list(CutSet.from_file(out / f"{name}.jsonl.gz"))


def contents(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_sentences_are_distinct_normalized_and_short(seed: int) -> None:
    sentences = draw_sentences(300, random.Random(seed))
    assert len(set(sentences)) == 300
    for sentence in sentences:
        assert re.fullmatch(r"[a-z']+( [a-z']+){4,16}", sentence), sentence


def test_sentences_keep_to_their_place_and_to_the_calendar() -> None:
    months = {name.lower(): number for number, name in enumerate(calendar.month_name) if name}
    open_days = {who: set(place["weekday"]) for place in PLACES for who in place["who"]}
    dates: set[tuple[str, ...]] = set()
    for sentence in draw_sentences(5000, random.Random(0)):
        if match := re.search(rf"({'|'.join(WEEKDAYS)}) ({'|'.join(months)}) ([a-z]+)", sentence):
            dates.add(match.groups())
            day = datetime.date(2026, months[match[2]], 1 + ORDINALS.index(match[3]))
            assert WEEKDAYS[day.weekday()] == match[1], sentence
            for who in (who for who in open_days if f"{who} " in sentence):
                assert match[1] in open_days[who], sentence
    assert {month for _, month, _ in dates} == set(months)


def test_any_two_words_of_a_date_tell_the_third() -> None:
    for place in map(_complete, PLACES):
        dates = [date.split() for date in place["date"]]
        for left_out in range(3):
            assert len({tuple(date[:left_out] + date[left_out + 1 :]) for date in dates}) == len(dates) == 21


def test_what_is_drawn_first_is_like_what_is_drawn_last() -> None:
    """Small templates run dry; the prior's text must still hold what is spoken, and as often."""
    sentences = draw_sentences(12_000, random.Random(0))
    for words in ({"takes", "charge", "costs", "owes"}, {"please"}, {"wednesday"}):
        first, last = (
            sum(not words.isdisjoint(each.split()) for each in part)
            for part in (sentences[:6000], sentences[6000:])
        )
        assert 0.7 < (first + 1) / (last + 1) < 1.4, (words, first, last)


def test_an_exhausted_grammar_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("priormatch.prepare.demo_grammar.TEMPLATES", ("{role} {price}",))
    assert len(draw_sentences(len(PLACES), random.Random(0))) == len(PLACES)
    with pytest.raises(UserError, match="smaller sizes"):
        draw_sentences(len(PLACES) + 1, random.Random(0))


def test_every_voice_exists_and_differs_from_the_others() -> None:
    voices = (*demo.SEEN_VOICES, *demo.UNSEEN_VOICES)
    assert len(set(voices)) == len(voices)
    accents = {voice.split("+")[0] for voice in voices}
    requests = [("see doctor kent at four", voice, 175, 50) for voice in (*voices, *sorted(accents))]
    recorded = spoken.speak(requests)  # an unknown variant would sound like its bare accent
    spectra = [np.abs(np.fft.rfft(samples, 2**17)) for samples in recorded]
    for (one, first), (two, second) in combinations(zip(requests, spectra, strict=True), 2):
        difference = np.linalg.norm(first - second) / np.linalg.norm(first + second)
        assert difference > 0.1, (one, two)


def test_an_unknown_accent_is_an_error() -> None:
    with pytest.raises(UserError, match="no voice 'en-nowhere"):
        spoken.speak([("hello", "en-nowhere+m1", 175, 50)])


def test_noise_is_at_the_asked_level() -> None:
    tone = 0.5 * np.sin(np.arange(16_000) * 0.1).astype(np.float32)
    conditions = demo.Conditions((175, 175), (50, 50), snr=(20, 20), level=(-20, -20), pause=(0.5, 0.5))
    samples = demo._in_conditions(tone, conditions, np.random.default_rng(0)) / 32767
    noise, tone_and_noise = samples[:8000], samples[8000:24000]
    assert len(samples) == 32000
    assert 20 * np.log10(spoken.rms(noise)) == pytest.approx(-40, abs=0.5)
    assert 20 * np.log10(spoken.rms(tone_and_noise)) == pytest.approx(-20, abs=0.2)


def test_loud_speech_is_scaled_rather_than_clipped() -> None:
    click = np.zeros(16_000, np.float32)
    click[::2000] = 1.0
    conditions = demo.Conditions((175, 175), (50, 50), snr=(30, 30), level=(-5, -5))
    samples = demo._in_conditions(click, conditions, np.random.default_rng(0))
    assert np.abs(samples).max() == round(0.98 * 32767)


def test_all_files_are_there_and_nothing_else(made: Path) -> None:
    assert {path.name for path in made.iterdir()} == OUTPUTS
    assert [len(load(made, name)) for name in CUTS] == [4, 16, 2, 2, 3, 3, 16]


def test_cuts_hold_audible_speech_of_the_right_voices(made: Path) -> None:
    for name in CUTS:
        seen = name == "labeled" or name.endswith("-seen")
        for cut in load(made, name):
            audio = cut.load_audio()
            assert audio.shape == (1, cut.num_samples)
            assert cut.sampling_rate == 16000 and 1.0 < cut.duration < 8.0
            assert 0.01 < spoken.rms(audio) < 0.2 and np.abs(audio).max() < 0.99
            (supervision,) = cut.supervisions
            assert supervision.speaker in (demo.SEEN_VOICES if seen else demo.UNSEEN_VOICES)
            assert (supervision.text is None) == (name == "unlabeled")
    assert len({cut.supervisions[0].speaker for cut in load(made, "unlabeled")}) == len(demo.UNSEEN_VOICES)


def test_cuts_tile_their_recording(made: Path) -> None:
    cuts = [cut for cut in load(made, "labeled") if cut.supervisions[0].speaker == demo.SEEN_VOICES[0]]
    whole = cuts[0].recording.load_audio()
    assert len(cuts) == 2
    assert np.array_equal(np.concatenate([cut.load_audio() for cut in cuts], axis=1), whole)


def test_no_sentence_occurs_twice(made: Path) -> None:
    sentences = [cut.supervisions[0].text for name in CUTS if name != "unlabeled" for cut in load(made, name)]
    for name in demo.TEXTS:
        sentences += (made / name).read_text(encoding="utf-8").splitlines()
    assert len(sentences) == len(set(sentences)) == 4 + 16 + 2 * 2 + 2 * 3 + 40 + 5


def test_the_unlabeled_cuts_differ_from_the_transcribed_ones_in_text_alone(made: Path) -> None:
    without = [cut.to_dict() for cut in load(made, "unlabeled")]
    transcribed = [cut.to_dict() for cut in load(made, "unlabeled-transcribed")]
    for cut in transcribed:
        assert cut["supervisions"][0].pop("text")
    assert transcribed == without


def test_the_bytes_depend_on_the_seed_alone(made: Path) -> None:
    before = contents(made)
    (made / "demo.json").unlink()
    (made / demo.UNFINISHED).mkdir()
    prepare_demo(made, seed=3, sizes=TINY, processes=1)
    assert contents(made) == before


def test_another_seed_is_another_corpus(made: Path, tmp_path: Path) -> None:
    prepare_demo(tmp_path, seed=4, sizes=TINY)
    ours, theirs = contents(made), contents(tmp_path)
    assert ours.keys() == theirs.keys()
    assert not [name for name in ours if ours[name] == theirs[name]]


def test_a_finished_corpus_is_left_alone(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_make", lambda *_: pytest.fail("made again"))
    before = contents(made)
    prepare_demo(made, seed=3, sizes=TINY)
    assert contents(made) == before


@pytest.mark.parametrize("stop", [(demo, "_record_voice"), (spoken, "write_cuts"), (os, "replace")])
def test_a_stopped_run_is_completed(stop: tuple[ModuleType, str], made: Path, tmp_path: Path) -> None:
    calls = 0

    def stopped(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    original = getattr(*stop)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(*stop, stopped)
        prepare_demo(tmp_path, seed=3, sizes=TINY)
    assert not (tmp_path / "demo.json").exists()
    prepare_demo(tmp_path, seed=3, sizes=TINY)
    assert {path.name for path in tmp_path.iterdir()} == OUTPUTS
    audio = {name: data for name, data in contents(tmp_path).items() if name.startswith("audio")}
    assert audio.items() <= contents(made).items()


def test_a_moved_corpus_gets_new_cuts(made: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(made, moved)
    prepare_demo(moved, seed=3, sizes=TINY)
    assert load(moved, "test-seen")[0].recording.sources[0].source.startswith(str(moved))


def test_other_settings_are_refused(made: Path) -> None:
    before = contents(made)
    with pytest.raises(UserError, match="seed is 3, not 5"):
        prepare_demo(made, seed=5, sizes=TINY)
    with pytest.raises(UserError, match="whose sizes is"):
        prepare_demo(made, seed=3)
    assert contents(made) == before


@pytest.mark.parametrize("damage", ["{", "[]", "\0"])
def test_damaged_settings_are_refused(damage: str, tmp_path: Path) -> None:
    (tmp_path / "demo.json").write_text(damage)
    with pytest.raises(UserError, match=r"demo\.json is damaged"):
        prepare_demo(tmp_path, sizes=TINY)


def test_files_of_others_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("mine")
    with pytest.raises(UserError, match=r"text\.txt exists but was not made"):
        prepare_demo(tmp_path, sizes=TINY)
    assert contents(tmp_path) == {"text.txt": b"mine"}


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="cannot write the demo corpus"):
        prepare_demo(tmp_path / "file", sizes=TINY)


def test_impossible_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="seed of the demo corpus is -1"):
        prepare_demo(tmp_path / "out", seed=-1, sizes=TINY)
    with pytest.raises(UserError, match="size test of the demo corpus is 0"):
        prepare_demo(tmp_path / "out", sizes=DemoSizes(test=0))
    assert not (tmp_path / "out").exists()


def test_a_missing_espeak_is_named_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(UserError, match=r"pip install \"priormatch\[demo\]\""):
        prepare_demo(tmp_path / "out", sizes=TINY)
    assert not (tmp_path / "out").exists()

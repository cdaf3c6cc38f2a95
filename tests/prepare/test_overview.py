"""What was prepared is told in a few lines."""

from lhotse import Recording

from priormatch.config import AudioSettings
from priormatch.data.manifest import utterance
from priormatch.data.normalizer import ENGLISH, Normalizer
from priormatch.prepare.overview import letters, overview


def cut(name, seconds, text=None, speaker=None):
    recording = Recording(name, [], 16_000, round(16_000 * seconds), seconds)
    return utterance(name, recording, text, speaker)


def test_overview():
    cuts = [cut(f"u{i}", 1 + i, "guten morgen" if i else None, "ann" if i % 2 else None) for i in range(7)]
    said = overview([*cuts, cut("short", 0.05), cut("long", 40)], ENGLISH, AudioSettings())
    assert said.splitlines() == [
        "9 utterances, 1m08s, 1 speaker, 6 transcribed",
        "lengths: shortest 0.05 s, median 4.00 s, longest 40.00 s",
        "training will skip 1 shorter than 0.1 s (audio.shortest) and 1 longer than 36 s (audio.longest)",
        "for example:",
        "  u0, 1.0 s, speaker unknown: no transcript",
        "  u3, 4.0 s, ann: guten morgen",
        "  u6, 7.0 s, speaker unknown: guten morgen",
    ]


def test_fewer_than_three():
    assert overview([cut("u", 1)], ENGLISH, AudioSettings()).count("no transcript") == 1


def test_long_samples_are_cut():
    (line,) = overview([cut("u", 1, "hello " * 50, "x" * 128)], ENGLISH, AudioSettings()).splitlines()[-1:]
    assert line == f"  u, 1.0 s, {'x' * 23}…: {'hello ' * 16}hel…"


def test_what_is_not_cut_because_it_is_transcribed_is_told():
    cuts = [cut("a", 30, "hello"), cut("b", 30), cut("c", 10, "you")]
    said = overview(cuts, ENGLISH, AudioSettings(segment=20))
    assert (
        "not cut, though longer than 20 s: 1 transcribed utterance, as the times of the words are unknown"
        in said
    )
    assert "not cut" not in overview(cuts, ENGLISH, AudioSettings())
    assert "not cut" not in overview(cuts[1:], ENGLISH, AudioSettings(segment=20))


def test_letters_outside_the_alphabet_are_counted_with_an_example():
    texts = ["the café is a café", "naïve", *["plain words that are many"] * 100]
    assert letters(texts, ENGLISH) == ["not in the alphabet (english): é 2 (café), ï 1 (naïve)"]
    assert letters(["plain"], ENGLISH) == letters([], ENGLISH) == []


def test_english_that_is_none_is_doubted():
    assert letters(["größe"], ENGLISH) == [
        "not in the alphabet (english): ß 1 (größe), ö 1 (größe)",
        "is that English? if not, give --normalizer unicode (in a run language.normalizer=unicode)",
    ]


def test_a_derived_alphabet_is_shown_with_its_seldom_letters():
    texts = ["große"] * 4000 + ["el niño"]
    assert letters(texts, Normalizer("unicode")) == [
        "letters (unicode, 9): e g i l n o r ß ñ",
        "rare: i 1 (niño), l 1 (el), n 1 (niño), ñ 1 (niño)",
    ]


def test_long_lists_are_cut():
    texts = ["x" * 10_000 + " " + "".join(map(chr, range(0x430, 0x450)))]
    (line, *_) = letters(texts, ENGLISH)
    assert line.endswith(") and 20 more")


def test_marks_and_invisible_letters_can_be_seen():
    (line,) = letters(["नमस्ते می\u200cخ"], Normalizer("unicode"))
    assert " \N{DOTTED CIRCLE}\N{DEVANAGARI SIGN VIRAMA} " in line
    assert " U+200C" in line

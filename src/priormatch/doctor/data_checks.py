"""Check whether a recipe's speech and text are usable and match each other."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from priormatch.config import AudioSettings, Settings
from priormatch.data.manifest import named_sets
from priormatch.data.normalizer import ENGLISH, Normalizer, kind_for, normalizer_of
from priormatch.data.overlap import NGRAM, TranscriptOverlap
from priormatch.data.text import Unspoken
from priormatch.doctor.amounts import amount_findings
from priormatch.doctor.finding import Finding
from priormatch.errors import UserError
from priormatch.prepare.look import Speech, decode_some, letters, look_at_speech, look_at_text

DECODED = 20  # utterances per set
LITTLE_TEXT = 100_000  # words
MANY_FOREIGN, SOME_FOREIGN = 0.05, 0.001  # shares of letters that never occur on the other side
MUCH_SHARED = 1.0  # percent of the 8-word runs
SHOWN_LETTERS = 20
FEW_LETTERS = 5000  # below this, rare letters may be missing by chance


def findings(settings: Settings) -> Iterator[Finding]:
    """Run all checks of a recipe's data."""
    if settings.corpus == "demo":
        yield from demo_findings()
        return
    normalizer = normalizer_of(settings.language)
    speech: dict[str, Speech] = {}
    for name, path in speech_paths(settings).items():
        try:
            speech[name] = look_at_speech(require(name, path))
        except UserError as error:
            yield Finding("problem", f"{name}: {error}")
            continue
        yield from speech_findings(name, speech[name], settings)
    if "labeled" in speech:
        yield from amount_findings(speech["labeled"], speech.get("unlabeled"))
    spoken = {name: normalized(found.transcripts(), normalizer) for name, found in speech.items()}
    try:
        sentences = look_at_text(require("text", settings.text), normalizer)
    except UserError as error:
        yield Finding("problem", f"text: {error}")
        return
    yield text_finding(sentences)
    yield from language_findings({**spoken, "text": sentences}, normalizer)
    if spoken.get("labeled"):
        yield from letter_findings(spoken["labeled"], sentences, settings.tokenizer.source)
    known = {name: texts for name, texts in spoken.items() if name != "labeled" and texts}
    yield from overlap_findings(known, sentences, normalizer)


def demo_findings() -> Iterator[Finding]:
    """Check whether the demo corpus can be synthesized."""
    from importlib.util import find_spec

    if find_spec("espeakng_loader") is None:
        yield Finding("problem", "corpus=demo needs espeak-ng", "run `pip install 'priormatch[demo]'`")
    else:
        yield Finding("ok", "espeak-ng, which synthesizes the demo corpus, is installed")


def speech_paths(settings: Settings) -> dict[str, str]:
    """Return the path of every setting that names speech."""
    return {
        "labeled": settings.labeled,
        "unlabeled": settings.unlabeled,
        **{
            name: str(path)
            for name, path in named_sets(list(map(Path, settings.validation)), "validation").items()
        },
        **{f"test.{name}": path for name, path in settings.test.items()},
        **({"topline": settings.topline} if settings.topline else {}),
    }


def require(name: str, path: str) -> Path:
    """Return the path of a required setting; raise `UserError` if it is not set."""
    if not path:
        raise UserError(f"it is not set; give {name}=PATH")
    return Path(path)


def speech_findings(name: str, speech: Speech, settings: Settings) -> Iterator[Finding]:
    """Report the amount of speech, and check its audio, durations and transcripts."""
    yield Finding("ok", f"{name}: {speech}")
    yield from decoding_findings(name, *decode_some(speech, DECODED), settings.audio.max_bad_share)
    if name == "unlabeled":
        longest = settings.audio.segment or math.inf  # a run cuts unlabeled audio to this
        yield from duration_findings(name, [min(each, longest) for each in speech.durations], settings.audio)
        return
    yield from duration_findings(name, speech.durations, settings.audio)
    normalizer = normalizer_of(settings.language)
    yield from transcript_findings(name, speech.transcripts(), settings.audio.max_bad_share, normalizer)
    if name == "labeled" and not settings.validation and speech.speakers < 2:
        advice = (
            "put each speaker's audio into a folder, name speakers in the table, or give validation=[CUTS]"
        )
        yield Finding(
            "warning", "labeled: without speaker names, validation shares speakers with training", advice
        )


def decoding_findings(
    name: str, tried: int, bad: Sequence[tuple[Path, str]], most: float
) -> Iterator[Finding]:
    """Report the result of decoding a sample of the files."""
    if not bad:
        yield Finding("ok", f"{name}: {tried} files decoded, all complete")
        return
    file, reason = bad[0]
    many = len(bad) > max(1, most * tried) or len(bad) == tried
    what = f"{name}: {len(bad)} of {tried} files cannot be used, such as {file} ({reason})"
    advice = "repair or remove them, or raise audio.max_bad_share" if many else "a run skips such files"
    yield Finding("problem" if many else "warning", what, advice)


def duration_findings(name: str, durations: Sequence[float], audio: AudioSettings) -> Iterator[Finding]:
    """Count the utterances that a run would skip because of their length."""
    outside = [seconds for seconds in durations if not audio.shortest <= seconds <= audio.longest]
    if outside:
        what = (
            f"{name}: {len(outside)} of {len(durations)} utterances would be skipped: they are shorter than"
            f" {audio.shortest:g} s or longer than {audio.longest:g} s; the longest has {max(outside):.1f} s"
        )
        all_of_it = len(outside) == len(durations)
        yield Finding(
            "problem" if all_of_it else "warning",
            what,
            "cut them at pauses, or raise audio.longest if memory allows",
        )


def transcript_findings(
    name: str, transcripts: Sequence[str], most: float, normalizer: Normalizer = ENGLISH
) -> Iterator[Finding]:
    """Check whether transcripts give the words spoken."""
    if not transcripts:
        yield Finding(
            "problem", f"{name}: no transcripts", "put NAME.txt beside NAME.wav, or give a table or cuts"
        )
        return
    reasons = [reason for each in transcripts if (reason := why_unusable(each, normalizer))]
    if reasons:
        what = (
            f"{name}: {len(reasons)} of {len(transcripts)} transcripts cannot be used, such as: {reasons[0]}"
        )
        many = len(reasons) > max(1, most * len(transcripts))
        yield Finding("problem" if many else "warning", what, "correct them, or leave them out")


def why_unusable(transcript: str, normalizer: Normalizer) -> str | None:
    """Return why a transcript cannot be used for training, or None if it can."""
    try:
        normalizer.spoken(transcript)
    except Unspoken as error:
        return str(error)
    return None


def normalized(transcripts: Sequence[str], normalizer: Normalizer) -> list[str]:
    """Normalize transcripts as training does, without the unusable ones."""
    return [normalizer(each) for each in transcripts if why_unusable(each, normalizer) is None]


def language_findings(written: Mapping[str, Sequence[str]], normalizer: Normalizer) -> Iterator[Finding]:
    """Warn if text normalized as English looks like another language."""
    for name, sentences in written.items():
        kind = kind_for(letters(sentences))
        if normalizer.kind == "english" and kind != "english":
            what = f"{name}: many of its letters are not English, but language.normalizer is english"
            yield Finding("warning", what, f"for another language set language.normalizer={kind}")


def text_finding(sentences: Sequence[str]) -> Finding:
    """Report the amount of text for the prior."""
    words = sum(len(sentence.split()) for sentence in sentences)
    what = f"text: {words:,} words checked, in {len(sentences):,} lines"
    if words < LITTLE_TEXT:
        return Finding("warning", what, "a prior needs more, millions if possible: add text of the domain")
    return Finding("ok", what)


def letter_findings(transcripts: Sequence[str], sentences: Sequence[str], source: str) -> Iterator[Finding]:
    """Check whether transcripts and text use the same letters, since pieces are made of one of the two."""
    sides = {"transcripts": letters(transcripts), "text": letters(sentences)}
    agreed = True
    for one, other in (("transcripts", "text"), ("text", "transcripts")):
        foreign = {letter: count for letter, count in sides[one].items() if letter not in sides[other]}
        share = sum(foreign.values()) / max(sides[one].total(), 1)
        if share < SOME_FOREIGN:
            continue
        agreed = False
        if sides[other].total() < FEW_LETTERS:
            what = (
                f"{sides[other].total():,} letters in the {other} are too few to check whether {one} and {other} use"
                " the same letters"
            )
            yield Finding("warning", what, f"add {other}")
            continue
        commonest = sorted(foreign, key=lambda letter: -foreign[letter])[:SHOWN_LETTERS]
        lost = f", and tokenizer.source={source} gives them no piece" if source == other else ""
        never = f"{100 * share:.1f} % of the letters in the {one} never occur in the {other}{lost}"
        advice = f"write both with the same letters (accents, symbols, language); if these are just rare, add {other}"
        yield Finding(
            "problem" if share > MANY_FOREIGN else "warning", f"{never}: {' '.join(commonest)}", advice
        )
    if agreed:
        yield Finding("ok", f"transcripts and text use the same {len(sides['transcripts'])} letters")


def overlap_findings(
    spoken: Mapping[str, Sequence[str]], sentences: Sequence[str], normalizer: Normalizer = ENGLISH
) -> Iterator[Finding]:
    """Check whether the prior's text already contains the transcripts of speech to be recognized."""
    for name, transcripts in spoken.items():
        overlap = TranscriptOverlap(transcripts, normalizer)
        for _ in overlap.watch(sentences):
            pass
        what = (
            f"{name}: {overlap.shared_ngrams:.1f} % of the transcripts' runs of {NGRAM} words occur in the text,"
            f" and {len(overlap.seen_transcripts)} of {len(overlap.transcripts)} transcripts are lines of it"
        )
        if overlap.shared_ngrams > MUCH_SHARED:
            advice = "the prior would know the answers: drop them with `priormatch prepare text --cuts --drop-overlap`"
            yield Finding("warning", what, advice)
        else:
            yield Finding("ok", what)

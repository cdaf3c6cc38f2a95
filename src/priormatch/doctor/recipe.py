"""Check a recipe: settings that fit each other, usable speech and text, complete models."""

import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from priormatch.config import AudioSettings, PriorSettings, Settings
from priormatch.data.manifest import named_sets
from priormatch.data.normalizer import ENGLISH, Normalizer, kind_for, normalizer_of
from priormatch.data.overlap import NGRAM, TranscriptOverlap
from priormatch.data.text import Unspoken
from priormatch.data.tokenizer import MODEL_FILE, Tokenizer
from priormatch.doctor.findings import Finding, Status
from priormatch.errors import UserError
from priormatch.prepare.overview import Speech, decode_some, letters, sample_text, survey_speech
from priormatch.progress import count_text, duration_text
from priormatch.recognizers.folder import WEIGHTS
from priormatch.recognizers.frame_rate import frame_seconds_of, way_to_fit
from priormatch.recognizers.hf_prior import HuggingFacePrior
from priormatch.recognizers.hf_recognizer import HuggingFaceRecognizer
from priormatch.recognizers.load import load_model, load_prior, load_recognizer
from priormatch.recognizers.ngram_prior import NgramPrior
from priormatch.recognizers.prior import ConvPrior
from priormatch.runs.verdict import LITTLE_VALIDATION, Size, too_little_validation

DECODED = 20  # utterances per set
MOST_NAMED = 10  # unusable files
LITTLE_SPEECH, HARDLY_ANY_SPEECH = 3600.0, 600.0  # seconds, transcribed
LITTLE_TEXT = 100_000  # words
MANY_FOREIGN, SOME_FOREIGN = 0.05, 0.001  # shares of letters that never occur on the other side
FEW_FRAMES = 0.75  # characters per frame; speech that is faster than the average does not fit
MUCH_SHARED = 1.0  # percent of the 8-word runs
SHOWN_LETTERS = 20
FEW_LETTERS = 5000  # below this, rare letters may be missing by chance
MOSTLY_FOREIGN, HARDLY_ANY_LETTERS = 0.5, 100
"""A share of letters that are not missing on the other side by chance, if that has at least so many letters."""
MORE_SPEECH = (
    "a small grammar such as the demo's needs a quarter of an hour, free speech many hours: transcribe more, or see"
    " docs/start-from.md"
)


def settings_findings(settings: Settings) -> Iterator[Finding]:
    """Warn about settings that are valid but likely to fail together."""
    augment, mels = settings.training.augment, settings.model.n_mels
    width = augment.frequency_width
    if augment.frequency_masks and 2 * width > mels:
        yield Finding(
            "warning",
            f"training.augment.frequency_width={width} may mask most of the model.n_mels={mels} mel bands",
            f"lower it to about {mels // 4}",
        )


def data_findings(settings: Settings) -> Iterator[Finding]:
    """Run all checks of a recipe's data."""
    if settings.corpus == "demo":
        yield demo_finding()
        return
    normalizer = normalizer_of(settings.language)
    speech: dict[str, Speech] = {}
    for name, path in speech_paths(settings).items():
        try:
            speech[name] = survey_speech(require(name, path))
        except UserError as error:
            yield Finding("problem", f"{name}: {error}")
            continue
        yield from speech_findings(name, speech[name], settings)
    if "labeled" in speech:
        yield from amount_findings(speech["labeled"], speech.get("unlabeled"))
        if not settings.pretrained.recognizer:
            yield from output_findings(speech["labeled"], settings)
            yield from frame_findings(speech["labeled"], settings)
    yield from validation_findings(speech, settings)
    spoken = {name: normalized(found.transcripts(), normalizer) for name, found in speech.items()}
    if settings.pretrained.recognizer:
        yield from recognizer_findings(settings, spoken.get("labeled", []))
    if settings.prior.pretrained:
        yield from prior_findings(settings.prior, spoken.get("labeled", []))
    if not (settings.text or settings.needs_text):
        return
    try:
        sentences = sample_text(require("text", settings.text), normalizer)
    except UserError as error:
        yield Finding("problem", f"text: {error}")
        return
    if not settings.prior.pretrained:
        yield text_finding(sentences)
    yield from language_findings({**spoken, "text": sentences}, normalizer)
    if spoken.get("labeled"):
        source = "" if settings.pretrained.recognizer else settings.tokenizer.source  # it has a tokenizer
        yield from letter_findings(spoken["labeled"], sentences, source)
    known = {name: texts for name, texts in spoken.items() if name != "labeled" and texts}
    yield from overlap_findings(known, sentences, normalizer)


def demo_finding() -> Finding:
    """Check whether the demo corpus can be synthesized."""
    if find_spec("espeakng_loader") is None:
        return Finding("problem", "corpus=demo needs espeak-ng", "run `pip install 'priormatch[demo]'`")
    return Finding("ok", "espeak-ng, which synthesizes the demo corpus, is installed")


def speech_paths(settings: Settings) -> dict[str, str]:
    """Return the path of every setting that names speech."""
    validation = named_sets(list(map(Path, settings.validation)), "validation")
    return {
        "labeled": settings.labeled,
        "unlabeled": settings.unlabeled,
        **{name: str(path) for name, path in validation.items()},
        **{f"test.{name}": path for name, path in settings.test.items()},
        **({"topline": settings.topline} if settings.topline else {}),
    }


def require(name: str, path: str) -> Path:
    """Return the path of a required setting; raise `UserError` if it is not set."""
    if not path:
        raise UserError(f"it is not set; set {name}=PATH")
    return Path(path)


def speech_findings(name: str, speech: Speech, settings: Settings) -> Iterator[Finding]:
    """Report the amount of speech, and check its audio, durations and transcripts."""
    yield Finding("ok", f"{name}: {speech}")
    yield from header_findings(name, speech, settings.audio.max_bad_share)
    yield from decoding_findings(name, *decode_some(speech, DECODED), settings.audio.max_bad_share)
    if name == "unlabeled":
        longest = settings.audio.segment or math.inf  # a run cuts unlabeled audio to this
        yield from duration_findings(name, [min(each, longest) for each in speech.durations], settings.audio)
        return
    yield from duration_findings(name, speech.durations, settings.audio)
    normalizer = normalizer_of(settings.language)
    yield from transcript_findings(name, speech.transcripts(), settings.audio.max_bad_share, normalizer)
    if name == "labeled" and not settings.validation and speech.speakers < 2:
        named = "only one speaker is named" if speech.speakers else "no speakers are named"
        what = f"labeled: {named}, so validation shares speakers with training"
        advice = (
            "put each speaker's audio into a folder, name speakers in the table, or set validation=[CUTS]"
        )
        yield Finding("warning", what, advice)


def header_findings(name: str, speech: Speech, most: float) -> Iterator[Finding]:
    """Name the files whose headers show that they cannot be used."""
    if speech.bad:
        yield bad_finding(name, speech.files, list(speech.bad.items()), most)
    else:
        yield Finding("ok", f"{name}: the headers of {count_text(speech.files, 'file')} are usable")


def decoding_findings(
    name: str, tried: int, bad: Sequence[tuple[Path, str]], most: float
) -> Iterator[Finding]:
    """Report the result of decoding a sample of the files with usable headers."""
    if bad:
        yield bad_finding(f"{name}, decoded", tried, bad, most)
    elif tried:
        yield Finding("ok", f"{name}: {count_text(tried, 'file')} decoded, all complete")


def bad_finding(name: str, tried: int, bad: Sequence[tuple[Path, str]], most: float) -> Finding:
    """Name files that cannot be used; many of them are a problem."""
    many = len(bad) > max(1, most * tried) or len(bad) == tried
    named = ", ".join(f"{file} ({reason})" for file, reason in bad[:MOST_NAMED])
    more = f" and {len(bad) - MOST_NAMED:,} more" if len(bad) > MOST_NAMED else ""
    what = f"{name}: {len(bad):,} of {count_text(tried, 'file')} cannot be used: {named}{more}"
    advice = "repair or remove them, or raise audio.max_bad_share" if many else "a run skips such files"
    return Finding("problem" if many else "warning", what, advice)


def duration_findings(name: str, durations: Sequence[float], audio: AudioSettings) -> Iterator[Finding]:
    """Count the utterances that a run would skip because they are too short or too long."""
    short = [seconds for seconds in durations if seconds < audio.shortest]
    long = [seconds for seconds in durations if seconds > audio.longest]
    status: Status = "problem" if len(short) + len(long) == len(durations) else "warning"
    skipped = f"of {count_text(len(durations), 'utterance')} would be skipped"
    if short:
        what = f"{name}: {len(short):,} {skipped}: shorter than {audio.shortest:g} s (audio.shortest)"
        yield Finding(status, what, "check that they are whole, or remove them")
    if long:
        what = f"{name}: {len(long):,} {skipped}: longer than {audio.longest:g} s; the longest has {max(long):.1f} s"
        yield Finding(status, what, "cut them at pauses, or raise audio.longest if memory allows")


def transcript_findings(
    name: str, transcripts: Sequence[str], most: float, normalizer: Normalizer = ENGLISH
) -> Iterator[Finding]:
    """Check whether transcripts give the words spoken."""
    if not transcripts:
        advice = "put NAME.txt next to NAME.wav, or provide a table or cuts"
        yield Finding("problem", f"{name}: no transcripts", advice)
    reasons = [reason for each in transcripts if (reason := why_unusable(each, normalizer))]
    if reasons:
        bad = f"{len(reasons)} of {len(transcripts)}"
        what = f"{name}: {bad} transcripts cannot be used, such as: {reasons[0]}"
        many = len(reasons) > max(1, most * len(transcripts))
        yield Finding("problem" if many else "warning", what, "correct them, or remove them")


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


def recognizer_findings(settings: Settings, transcripts: Sequence[str]) -> Iterator[Finding]:
    """Check whether a pretrained recognizer can be loaded, and whether it can write the letters of the transcripts."""
    given = settings.pretrained.recognizer
    try:
        model = load_recognizer(given, pretrained=settings.pretrained)
    except UserError as error:
        yield Finding("problem", f"pretrained.recognizer: {error}")
        return
    what = f"pretrained.recognizer: {given} can be read"
    if isinstance(model, HuggingFaceRecognizer) and (
        lost := model.tokenizer.unwritable(letters(transcripts))
    ):
        shown = " ".join(lost[:SHOWN_LETTERS])
        advice = "write the transcripts with its letters, or provide a recognizer of this language"
        yield Finding("problem", f"{what}, but cannot write letters of the transcripts: {shown}", advice)
        return
    yield Finding("ok", f"{what} and can write all letters of the transcripts")


def prior_findings(wanted: PriorSettings, transcripts: Sequence[str]) -> Iterator[Finding]:
    """Check whether a pretrained prior can be loaded, and whether it can write the letters of the transcripts."""
    try:
        prior = load_prior(wanted.pretrained, form=wanted.text_form)
    except UserError as error:
        yield Finding("problem", f"prior.pretrained: {error}")
        return
    what = f"prior.pretrained: {wanted.pretrained} can be read"
    if not isinstance(prior, HuggingFacePrior):
        yield Finding("ok", what)
        return
    if lacking := prior.cannot_write(sorted(letters(transcripts))):
        shown = " ".join(lacking[:SHOWN_LETTERS])
        advice = "see prior.text_form, or provide a prior of this language"
        yield Finding("problem", f"{what}, but cannot write letters of the transcripts: {shown}", advice)
        return
    yield Finding("ok", f"{what} and can write all letters of the transcripts")


def letter_findings(transcripts: Sequence[str], sentences: Sequence[str], source: str) -> Iterator[Finding]:
    """Check whether transcripts and text use the same letters, since the tokenizer is made of one of the two."""
    sides = {"transcripts": letters(transcripts), "text": letters(sentences)}
    agree = True
    for one, other in (("transcripts", "text"), ("text", "transcripts")):
        foreign = {letter: count for letter, count in sides[one].items() if letter not in sides[other]}
        share = sum(foreign.values()) / max(sides[one].total(), 1)
        if share < SOME_FOREIGN:
            continue
        agree = False
        chance = share < MOSTLY_FOREIGN or sides[other].total() < HARDLY_ANY_LETTERS
        if sides[other].total() < FEW_LETTERS and chance:
            what = (
                f"{sides[other].total():,} letters in the {other} are too few to check whether {one} and {other} use"
                " the same letters"
            )
            yield Finding("warning", what, f"add {other}")
            continue
        commonest = sorted(foreign, key=lambda letter: -foreign[letter])[:SHOWN_LETTERS]
        lost = f", and tokenizer.source={source} leaves them out" if source == other else ""
        percent = f"{100 * share:.1f} % of the letters in the {one}"
        what = f"{percent} never occur in the {other}{lost}: {' '.join(commonest)}"
        advice = f"write both with the same letters (accents, symbols, language); if these are just rare, add {other}"
        yield Finding("problem" if share > MANY_FOREIGN else "warning", what, advice)
    if agree:
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
            command = "`priormatch prepare text --cuts --drop-overlap`"
            advice = f"the prior would have seen the answers: remove them with {command}"
            yield Finding("warning", what, advice)
        else:
            yield Finding("ok", what)


def amount_findings(labeled: Speech, unlabeled: Speech | None) -> Iterator[Finding]:
    """Warn about little transcribed speech, or less untranscribed than transcribed speech."""
    seconds = 3600 * labeled.transcribed_hours
    amount = f"labeled: {duration_text(seconds)} of transcribed speech"
    if seconds < HARDLY_ANY_SPEECH:
        yield Finding("warning", f"{amount} is too little to train a recognizer", MORE_SPEECH)
    elif seconds < LITTLE_SPEECH:
        yield Finding("warning", f"{amount} is little", MORE_SPEECH)
    if unlabeled is not None and 3600 * unlabeled.hours < seconds:
        what = f"unlabeled: {duration_text(3600 * unlabeled.hours)} is less than the transcribed speech"
        yield Finding("warning", what, "matching helps if there is several times as much: add recordings")


def validation_findings(speech: Mapping[str, Speech], settings: Settings) -> Iterator[Finding]:
    """Warn about too little validation speech, given or held out."""
    names = named_sets(list(map(Path, settings.validation)), "validation")
    if not speech.keys() >= (set(names) or {"labeled"}):
        return
    if names:
        size = Size(
            sum(len(speech[each].utterances) for each in names),
            3600 * sum(speech[each].hours for each in names),
        )
    else:
        share, labeled = settings.validation_share, speech["labeled"]
        size = Size(round(share * len(labeled.utterances)), share * 3600 * labeled.hours)
    if size.seconds < LITTLE_VALIDATION:
        yield Finding("warning", *too_little_validation(size))


def output_findings(labeled: Speech, settings: Settings) -> Iterator[Finding]:
    """Check whether attention can write the longest transcript in characters; word pieces are known after training."""
    model, lengths = settings.model, [len(each) + 1 for each in labeled.transcripts()]
    searches = model.kind == "attention" or (model.kind == "hybrid" and model.ctc_weight == 0)
    if (
        searches
        and settings.tokenizer.kind == "characters"
        and max(lengths, default=0) > model.longest_output
    ):
        what = (
            f"labeled: transcripts have up to {max(lengths):,} characters, but hypotheses at most"
            f" model.longest_output={model.longest_output}"
        )
        yield Finding("warning", what, "raise model.longest_output, or use tokenizer.kind=unigram")


def frame_findings(labeled: Speech, settings: Settings) -> Iterator[Finding]:
    """Check whether CTC has enough frames for characters; how many word pieces there are is known after training."""
    transcripts, model = labeled.transcripts(), settings.model
    if model.kind == "attention" or settings.tokenizer.kind != "characters" or not transcripts:
        return
    seconds = sum(labeled.durations) / max(len(labeled.durations), 1) * len(transcripts)
    rate = sum(len(each) + 1 for each in transcripts) / max(seconds, 1e-3)  # each word also has a mark
    frames = 1 / frame_seconds_of(model)
    if rate > FEW_FRAMES * frames:
        what = (
            f"labeled: {rate:.1f} characters per second on average, but CTC can emit at most one for each of the"
            f" encoder's {frames:g} frames per second"
        )
        yield Finding("problem" if rate > frames else "warning", what, way_to_fit(model, "character"))


def model_findings(folder: Path) -> Iterator[Finding]:
    """Run all checks of a run's models; no findings if there are none yet."""
    groups: dict[str, dict[str, Tokenizer]] = {}  # what has the same classes, by the name of their tokenizer
    for name in ("tokenizer", "tokenizer-prior"):
        if (folder / name / MODEL_FILE).is_file():
            groups[name] = {name: Tokenizer.load(folder / name)}
    for place in sorted(file.parent for file in folder.rglob(WEIGHTS)):
        name = str(place.relative_to(folder))
        try:
            model = load_model(place)
            if isinstance(model, NgramPrior):
                yield Finding("ok", f"{name} in {folder}: complete, {model.model.ngrams:,} n-grams")
                continue
            own = isinstance(model, ConvPrior) and "tokenizer-prior" in groups
            group = groups.setdefault("tokenizer-prior" if own else "tokenizer", {})
            group[name] = model.tokenizer
        except UserError as error:
            advice = f"remove {folder / name.split('/')[0]} and run again"
            yield Finding("problem", f"{name}: {error}", advice)
    for tokenizers in groups.values():
        yield from piece_findings(tokenizers, folder)


def piece_findings(tokenizers: Mapping[str, Tokenizer], folder: Path) -> Iterator[Finding]:
    """Check whether a tokenizer of a run and the models that belong to it have the same classes."""
    first = next(iter(tokenizers))
    classes = tokenizers[first].classes
    others = [name for name in tokenizers if tokenizers[name] != tokenizers[first]]
    for name in others:
        theirs = f"{folder / name} has other {tokenizers[name].unit}s ({tokenizers[name].classes} classes)"
        advice = f"remove {folder / name.split('/')[0]}; a run creates it again with one tokenizer for all"
        yield Finding("problem", f"{theirs} than {folder / first} ({classes} classes)", advice)
    if not others:
        what = f"{', '.join(tokenizers)} in {folder}: complete, with the same {classes} classes"
        yield Finding("ok", what)

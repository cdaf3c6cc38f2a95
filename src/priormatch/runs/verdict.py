"""The verdict on a run in words: whether local prior matching helped, why not, and what to do next."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from priormatch.progress import count_text, duration_text
from priormatch.scoring.bootstrap import p_in_words

LITTLE_VALIDATION = 300.0  # seconds of all validation sets together
FEW_UTTERANCES, FEW_WORDS = 30, 300  # of a test set
WIDE = (
    10.0  # percent: half the width of the interval of the relative gain, above which "no gain" is not known
)
MOST_REMOVED = 0.5  # share of the unlabeled utterances without a hypothesis after the filter

Outcome = Literal["helped", "mixed", "hurt", "no difference", "unknown", "refused"]
HEADS: Mapping[Outcome, str] = {
    "helped": "Local prior matching helped.",
    "mixed": "Local prior matching helped on some speech and hurt on other speech.",
    "hurt": "Local prior matching made the recognizer worse.",
    "no difference": "Local prior matching did not help.",
    "unknown": "This run cannot show whether local prior matching helped.",
    "refused": "Local prior matching did not start.",
}


@dataclass(frozen=True)
class Comparison:
    """WER of the supervised and the matched system on a test set, in percent, and the gain with its 95 % interval.

    The gain is the share of the supervised system's errors that are gone, in percent; negative if there are more.
    """

    utterances: int
    words: int
    before: float
    after: float
    gain: float
    interval: tuple[float, float]
    p_value: float

    @property
    def small(self) -> bool:
        """Whether the set is too small for any conclusion."""
        return self.utterances < FEW_UTTERANCES or self.words < FEW_WORDS

    @property
    def effect(self) -> Literal["better", "worse", "none", "open"]:
        """What the set shows; open if neither a gain nor its absence is certain."""
        low, high = self.interval
        if self.small or not math.isfinite(low + high):
            return "open"
        if low > 0 or high < 0:
            return "better" if low > 0 else "worse"
        return "none" if self.half_width <= WIDE else "open"

    @property
    def half_width(self) -> float:
        """Half the width of the interval of the gain, in percent."""
        low, high = self.interval
        return (high - low) / 2


@dataclass(frozen=True)
class Matched:
    """What is recorded about matching: validations, refreshes of the proposal, and what the filter left.

    `scores` are the validation CERs in percent by update, at update 0 that of the model at the start. `replaced` is
    whether the online model ever replaced the proposal; None if the settings do not let it be judged by that.
    `without_survivor` is the mean share of utterances without a hypothesis. `start_counts` is whether the initial model
    may be the best.
    """

    scores: Mapping[int, float] = field(default_factory=dict)
    replaced: bool | None = None
    without_survivor: float | None = None
    start_counts: bool = True

    @property
    def best(self) -> int | None:
        """The update of the best validation among those that count; None if there is none."""
        counting = {at: score for at, score in self.scores.items() if at > 0 or self.start_counts}
        return min(counting, key=lambda at: (counting[at], at)) if counting else None

    @property
    def unchanged(self) -> bool:
        """Whether the model at the start was kept, because no later one was better on validation."""
        return self.best == 0 and len(self.scores) > 1

    @property
    def improving(self) -> bool:
        """Whether the last validation was the best."""
        return len(self.scores) > 1 and self.best == max(self.scores)


@dataclass(frozen=True)
class Size:
    """The size of a set of speech."""

    utterances: int
    seconds: float

    def __str__(self) -> str:
        return f"{count_text(self.utterances, 'utterance')}, {duration_text(self.seconds)}"


@dataclass(frozen=True)
class Facts:
    """What a verdict rests on; `tests_selected` is whether the models were selected on the sets they are scored on."""

    tests: Mapping[str, Comparison] = field(default_factory=dict)
    matched: Matched = field(default_factory=Matched)
    validation: Size | None = None
    tests_selected: bool = False
    refusal: str = ""


@dataclass(frozen=True)
class Verdict:
    """The outcome, a sentence, one line for each test set, the reasons, and what to do next."""

    outcome: Outcome
    text: str
    tests: Sequence[str] = ()
    reasons: Sequence[str] = ()
    next: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """The value of the key `verdict` in results.json."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()
        }

    def lines(self) -> Iterator[str]:
        """The verdict as lines of text."""
        yield f"verdict: {self.text}"
        yield from (f"  {each}" for each in (*self.tests, *self.reasons))
        yield from (f"  next: {each}" for each in self.next)


def verdict(facts: Facts) -> Verdict:
    """Judge a run by what is recorded about it."""
    outcome = outcome_of(facts)
    shown = tuple(in_words(name, each) for name, each in facts.tests.items())
    why = dict(causes(facts, outcome))
    use = ["transcribe with its model, which is lpm/model in the run's folder"] if outcome == "helped" else []
    return Verdict(outcome, HEADS[outcome], shown, tuple(why), tuple(dict.fromkeys([*use, *why.values()])))


def outcome_of(facts: Facts) -> Outcome:
    """The outcome in one word or two."""
    effects = {each.effect for each in facts.tests.values()}
    if facts.refusal:
        return "refused"
    if facts.matched.unchanged:  # the model at the start, even if that model trained for longer is better
        return "no difference"
    if {"better", "worse"} <= effects:
        return "mixed"
    if "worse" in effects:
        return "hurt"
    if "better" in effects:
        return "helped"
    return "no difference" if effects == {"none"} else "unknown"


def in_words(name: str, test: Comparison) -> str:
    """Describe the gain on a test set with its certainty."""
    low, high = test.interval
    changed = f"{name}: WER {test.before:.2f} -> {test.after:.2f} %"
    if not math.isfinite(low + high):
        return f"{changed}, too little speech for an interval"
    if test.small:
        return f"{changed}, too little speech to be certain (95 % interval of the gain {low:.1f} to {high:.1f} %)"
    sure = f"95 % interval {{:.1f}} to {{:.1f}} %, {p_in_words(test.p_value)}"
    match test.effect:
        case "better":
            return f"{changed}, {test.gain:.1f} % fewer errors ({sure.format(low, high)})"
        case "worse":
            return f"{changed}, {-test.gain:.1f} % more errors ({sure.format(-high, -low)})"
    span = " and ".join(f"{abs(end):.1f} % {'more' if end < 0 else 'fewer'}" for end in (low, high))
    return f"{changed}, no certain difference: between {span} errors are likely (95 %)"


def causes(facts: Facts, outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Why the outcome is what it is, each with what to do next."""
    if facts.refusal:
        yield f"{facts.refusal[0].upper()}{facts.refusal[1:]}.", MORE_SUPERVISED
        return
    if outcome in ("helped", "mixed"):
        yield from rising(facts.matched)
    else:
        yield from no_gain(facts.matched)
    yield from too_small(facts, outcome)


MORE_SUPERVISED = "train the supervised model longer (training.updates) or on more transcribed speech"


def rising(matched: Matched) -> Iterator[tuple[str, str]]:
    """Say if matching was still getting better at its end."""
    if matched.improving:
        yield (
            f"The last validation was the best (CER {min(matched.scores.values()):.2f} %).",
            "continue training: raise matching.updates",
        )


def no_gain(matched: Matched) -> Iterator[tuple[str, str]]:
    """Why matching gained nothing, as far as its record tells."""
    removed = matched.without_survivor or 0.0
    if removed >= MOST_REMOVED:
        yield (
            f"The length filter removed every hypothesis of {100 * removed:.0f} % of the unlabeled utterances, so"
            " that these contributed nothing.",
            "widen matching.length_filter, or train the supervised model for longer",
        )
    later = {at: score for at, score in matched.scores.items() if at > 0}
    if matched.unchanged:
        best = min(later, key=lambda at: later[at])
        yield (
            f"None of {count_text(len(later), 'validation')} was better than the initial model (CER"
            f" {matched.scores[0]:.2f} %, then {later[best]:.2f} % at best, at update {best:,}), so the"
            " supervised model was kept unchanged.",
            "try a lower matching.optimizer.learning_rate, more matching.updates, or text closer to the speech",
        )
    if matched.replaced is False:
        yield (
            "No proposal was ever replaced, so the labels came from the supervised model to the end.",
            "check in the report's hypothesis inspector whether the right words are in the beams, and what the prior"
            " prefers",
        )
    yield from rising(matched)


def too_little_validation(size: Size) -> tuple[str, str]:
    """That a validation set is too small, and what to do about it."""
    return (
        f"the validation set ({size}) is too small to select the best model and the proposal",
        f"validate on at least {LITTLE_VALIDATION / 60:g} minutes: set validation=[CUTS], or raise validation_share",
    )


def too_small(facts: Facts, outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Sets that are too small to decide by, and sets that were used twice."""
    if facts.validation is not None and facts.validation.seconds < LITTLE_VALIDATION:
        what, advice = too_little_validation(facts.validation)
        yield f"{what[0].upper()}{what[1:]}.", advice
    small = {name: each for name, each in facts.tests.items() if each.small}
    for name, each in small.items():
        yield (
            f"{name} ({count_text(each.utterances, 'utterance')}, {count_text(each.words, 'word')}) is too small to"
            " compare systems on.",
            f"test on at least {FEW_UTTERANCES} utterances and {FEW_WORDS} words, if possible ten times as many",
        )
    open_ones = [each for each in facts.tests.values() if each.effect == "open" and not each.small]
    half = max((each.half_width for each in open_ones), default=0.0)
    if math.isfinite(half) and half > WIDE and outcome == "unknown":
        more = max(math.ceil((half / WIDE) ** 2), 2)
        yield (
            f"The intervals are too wide to show whether there is a gain (up to {half:.0f} % to either side).",
            f"test on about {more} times as much speech, or run more seeds (training.seed) and use priormatch compare",
        )
    if facts.tests_selected:
        yield (
            "The scores are on the validation sets, which also selected the models, so they are optimistic.",
            "use separate speech for testing: test.NAME=CUTS",
        )

"""The hypothesis inspector's view of beams: an utterance, how it sounds, and what proposals made of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from priormatch.matching.hypotheses import Hypothesis, Inspection
from priormatch.report.sound import Sound, embed
from priormatch.training.inspected import Inspected


@dataclass(frozen=True)
class Beam:
    """What the proposal of an update listed."""

    title: str
    inspection: Inspection

    @property
    def heaviest(self) -> Hypothesis | None:
        """The hypothesis that is taught most, or None where nothing is left to teach."""
        best = max(self.inspection.hypotheses, key=lambda each: each.weight, default=None)
        return best if best is not None and best.weight > 0 else None


@dataclass(frozen=True)
class Utterance:
    """An utterance with its beams, the first proposal's before the latest one's."""

    id: str
    reference: str | None
    sound: Sound
    beams: list[Beam]

    @property
    def errors(self) -> list[int | None]:
        """Word errors of each beam's heaviest hypothesis, None where there is none or no reference."""
        return [None if each.heaviest is None else word_errors(each.heaviest) for each in self.beams]

    @property
    def change(self) -> str:
        """What became of the heaviest hypothesis, in a few words."""
        if all(each.heaviest is None for each in self.beams):
            return "no hypothesis left"
        if self.reference is None:
            return ""
        return (
            f"errors: {' → '.join('no hypothesis' if count is None else str(count) for count in self.errors)}"
        )


def utterances(inspected: Sequence[Inspected], room: int) -> list[Utterance]:
    """Beams by utterance, with the audio of as many as there is room for."""
    found: list[Utterance] = []
    for name in dict.fromkeys(each.inspection.id for each in inspected):
        own = [each for each in inspected if each.inspection.id == name]
        sound = embed(own[0].cut, room)
        room -= len(sound.uri or "")
        found.append(Utterance(name, own[0].inspection.reference, sound, [beam(each) for each in own]))
    return found


def beam(inspected: Inspected) -> Beam:
    """A beam with its title."""
    first = inspected.update == 0
    title = "First proposal" if first else f"Latest proposal, taken at update {inspected.update:,}"
    return Beam(title, inspected.inspection)


def word_errors(hypothesis: Hypothesis) -> int | None:
    """How many words are wrong, or None without a reference."""
    if hypothesis.words is None:
        return None
    return sum(word.kind != "equal" for word in hypothesis.words)


@dataclass(frozen=True)
class Heard:
    """Word errors of the heaviest hypotheses at first and at last, in the utterances that had one both times.

    `known` counts all utterances with a reference and two beams, `both` those that are counted here.
    """

    known: int
    both: int
    first: int
    last: int
    words: int


def heard(found: Sequence[Utterance]) -> Heard | None:
    """What became of the errors, or None where no utterance can tell."""
    known = [each for each in found if each.reference is not None and len(each.beams) > 1]
    both = [
        (first, last, len((each.reference or "").split()))
        for each in known
        if (first := each.errors[0]) is not None and (last := each.errors[-1]) is not None
    ]
    if not both:
        return None
    return Heard(len(known), len(both), *map(sum, zip(*both, strict=True)))

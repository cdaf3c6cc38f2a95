"""The hypothesis inspector: an utterance, its audio, and the beams of the proposals."""

from collections.abc import Sequence
from dataclasses import dataclass

from priormatch.matching.hypotheses import Hypothesis, Inspection
from priormatch.report.sound import Sound, embed
from priormatch.training.inspected import Inspected


@dataclass(frozen=True)
class Beam:
    """The beam of the proposal at an update."""

    title: str
    inspection: Inspection

    @property
    def heaviest(self) -> Hypothesis | None:
        """The hypothesis with the largest weight, or None if none has a weight above 0."""
        best = max(self.inspection.hypotheses, key=lambda each: each.weight, default=None)
        return best if best is not None and best.weight > 0 else None


@dataclass(frozen=True)
class Utterance:
    """An utterance with its beams, the first proposal's before the latest proposal's."""

    id: str
    reference: str | None
    sound: Sound
    beams: list[Beam]

    @property
    def errors(self) -> list[int | None]:
        """Word errors of each beam's heaviest hypothesis; None without such a hypothesis or a reference."""
        return [None if each.heaviest is None else word_errors(each.heaviest) for each in self.beams]

    @property
    def change(self) -> str:
        """The change of the heaviest hypothesis, in a few words."""
        if all(each.heaviest is None for each in self.beams):
            return "no hypothesis left"
        if self.reference is None:
            return ""
        return (
            f"errors: {' → '.join('no hypothesis' if count is None else str(count) for count in self.errors)}"
        )


def utterances(inspected: Sequence[Inspected], room: int) -> list[Utterance]:
    """Group beams by utterance, with the audio of as many as fit into `room` characters."""
    found: list[Utterance] = []
    for name in dict.fromkeys(each.inspection.id for each in inspected):
        own = [each for each in inspected if each.inspection.id == name]
        sound = embed(own[0].cut, room)
        room -= len(sound.uri or "")
        found.append(Utterance(name, own[0].inspection.reference, sound, [beam(each) for each in own]))
    return found


def beam(inspected: Inspected) -> Beam:
    """Make a beam with its title."""
    first = inspected.update == 0
    title = "First proposal" if first else f"Latest proposal, taken at update {inspected.update:,}"
    return Beam(title, inspected.inspection)


def word_errors(hypothesis: Hypothesis) -> int | None:
    """Count the word errors of a hypothesis, or return None without a reference."""
    if hypothesis.words is None:
        return None
    return sum(word.kind != "equal" for word in hypothesis.words)


@dataclass(frozen=True)
class Heard:
    """Word errors of the first and the last heaviest hypotheses, over the utterances that have both.

    `known` counts all utterances with a reference and two beams, `both` those counted here.
    """

    known: int
    both: int
    first: int
    last: int
    words: int


def heard(found: Sequence[Utterance]) -> Heard | None:
    """Sum the errors of the first and the last beams, or return None if no utterance has both."""
    known = [each for each in found if each.reference is not None and len(each.beams) > 1]
    both = [
        (first, last, len((each.reference or "").split()))
        for each in known
        if (first := each.errors[0]) is not None and (last := each.errors[-1]) is not None
    ]
    if not both:
        return None
    return Heard(len(known), len(both), *map(sum, zip(*both, strict=True)))

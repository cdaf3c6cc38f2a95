"""Decode a recording for the page: the beam of each segment of speech, with or without the prior."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from threading import Event, Lock

import torch

from priormatch.config import FusionSettings
from priormatch.data import SAMPLE_RATE
from priormatch.data.audio import BadAudio, open_sound
from priormatch.data.clips import Clip, open_file
from priormatch.data.pauses import Cutting
from priormatch.decoding.beam import Hypotheses
from priormatch.decoding.loops import without_loop
from priormatch.errors import UserError
from priormatch.matching.lpm import weigh
from priormatch.progress import duration_text
from priormatch.recognizers.decode import Search, batch_seconds, evaluating, plain_search, search_with_prior
from priormatch.recognizers.protocols import Prior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.recognizers.transcribing import Segment as Heard
from priormatch.recognizers.transcribing import encode_clips, hear_all, segments_of

KINDS = "WAV, FLAC, Ogg, Opus, MP3 or AIFF"
SUFFIXES = (".aif", ".aiff", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".wav")
"""The formats of soundfile that browsers accept as audio, which Gradio relies on."""
DENSEST = 384_000
"""Samples per second over all channels in the longest recording that is decoded: two channels at 192 kHz."""
LONGEST_REQUEST = 600.0
"""Seconds that one request may compute while others wait."""
PARTS = 4  # of a batch: between them progress is shown and the page can be closed

Advance = Callable[[float, float], None]
"""Called with the seconds of speech decoded so far and the total."""


class PriorUse(StrEnum):
    """Where the prior is used: nowhere, in the weights of the recognizer's beam, or in the beam search (fusion)."""

    none = "none"
    weights = "weights"
    search = "search"


@dataclass(frozen=True)
class Scored:
    """A hypothesis with log q(y|x), its score in the search, and log p_y(y), or None without a prior."""

    text: str
    log_q: float
    score: float
    log_prior: float | None = None


@dataclass(frozen=True)
class Segment:
    """A segment of a recording, in seconds, and its hypotheses, best first.

    `ended` is whether the search found an end of sentence. `heard` is the best hypothesis as `transcribe` gives it,
    with its confidence and, from CTC, the times of its words.
    """

    start: float
    end: float
    beam: list[Scored]
    ended: bool = True
    heard: Heard | None = None

    @property
    def text(self) -> str:
        """The best hypothesis."""
        return self.transcript_of(self.beam[0]) if self.beam else ""

    def transcript_of(self, hypothesis: Scored) -> str:
        """Return a hypothesis as in the transcript: without its loop if the search found no end of sentence."""
        return hypothesis.text if self.ended else without_loop(hypothesis.text)

    @property
    def heaviest(self) -> Scored | None:
        """The hypothesis of the beam that the prior prefers; None without a prior."""
        found = weights(self.beam, PriorUse.weights)
        return self.beam[found.index(max(found))] if found else None


def weights(beam: Sequence[Scored], use: PriorUse) -> list[float] | None:
    """Return the weights inside a beam, which sum to one; None if they need a prior and there is none.

    They are q renormalized, p_y renormalized (the local prior, eq. 4 of the paper), or the fused search scores
    renormalized.
    """
    scores_of: dict[PriorUse, list[float | None]] = {
        PriorUse.none: [each.log_q for each in beam],
        PriorUse.weights: [each.log_prior for each in beam],
        PriorUse.search: [each.score for each in beam],
    }
    scores = [value for value in scores_of[use] if value is not None]
    if len(scores) < len(beam):
        return None
    (found,) = weigh(torch.tensor([scores]), torch.ones(1, len(scores), dtype=torch.bool)).tolist()
    return found


Decode = Callable[[Sequence[Clip]], list[Segment]]
"""Decodes a batch of clips."""


@dataclass(frozen=True)
class Visit:
    """The state of a user's page: a recording, and the results of the searches made so far.

    `other` is what the second recognizer hears.
    """

    path: Path | None = None
    plain: list[Segment] | None = None
    fused: list[Segment] | None = None
    other: list[Segment] | None = None

    def result(self, use: PriorUse) -> list[Segment] | None:
        """Return the result with the prior used in this way, or None before decoding."""
        return self.fused if use is PriorUse.search else self.plain

    def decoded(self, use: PriorUse, transcriber: "Transcriber", advance: Advance) -> "Visit":
        """Return the visit with the recording decoded, if it has not been decoded yet."""
        if self.path is None or self.result(use) is not None:
            return self
        found = transcriber.decode(self.path, use, advance)
        visit = replace(self, fused=found) if use is PriorUse.search else replace(self, plain=found)
        if transcriber.other is None or self.other is not None:
            return visit
        return replace(visit, other=transcriber.decode_other(self.path, advance))


class Transcriber:
    """Transcribes recordings for many users, one at a time, each of at most `most_seconds`.

    A second recognizer, `other`, transcribes the same clips without the prior.
    """

    def __init__(
        self,
        model: SpeechRecognizer,
        prior: Prior | None,
        beam_size: int,
        fusion: FusionSettings,
        cutting: Cutting,
        most_seconds: float,
        *,
        other: SpeechRecognizer | None = None,
    ) -> None:
        self.model, self.prior, self.fusion, self.other = model, prior, fusion, other
        self.cutting, self.most_seconds = cutting, most_seconds
        self.plain = plain_search(beam_size)
        self.fused = None if prior is None else search_with_prior(prior, fusion)
        self.lock, self.closed = Lock(), Event()

    def decode(self, path: Path, use: PriorUse, advance: Advance = lambda done, total: None) -> list[Segment]:
        """Decode a recording; return the segments with words, or raise `UserError` if it cannot be decoded."""
        search = self.fused if use is PriorUse.search else self.plain
        if search is None:
            raise UserError("there is no prior to search with: pass --prior")
        return self._decode(path, partial(decode_beams, self.model, self.prior, search), advance)

    def decode_other(self, path: Path, advance: Advance) -> list[Segment]:
        """Decode a recording with the second recognizer."""
        if self.other is None:
            raise UserError("there is no second recognizer: pass --compare")
        return self._decode(path, partial(decode_beams, self.other, None, self.plain), advance)

    def _decode(self, path: Path, decode: Decode, advance: Advance) -> list[Segment]:
        done = 0.0

        def count(seconds: float) -> None:
            nonlocal done
            done += seconds
            advance(done, total)
            self.require_open()
            if done < total and time.monotonic() > deadline:
                raise UserError(
                    f"{path.name}: took more than {duration_text(LONGEST_REQUEST)} to transcribe: provide a shorter"
                    " recording, or use `priormatch transcribe`"
                )

        gpu = torch.cuda.device_of(next(self.model.parameters()))  # each thread has its own current GPU
        with self.lock, gpu:  # decoding too: one request at a time bounds the memory
            self.require_open()
            deadline = time.monotonic() + LONGEST_REQUEST
            clips = self.clips(path)
            total = sum(clip.seconds for clip in clips)
            found = hear_all(clips, decode, batch_seconds(self.model.device) / PARTS, count)
        return [segment for segment in found if segment.text]

    def close(self) -> None:
        """Refuse new recordings and wait for the current one: Python must not end while threads compute."""
        self.closed.set()
        with self.lock:
            pass

    def require_open(self) -> None:
        """Raise `UserError` after `close`."""
        if self.closed.is_set():
            raise UserError("the page has been closed: start `priormatch serve` again")

    def clips(self, path: Path) -> list[Clip]:
        """Return the speech of a recording, cut at its pauses."""
        if not path.exists():
            raise UserError(f"{path.name}: has been deleted: record or upload it again")
        try:
            with open_sound(path) as sound:
                seconds, samples = sound.frames / sound.samplerate, sound.frames * sound.channels
            if seconds > self.most_seconds:
                raise UserError(
                    f"{path.name}: lasts {duration_text(seconds)}, but at most {duration_text(self.most_seconds)} are"
                    " allowed here: provide a part of it, or use `priormatch transcribe`"
                )
            if samples > self.most_seconds * DENSEST:
                raise UserError(
                    f"{path.name}: has {samples / seconds:,.0f} samples per second over all channels, but at most"
                    f" {DENSEST:,} are allowed here: convert it to {SAMPLE_RATE} Hz and one channel"
                )
            return list(open_file(path, self.cutting).clips)
        except BadAudio as bad:
            raise UserError(f"{path.name}: {bad.reason}; provide a complete {KINDS} file") from bad


@torch.no_grad()
def decode_beams(
    model: SpeechRecognizer, prior: Prior | None, search: Search, clips: Sequence[Clip]
) -> list[Segment]:
    """Decode one batch of clips, keeping the whole beam of each."""
    with evaluating(model):
        frames = encode_clips(model, clips)
        beam = search(model, frames)
        log_q = model.head.log_q(frames, beam.classes, beam.lengths)
        heard = segments_of(model, clips, frames, beam)
    given = Hypotheses(beam.classes, beam.lengths, model.tokenizer)
    log_prior = None if prior is None else prior.score(given)
    columns = [beam.classes, beam.lengths, log_q, beam.scores, *([] if log_prior is None else [log_prior])]
    rows = zip(*(each.tolist() for each in columns), strict=True)
    segments = []
    for clip, row, ended, best in zip(clips, rows, beam.ended.tolist(), heard, strict=True):
        hypotheses = [
            Scored(model.tokenizer.decode(classes), *figures)
            for classes, length, *figures in zip(*row, strict=True)
            if length > 0
        ]
        segments.append(Segment(clip.start, clip.start + clip.seconds, hypotheses, ended, best))
    return segments

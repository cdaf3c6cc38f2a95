"""Transcription of recordings: their clips are decoded in batches that may mix recordings."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from priormatch.data import SAMPLE_RATE
from priormatch.data.audio import BadAudio
from priormatch.data.batches import Batch, stack
from priormatch.data.clips import Clip, Recording, open_file, open_samples
from priormatch.data.features import FRAME as WINDOW
from priormatch.data.pauses import FRAMES as LEVELS
from priormatch.data.pauses import Cutting, frame_levels, speech_runs
from priormatch.data.plan import cut_by_seconds
from priormatch.data.tokenizer import MARK
from priormatch.decoding.beam import Beam, pad
from priormatch.errors import UserError
from priormatch.recognizers.decode import GREEDY, Search, as_told, batch_seconds, evaluating
from priormatch.recognizers.heads import Frames
from priormatch.recognizers.recognizer import SpeechRecognizer

POOLED = 8  # batches of clips that are sorted by length together
PAUSE = LEVELS // 5  # frames of levels; less quiet, up to 0.2 s, can be the closure of a stop within a word

Source = Callable[[], Recording]
"""Opens a recording, or raises `BadAudio`."""

Heard = TypeVar("Heard")


@dataclass(frozen=True)
class Word:
    """A word with its start and end in seconds.

    The confidence is the geometric mean of the probabilities that CTC gives to its tokens where they are aligned. It is
    between 0 and 1, but not a calibrated probability of being correct.
    """

    start: float
    end: float
    text: str
    confidence: float


@dataclass(frozen=True)
class Segment:
    """A segment of a recording, with start and end in seconds, and its transcript.

    The confidence is the geometric mean of the probabilities that the recognizer alone gives to the pieces of the text
    and the end of sentence, exp(log q(y|x) / (pieces + 1)). It is between 0 and 1, but not a calibrated probability of
    being correct. Recognizers with a CTC output also give the `words`.
    """

    start: float
    end: float
    text: str
    confidence: float
    words: tuple[Word, ...] = ()


@dataclass(frozen=True)
class Transcription:
    """The transcript of a recording: its duration in seconds, and the segments that contain words, in order."""

    duration: float
    segments: list[Segment]

    @property
    def text(self) -> str:
        """The whole transcript, "" if there is no speech."""
        return " ".join(segment.text for segment in self.segments)


def transcribe(
    model: SpeechRecognizer,
    audio: Any,
    rate: int | None = None,
    search: Search = GREEDY,
    cutting: Cutting | None = None,
) -> Transcription:
    """Transcribe a file, samples (N,) or (N, channels) at the given rate, or a pair of both, of any length.

    The rate is 16 kHz unless given; other rates are resampled.

    transcribe(model, "talk.mp3", search=search_with_prior(prior, settings.fusion)).text
    """
    cutting = cutting or cutting_for(model)

    def open_it() -> Recording:
        if isinstance(audio, str | PathLike):
            return open_file(Path(audio), cutting)
        return open_samples(*samples_and_rate(audio, rate), cutting)

    (outcome,) = transcribe_all(model, [open_it], search)
    if isinstance(outcome, BadAudio):
        raise UserError(f"{outcome}: use another file") from outcome
    return outcome


def samples_and_rate(audio: Any, rate: int | None) -> tuple[Any, Any]:
    """Take apart a pair (samples, rate); samples alone have the given rate, or 16 kHz."""
    if not (isinstance(audio, tuple) and len(audio) == 2):
        return audio, SAMPLE_RATE if rate is None else rate
    samples, own = audio
    if isinstance(samples, int | np.number):
        raise UserError("the pair begins with a number: pass (samples, rate), in this order")
    if rate not in (None, own):
        raise UserError(f"the pair has the rate {own}, and rate={rate} is given too: leave one out")
    return samples, own


def cutting_for(
    model: SpeechRecognizer, longest: float | None = None, pause: float = Cutting.pause
) -> Cutting:
    """How to cut recordings for a model; by default no clip is longer than its longest training utterance."""
    if longest is None:
        known = max(model.longest_heard, Cutting.shortest) if model.longest_heard else Cutting.longest
        longest = min(known, Cutting.longest)
    return Cutting(min(longest, model.longest_audio), pause=pause)


def transcribe_all(
    model: SpeechRecognizer,
    sources: Iterable[Source],
    search: Search = GREEDY,
    seconds: float | None = None,
    advance: Callable[[float], None] = lambda _: None,
) -> Iterator[Transcription | BadAudio]:
    """Yield the transcription of each recording, or its error, in order.

    No batch has more than `seconds` of audio, including padding, unless a single clip does. A few batches are in memory
    at a time. `advance` is called with the seconds of audio that are done.
    """
    seconds = seconds or batch_seconds(model.device)
    pool: list[Clip] = []
    owners: list[list[Segment]] = []  # for every clip in the pool, the list for its segment
    waiting: list[Transcription | BadAudio] = []  # results that wait for these clips

    def empty_pool() -> Iterator[Transcription | BadAudio]:
        heard = hear_all(pool, partial(hear, model, search=search), seconds, advance)
        for found, segment in zip(owners, heard, strict=True):
            if segment.text:
                found.append(segment)
        yield from waiting
        for each in (pool, owners, waiting):
            each.clear()

    held = 0.0  # seconds in the pool
    for source in sources:
        found: list[Segment] = []
        try:
            recording = source()
            quiet = recording.seconds
            for clip in recording.clips:
                pool.append(clip)
                owners.append(found)
                quiet -= clip.seconds
                held += clip.seconds
                if held >= POOLED * seconds:
                    yield from empty_pool()
                    held = 0.0
            advance(quiet)
            waiting.append(Transcription(recording.seconds, found))
        except BadAudio as bad:
            waiting.append(bad)
    yield from empty_pool()


def hear_all(
    clips: Sequence[Clip],
    hear: Callable[[Sequence[Clip]], list[Heard]],
    seconds: float,
    advance: Callable[[float], None],
) -> list[Heard]:
    """Transcribe clips in batches of similar length; return the results in the order of the clips."""
    if not clips:
        return []
    lengths = np.array([clip.seconds for clip in clips])
    order = np.argsort(-lengths, kind="stable")
    found: dict[int, Heard] = {}
    for batch in np.split(order, cut_by_seconds(lengths[order], seconds)[1:]):
        found |= zip(batch.tolist(), hear([clips[index] for index in batch]), strict=True)
        advance(float(lengths[batch].sum()))
    return [found[index] for index in range(len(clips))]


@torch.no_grad()
def hear(model: SpeechRecognizer, clips: Sequence[Clip], search: Search) -> list[Segment]:
    """Transcribe one batch of clips."""
    with evaluating(model):
        frames = encode_clips(model, clips)
        return segments_of(model, clips, frames, search(model, frames))


def segments_of(model: SpeechRecognizer, clips: Sequence[Clip], frames: Frames, beam: Beam) -> list[Segment]:
    """The best hypothesis of each clip, with its confidence and the times of its words."""
    columns = beam.classes[:, 0].tolist(), beam.lengths[:, 0].tolist(), beam.ended.tolist()
    told = [
        as_told(model.tokenizer, classes[: max(length, 1)], ended)
        for classes, length, ended in zip(*columns, strict=True)
    ]
    labels, lengths = (each.to(model.device)[:, None] for each in pad([spelled for _, spelled in told]))
    log_q = model.head.log_q(frames, labels, lengths)
    words = align_words(model, frames, labels[:, 0], lengths[:, 0])
    confidences = (log_q / lengths).exp()[:, 0].tolist()
    return [
        Segment(
            clip.start,
            clip.start + clip.seconds,
            text,
            confidence,
            tuple(in_recording(found, clip)),
        )
        for clip, (text, _), confidence, found in zip(clips, told, confidences, words, strict=True)
    ]


def align_words(model: SpeechRecognizer, frames: Frames, labels: Tensor, lengths: Tensor) -> list[list[Word]]:
    """The words of each label sequence with their times, by forced alignment; none without a CTC output.

    labels (B, U) end with EOS, lengths (B,) include it. A sequence that does not fit into its frames has no words.
    """
    head = model.ctc_head
    if head is None or model.head.limited:  # CTC that only helps to train attention emits words anywhere
        return [[] for _ in labels]
    found = head.align(frames, labels, lengths)
    columns = (labels[:, :-1], found.starts, found.ends, found.confidences)
    return [
        words_of(
            [
                Token(model.tokenizer.pieces[label], start, end + 1, confidence)
                for label, start, end, confidence in zip(*row, strict=True)
                if start >= 0
            ],
            model.frame_seconds,
        )
        for row in zip(*(each.tolist() for each in columns), strict=True)
    ]


class Token(NamedTuple):
    """A token with its first frame and the one after its last."""

    piece: str
    start: int
    end: int
    confidence: float


def words_of(tokens: Sequence[Token], frame_seconds: float) -> list[Word]:
    """Group aligned tokens into words; each lasts from the end of the previous word to the end of its own last token.

    In synthetic speech with known boundaries, models with character tokens emit the first token of a word 40 to 80 ms
    late, after blanks or a mark of its own, but the last one ends near the word's end. So the frames between two words
    belong to the second; the middle between their tokens was too late (benchmarks/word_times.py).
    """
    groups: list[list[Token]] = []
    for token in tokens:
        if token.piece.startswith(MARK) or not groups:
            groups.append([])
        groups[-1].append(token)
    spoken = [own for group in groups if (own := [each for each in group if each.piece != MARK])]
    edges = [*(own[0].start for own in spoken[:1]), *(own[-1].end for own in spoken)]
    times = [edge_seconds(edge, frame_seconds) for edge in edges]
    return [Word(*span, *text_of(own)) for span, own in zip(pairwise(times), spoken, strict=True)]


def edge_seconds(frame: int, frame_seconds: float) -> float:
    """The time between a frame of the encoder and the one before it.

    Every convolution is centered, so the middle of frame t is that of the window of samples at t · frame_seconds.
    """
    return max((frame - 0.5) * frame_seconds + WINDOW / SAMPLE_RATE / 2, 0.0)


def text_of(tokens: Sequence[Token]) -> tuple[str, float]:
    """The text of a word and its confidence."""
    log_confidence = sum(math.log(max(each.confidence, 1e-9)) for each in tokens) / len(tokens)
    return "".join(each.piece for each in tokens).removeprefix(MARK), math.exp(log_confidence)


def in_recording(words: Sequence[Word], clip: Clip) -> Iterator[Word]:
    """The words of a clip at their times in the recording, without pauses before and after them.

    CTC may emit the last token before a pause anywhere in it; the level of the samples tells where the sound ends.
    """
    if not words:
        return
    speech = np.array(speech_runs(frame_levels(clip.samples, SAMPLE_RATE), PAUSE)).reshape(-1, 2) / LEVELS
    for word in words:
        end = min(word.end, clip.seconds)
        start = min(word.start, end)
        if len(own := speech[(speech[:, 0] < end) & (speech[:, 1] > start)]):
            start, end = max(start, float(own[0, 0])), min(end, float(own[-1, 1]))
        yield replace(word, start=clip.start + start, end=clip.start + end)


def encode_clips(model: SpeechRecognizer, clips: Sequence[Clip]) -> Frames:
    """Encode a batch of clips."""
    samples = torch.tensor([len(clip.samples) for clip in clips])
    return model.frames(Batch.of_audio(stack([clip.samples for clip in clips]), samples).to(model.device))

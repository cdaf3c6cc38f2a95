"""Where a recognizer finds the words of an utterance: CTC's word times, or the weights of attention."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from priormatch.data.clips import Clip
from priormatch.data.tokenizer import MARK
from priormatch.errors import UserError
from priormatch.recognizers.decode import evaluating
from priormatch.recognizers.heads import Frames
from priormatch.recognizers.load import load_recognizer
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.recognizers.transcribing import align_words, edge_seconds, encode_clips, in_recording
from priormatch.report.pictures import shaded
from priormatch.runs.stage import MATCHING


@dataclass(frozen=True)
class Place:
    """A part of an utterance, in percent of its duration, with the text there."""

    left: float
    width: float
    text: str


@dataclass(frozen=True)
class Alignment:
    """The words of a text on the time axis; for attention, a picture of the weights, with a row for each token."""

    text: str
    words: Sequence[Place] = ()
    tokens: Sequence[str] = ()
    weights: str = ""
    left: float = 0.0
    width: float = 100.0


def model_of(folder: Path) -> SpeechRecognizer | str:
    """The recognizer that matching left in a run's folder, or why there is none."""
    places = [place for place in (folder / MATCHING / "model", folder / "model") if place.is_dir()]
    if not places:
        return "matching has left no model yet"
    try:
        return load_recognizer(places[0])
    except (UserError, OSError) as error:
        return f"{places[0]} cannot be loaded: {error}"


@torch.no_grad()
def align_text(model: SpeechRecognizer, samples: np.ndarray, text: str) -> Alignment | None:
    """Align a text with samples (N,) at 16 kHz; None if there is nothing to align or it does not fit."""
    classes = model.tokenizer.encode(text)
    if not classes:
        return None
    clip = Clip(0.0, samples)
    labels = torch.tensor([[*classes, model.tokenizer.eos]], device=model.device)
    lengths = torch.tensor([labels.shape[1]], device=model.device)
    with evaluating(model):
        frames = encode_clips(model, [clip])
        if not int(frames.lengths):
            return None
        if model.decoder is not None and (model.ctc_head is None or model.head.limited):
            return of_attention(model, frames, labels, text, clip.seconds)
        (found,) = align_words(model, frames, labels, lengths)
    words = [place_of(each.start, each.end, clip.seconds, each.text) for each in in_recording(found, clip)]
    return Alignment(text, words) if words else None


def of_attention(
    model: SpeechRecognizer, frames: Frames, labels: torch.Tensor, text: str, seconds: float
) -> Alignment:
    """Draw the attention weights of a text's tokens, labels (1, U), each row relative to its largest."""
    head = model.attention_head
    weights = head.decoder.attention(head.memory(frames), labels[:, None])[0, 0].float()  # (U, T)
    tokens = [*(model.tokenizer.pieces[each].replace(MARK, " ") for each in labels[0, :-1].tolist()), "end"]
    start, end = (edge_seconds(each, model.frame_seconds) for each in (0, weights.shape[1]))
    whole = place_of(start, end, seconds, text)
    relative = (weights / weights.amax(dim=1, keepdim=True).clamp(min=1e-9)).cpu().numpy()
    return Alignment(text, (), tokens, shaded(relative), whole.left, whole.width)


def place_of(start: float, end: float, seconds: float, text: str) -> Place:
    """A part of an utterance from start to end, both in seconds, in percent of its duration."""
    left, right = (100 * min(max(each / seconds, 0.0), 1.0) for each in (start, end))
    return Place(round(left, 2), round(right - left, 2), text)

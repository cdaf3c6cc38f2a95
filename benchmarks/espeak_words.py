"""A program that prints when espeak-ng speaks each word: JSON requests on standard input, JSON on standard output.

A request is a text, a voice, a rate and a pitch, as in `priormatch.prepare.espeak`. This program, too, runs as a
separate process, for the same reasons.
"""

import ctypes
import itertools
import json
import sys
from array import array

from priormatch.prepare.espeak import SAMPLE_RATE, Espeak

LAST, WORD, END = 0, 1, 5  # kinds of events in espeak-ng's speak_lib.h


class Event(ctypes.Structure):
    """espeak_EVENT; text positions count characters from 1."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("message", ctypes.c_uint),
        ("position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("milliseconds", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    )


class TimedEspeak(Espeak):
    """espeak-ng that also keeps the times of the words."""

    def __init__(self) -> None:
        super().__init__()
        self.starts: dict[int, float] = {}

    def _collect(self, wave: int | None, count: int, events: int | None) -> int:
        each = ctypes.cast(events, ctypes.POINTER(Event))
        number = 0
        while events and (event := each[number]).kind != LAST:
            if event.kind in (WORD, END):
                self.starts[event.position] = event.sample / SAMPLE_RATE
            number += 1
        return super()._collect(wave, count, events)

    def boundaries(self, text: str, voice: str, rate: int, pitch: int) -> list[float | None]:
        """The start of each word and the end of the last one in seconds; None between words spoken as one."""
        self.starts.clear()
        samples = array("h", self.speak(text, voice, rate, pitch))
        audible = max(map(abs, samples)) / 50
        sound = [number for number, sample in enumerate(samples) if abs(sample) > audible]
        positions = itertools.accumulate((len(word) + 1 for word in text.split()[:-1]), initial=1)
        found = [self.starts.get(position) for position in (*positions, len(text))]
        return [sound[0] / SAMPLE_RATE, *found[1:-1], sound[-1] / SAMPLE_RATE]


if __name__ == "__main__":
    espeak = TimedEspeak()
    json.dump([espeak.boundaries(*request) for request in json.load(sys.stdin)], sys.stdout)

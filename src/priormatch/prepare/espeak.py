"""A program that synthesizes speech with espeak-ng: JSON requests on standard input, samples on standard output.

It runs as a separate process, for two reasons. The library's output depends on its earlier output (its
oscillators are never reset), while a fresh process always gives the same output. And espeak-ng is under the GPL:
it is loaded only here, and this file imports nothing from priormatch.
"""

import ctypes
import json
import sys
from typing import BinaryIO

SAMPLE_RATE = 22050
SYNCHRONOUS, UTF8, RATE, PITCH = 2, 1, 1, 3  # named constants of espeak-ng's speak_lib.h
Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


class Espeak:
    """The espeak-ng library, loaded once per process."""

    def __init__(self) -> None:
        import espeakng_loader

        self.samples = bytearray()
        self.library = ctypes.CDLL(espeakng_loader.get_library_path())
        self.callback = Callback(self._collect)  # keep a reference, or it is freed while the library calls it
        rate = self.library.espeak_Initialize(SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), 0)
        if rate != SAMPLE_RATE:
            raise RuntimeError(f"espeak_Initialize returned {rate}, not {SAMPLE_RATE}")
        self.library.espeak_SetSynthCallback(self.callback)

    def _collect(self, wave: int | None, count: int, _events: int | None) -> int:
        if wave and count > 0:
            self.samples += ctypes.string_at(wave, 2 * count)
        return 0

    def speak(self, text: str, voice: str, rate: int, pitch: int) -> bytes:
        """Synthesize a text; return 16-bit samples in the machine's byte order.

        `voice` is `accent+variant`, `rate` is in words per minute, `pitch` is from 0 to 99.
        """
        self.samples.clear()
        self.library.espeak_ng_SetRandSeed(ctypes.c_long(1))  # otherwise taken from the clock
        if self.library.espeak_SetVoiceByName(voice.encode()) != 0:
            raise RuntimeError(f"espeak-ng has no voice {voice!r}")
        self.library.espeak_SetParameter(RATE, rate, 0)
        self.library.espeak_SetParameter(PITCH, pitch, 0)
        encoded = text.encode() + b"\0"
        self.library.espeak_Synth(encoded, ctypes.c_size_t(len(encoded)), 0, 1, 0, UTF8, None, None)
        return bytes(self.samples)


def main(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer each request (text, voice, rate, pitch) with the size of the samples in four bytes, then the samples."""
    espeak = Espeak()
    for text, voice, rate, pitch in json.load(requests):
        samples = espeak.speak(text, voice, rate, pitch)
        answers.write(len(samples).to_bytes(4, "little") + samples)


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)

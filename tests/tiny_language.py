"""A tiny language: ten words, each of which sounds like a tone of its own."""

import numpy as np

WORDS = ["monday", "tuesday", "morning", "evening", "meeting", "doctor", "at", "nine", "ten", "with"]
WORD_SECONDS = 0.2


def sentences(count: int, seed: int = 0, most_words: int = 6) -> list[str]:
    """Sentences of the tiny language: one to `most_words` of its ten words."""
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(1, most_words + 1))) for _ in range(count)]


def speak(text: str, rate: int = 16_000) -> np.ndarray:
    """Say a sentence: each word is a tone of its own, 0.2 s long, in a little noise."""
    time = np.arange(round(WORD_SECONDS * rate)) / rate
    tones = [0.3 * np.sin(2 * np.pi * (250 + 300 * WORDS.index(word)) * time) for word in text.split()]
    noise = np.random.default_rng(len(text)).normal(0, 0.002, len(time) * len(tones))
    return np.concatenate(tones) + noise

"""Overlap of the transcripts with the prior's text."""

from collections.abc import Iterable, Iterator

from priormatch.data.normalizer import ENGLISH, Normalizer

NGRAM = 8  # words in a row, hardly ever shared by chance


class TranscriptOverlap:
    """Finds transcripts in a stream of normalized sentences; memory grows with the transcripts only."""

    def __init__(self, transcripts: Iterable[str], normalizer: Normalizer = ENGLISH) -> None:
        self.transcripts = {normalizer(transcript) for transcript in transcripts} - {""}
        self.seen_transcripts: set[str] = set()
        self.equal_sentences = 0
        self.dropped_sentences = 0
        self._ngrams = {ngram for transcript in self.transcripts for ngram in _ngrams(transcript.split())}
        self._seen_ngrams: set[int] = set()

    @property
    def shared_ngrams(self) -> float:
        """Percentage of the transcripts' distinct 8-word runs found so far."""
        return 100 * len(self._seen_ngrams) / max(1, len(self._ngrams))

    def watch(self, sentences: Iterable[str], drop: bool = False) -> Iterator[str]:
        """Yield the sentences and count their overlap with the transcripts.

        A sentence overlaps if it equals a transcript, or if a run of eight words that ends in it is also in a
        transcript; the run may begin in earlier sentences. With `drop`, such a sentence is not yielded.
        """
        if not self.transcripts:
            yield from sentences
            return
        before: list[str] = []
        for sentence in sentences:
            words = before + sentence.split()
            shared = self._ngrams.intersection(_ngrams(words))
            self._seen_ngrams |= shared
            equal = sentence in self.transcripts
            if equal:
                self.equal_sentences += 1
                self.seen_transcripts.add(sentence)
            if drop and (equal or shared):
                self.dropped_sentences += 1
                continue
            before = words[1 - NGRAM :]
            yield sentence


def _ngrams(words: list[str]) -> Iterator[int]:
    """Hash all 8-word runs: hashes are far smaller than the words, and 64 bits hardly ever collide."""
    return map(hash, zip(*(words[start:] for start in range(NGRAM)), strict=False))

"""Reference lengths from transcripts and from the speaking rate."""

from collections.abc import Callable
from pathlib import Path

import pytest

from priormatch.data.corpus import read_cuts
from priormatch.data.tokenizer import Tokenizer
from priormatch.matching.reference_lengths import lengths_by_rate, oracle_lengths, pieces_a_second


def test_lengths_by_hand(tiny_corpus: Callable[..., Path], tiny_tokenizer: Tokenizer) -> None:
    cuts = read_cuts(tiny_corpus(["monday at nine", "ten"]))
    pieces = [len(tiny_tokenizer.encode(text)) for text in ("monday at nine", "ten")]
    assert list(oracle_lengths(cuts, tiny_tokenizer).values()) == pieces
    rate = pieces_a_second(cuts, tiny_tokenizer)
    assert rate == pytest.approx(sum(pieces) / (0.6 + 0.2), rel=1e-3), "a word lasts 0.2 s"
    durations = [cut.duration for cut in cuts]
    assert lengths_by_rate("ab", durations, 5.0) == {"a": 3, "b": 1}
    assert lengths_by_rate("ab", durations, 0.1) == {"a": 1, "b": 1}, (
        "never none: a filter would drop them all"
    )


def test_utterances_without_a_transcript_do_not_count(
    tiny_corpus: Callable[..., Path], tiny_tokenizer: Tokenizer
) -> None:
    cuts = read_cuts(tiny_corpus(["monday at nine", "ten"]))
    rate = pieces_a_second(cuts[:1], tiny_tokenizer)
    cuts[1].supervisions[0].text = None
    assert pieces_a_second(cuts, tiny_tokenizer) == rate
    assert list(oracle_lengths(cuts, tiny_tokenizer)) == [cuts[0].id]

"""Loops: an attention model that has lost its place says the same again until the search gives up."""

LEAST = 12
"""Characters that are said again, before it is called a loop."""


def without_loop(text: str) -> str:
    """What a search broke off, without what it repeats at its end: one round of a loop stays.

    The end of a text is a loop where its last n characters also stand p characters earlier, with n at least p, so
    that the round is said twice or more; n is as large as it can be. A word that is cut through stays whole.
    """
    again = (_said_again(text, period) for period in range(1, len(text) // 2 + 1))
    end = len(text) - max(again, default=0)
    if text[end - 1 : end] != " " and " " in text[end:]:
        end = text.index(" ", end)
    return text[:end].rstrip()


def _said_again(text: str, period: int) -> int:
    """How many characters at the end of a text also stand so much earlier; 0 for too few to make a loop."""
    earlier = zip(reversed(text), reversed(text[:-period]), strict=False)
    count = next((at for at, (one, other) in enumerate(earlier) if one != other), len(text) - period)
    return count if count >= max(period, LEAST) else 0

"""Loops: an attention model that has lost its place says the same again until the search gives up."""

LEAST = 12
"""Characters that are said again, before it is called a loop."""


def without_loop(text: str) -> str:
    """What a search broke off, without what it repeats at its end: one round of a loop stays.

    The end of a text is a loop where its last n characters also stand p characters earlier, with n at least p, so
    that the round is said twice or more; n is as large as it can be. A word that is cut through stays whole.
    """
    again = (count for period, count in enumerate(_said_again(text)) if count >= max(period, LEAST))
    end = len(text) - max(again, default=0)
    if text[end - 1 : end] != " " and " " in text[end:]:
        end = text.index(" ", end)
    return text[:end].rstrip()


def _said_again(text: str) -> list[int]:
    """For every p from 1 on, how many characters at the end of a text also stand p characters earlier.

    Backwards these are the common beginnings of a text and of what follows its p-th character, which the Z algorithm
    finds in linear time: within the one that reaches farthest so far, most is known already.
    """
    backwards, found = text[::-1], [0] * len(text)
    begin = end = 0  # of the one that reaches farthest
    for period in range(1, len(text)):
        count = max(min(found[period - begin], end - period), 0)
        while period + count < len(text) and backwards[count] == backwards[period + count]:
            count += 1
        if period + count > end:
            begin, end = period, period + count
        found[period] = count
    return found

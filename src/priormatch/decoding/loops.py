"""Loops: an attention model that loses its place repeats the same text until the search gives up."""

LEAST = 12
"""Minimum number of repeated characters in a loop."""


def without_loop(text: str) -> str:
    """Remove the repetitions at the end of an unfinished hypothesis; the first round of the loop stays.

    The end of a text is a loop if its last n characters also occur p characters earlier, with n at least p, so that
    the round occurs at least twice. The largest such n is used. A word that the cut would split is kept whole.
    """
    again = (count for period, count in enumerate(_said_again(text)) if count >= max(period, LEAST))
    end = len(text) - max(again, default=0)
    if text[end - 1 : end] != " " and " " in text[end:]:
        end = text.index(" ", end)
    return text[:end].rstrip()


def _said_again(text: str) -> list[int]:
    """For every p >= 1, how many characters at the end of a text also occur p characters earlier.

    In the reversed text these are the longest common prefixes of the text and its suffix after p characters, which the
    Z algorithm finds in linear time: the match that reaches farthest so far provides most of the next ones.
    """
    backwards, found = text[::-1], [0] * len(text)
    begin = end = 0  # of the match that reaches farthest
    for period in range(1, len(text)):
        count = max(min(found[period - begin], end - period), 0)
        while period + count < len(text) and backwards[count] == backwards[period + count]:
            count += 1
        if period + count > end:
            begin, end = period, period + count
        found[period] = count
    return found

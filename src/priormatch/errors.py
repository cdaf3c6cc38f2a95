"""The one exception meant for the user's eyes."""

LONGEST, HEAD, TAIL = 1500, 1000, 400
"""Characters of a message, and those kept at its ends where it has more: a name in it may have any length."""


class UserError(Exception):
    """Something the user can put right; the command line prints its one sentence and exits with code 2."""

    def __str__(self) -> str:
        message = super().__str__()
        return message if len(message) <= LONGEST else f"{message[:HEAD]} [...] {message[-TAIL:]}"

"""The one exception meant for the user's eyes."""

LONGEST, HEAD, TAIL = 1500, 1000, 400
"""Characters of a message, and those kept at its ends where it has more: a name in it may have any length."""


CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""Characters that would steer a terminal, and what is shown for them: names in messages may be anybody's."""


class UserError(Exception):
    """Something the user can put right; the command line prints its one sentence and exits with code 2."""

    def __str__(self) -> str:
        message = super().__str__().translate(CONTROL)
        return message if len(message) <= LONGEST else f"{message[:HEAD]} [...] {message[-TAIL:]}"

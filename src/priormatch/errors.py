"""The exception whose message is shown to the user."""

LONGEST, HEAD, TAIL = 1500, 1000, 400
"""Maximum length of a message, and the characters kept at its start and end if it is longer (names can be long)."""


CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""Terminal control characters and their replacements, because names in messages may be untrusted."""


class UserError(Exception):
    """An error the user can fix; the command line prints its message and exits with code 2."""

    def __str__(self) -> str:
        message = super().__str__().translate(CONTROL)
        return message if len(message) <= LONGEST else f"{message[:HEAD]} [...] {message[-TAIL:]}"


class Refused(UserError):
    """Matching cannot start from the models that it was given."""


def one_line(error: Exception) -> str:
    """The message of an error on one line, cut to 200 characters; the name of its class if there is none."""
    return " ".join(str(error).split())[:200] or type(error).__name__

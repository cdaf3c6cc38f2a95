"""The one exception meant for the user's eyes."""


class UserError(Exception):
    """Something the user can put right; the command line prints its one sentence and exits with code 2."""

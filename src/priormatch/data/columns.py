"""Columns of tables, JSON lines and data sets: the names that they usually bear, and text that seems to be missed."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from priormatch.errors import UserError
from priormatch.progress import say

AUDIO = (
    *("path", "audio", "file", "file_name", "filename", "audio_filepath", "audio_path"),
    *("wav", "wav_filename"),
)
TEXT = ("text", "sentence", "transcript", "transcription", "normalized_text")
SPEAKER = ("speaker", "speaker_id", "client_id")
ID = ("id", "utterance_id")

NAME_AUDIO = "name it with `priormatch prepare audio --audio-column`"
LOOKED_AT = 100
"""Lines in which text is looked for."""


def usual(names: Iterable[str], known: Sequence[str]) -> str | None:
    """The column that bears the first of the known names, in small letters or capitals; None if there is none."""
    found = {name.lower(): name for name in names}
    return next((found[each] for each in known if each in found), None)


def required(place: object, wanted: str, fit: Collection[str]) -> str:
    """The name of a column, if it is one of those that will do."""
    if wanted not in fit:
        raise UserError(
            f"{place}: {wanted} is no column that can be read so; name one of {', '.join(fit) or 'another set'}."
        )
    return wanted


def say_columns(place: object, read: Collection[str | None], names: Collection[str]) -> None:
    """Tell which columns are read, where others are not."""
    used = [name for name in names if name in read]
    if len(used) < len(names):
        say(f"{place}: reading the columns {', '.join(used)} of {', '.join(names)}")


def warn_of_text(place: object, unused: Mapping[str, Iterable[str]]) -> None:
    """Warn where nothing is transcribed although the cells of a column that is not used look like text."""
    for name, cells in unused.items():
        filled = list(filter(None, cells))
        if filled and sum(map(looks_like_text, filled)) > len(filled) / 2:
            say(
                f"warning: {place}: nothing is transcribed, though the column {name} looks like text; "
                f"if that is the transcript, call `priormatch prepare audio --text-column {name}`"
            )


def looks_like_text(cell: str) -> bool:
    """Whether a cell holds several words, or letters of a script that may not part them."""
    return len(cell.split()) > 1 or not cell.isascii()

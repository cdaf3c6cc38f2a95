"""Fixed splits: the cuts whose ids are listed in a file."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from lhotse import CutSet, MonoCut
from lhotse.utils import fastcopy

from priormatch.data.corpus import read_cuts
from priormatch.data.manifest import SUFFIX
from priormatch.errors import UserError
from priormatch.files import open_regular, replacing

SHOWN = 3  # missing ids in a message


def write_split(
    manifests: Sequence[Path], ids: Path, out: Path, *, no_text: bool = False, overwrite: bool = False
) -> list[MonoCut]:
    """Write the cuts with the listed ids, in the order of the list, and return them; `no_text` drops transcripts.

    Every id must be in one of the manifests; of cuts with the same id the first is taken.
    """
    if not out.name.endswith(SUFFIX):
        raise UserError(f"the name of the manifest {out} must end in {SUFFIX}")
    if out.exists() and not overwrite:
        raise UserError(f"{out} exists already: delete it, choose another place, or add --overwrite")
    wanted = read_ids(ids)
    found: dict[str, MonoCut] = {}
    for cut in (cut for path in manifests for cut in read_cuts(path)):
        if cut.id in wanted:
            found.setdefault(cut.id, cut)
    if missing := [each for each in wanted if each not in found]:
        raise UserError(
            f"{len(missing):,} of {len(wanted):,} ids of {ids} are in none of the manifests, such as"
            f" {', '.join(missing[:SHOWN])}: prepare the whole corpus, and pass all its manifests"
        )
    cuts = [without_text(found[each]) if no_text else found[each] for each in wanted]
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as temporary:
        CutSet.from_cuts(cuts).to_file(temporary)
    return cuts


def read_ids(path: Path) -> dict[str, None]:
    """The ids in a file, one per line; lines that start with # are comments."""
    try:
        with open_regular(path) as file:
            lines = file.read().decode().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot read {path} ({error}): provide a text file with one utterance id per line"
        ) from error
    ids = dict.fromkeys(stripped(lines))
    if not ids:
        raise UserError(f"{path} lists no utterance ids: provide a text file with one per line")
    return ids


def stripped(lines: Iterable[str]) -> Iterable[str]:
    """The lines that are neither empty nor comments."""
    return (line.strip() for line in lines if line.strip() and not line.startswith("#"))


def without_text(cut: MonoCut) -> MonoCut:
    """The cut without its transcript, and without other transcripts in its custom fields."""
    segments = [replace(each, text=None, custom=None, alignment=None) for each in cut.supervisions]
    return fastcopy(cut, supervisions=segments)

"""Download and upload of models on the Hugging Face Hub."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from priormatch import __version__
from priormatch.errors import UserError
from priormatch.files import replace_text
from priormatch.recognizers.card import CARD

FETCHED = (
    "model.safetensors",
    "model-*.safetensors",
    "model.safetensors.index.json",
    "*.yaml",
    "*config.json",  # also of the tokenizer, the features and the decoding of Hugging Face models
    "*.model",
    "tokenizer.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "normalizer.json",
    "README.md",
)
"""The files of a model, of this package or of Hugging Face; no pickles and no code."""
NAME = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?")


def model_folder(given: str | os.PathLike[str]) -> Path:
    """The folder of a model: the given one, or a download of `owner/name[@revision]` from the Hub."""
    found = NAME.fullmatch(str(given))
    if found is None or Path(given).exists():
        return Path(given)
    return fetch(found["name"], found["revision"])


def origin_of(folder: Path) -> tuple[str, str] | None:
    """The name and the commit of a model in the Hub's cache, SNAPSHOTS/COMMIT; None for any other folder."""
    repository = folder.parent.parent.name
    if folder.parent.name != "snapshots" or not repository.startswith("models--"):
        return None
    return repository.removeprefix("models--").replace("--", "/"), folder.name


def identity_of(model: Path) -> dict[str, str]:
    """What tells a pretrained model from others: its name on the Hub and commit, or a hash of its files."""
    if (origin := origin_of(model.absolute())) is not None:
        return dict(zip(("name", "commit"), origin, strict=True))
    if not model.exists():
        raise UserError(f"{model}: there is no such model here: check the path, or the name on the Hub")
    files = sorted(each for each in model.iterdir() if each.is_file()) if model.is_dir() else [model]
    content = {file.name: _sha256(file, _times(file)) for file in files if file.name != CARD}
    return {"sha256": hashlib.sha256(repr(content).encode()).hexdigest()}


def fetch(name: str, revision: str | None = None) -> Path:
    """Download a model into the Hub's cache, or find it there; only the files in `FETCHED`."""
    hub = import_hub(f"there is no folder {name} here, and downloading the model of that name from the Hub")
    errors = hub.errors
    try:
        folder = Path(hub.snapshot_download(name, revision=revision, allow_patterns=list(FETCHED)))
    except errors.RevisionNotFoundError as error:
        raise UserError(f"{name} on the Hub has no revision {revision}: remove @{revision}") from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f"there is no folder {name} here, and no model of that name on the Hub that you can access: check the"
            " name, or log in with `hf auth login` if it is private"
        ) from error
    except Exception as error:  # whatever its network library raises, which differs between versions
        raise UserError(
            f"there is no folder {name} here, and the download from the Hub failed ({reason(error)}): check the path,"
            " or the connection"
        ) from error
    if not any((folder / file).is_file() for file in ("model.yaml", "config.json")):
        what = (
            "contains no priormatch model and no Hugging Face model" if any(folder.glob("*")) else "is empty"
        )
        raise UserError(f"{name} on the Hub {what}: check the name, or push a model there")
    return folder


def require_name(name: str) -> None:
    """Refuse names that are not valid on the Hub."""
    found = NAME.fullmatch(name)
    if found is None or found["revision"]:
        raise UserError(
            f"{name} is not a valid name on the Hub: use owner/name, and a branch with --revision"
        )


@contextmanager
def staged(folder: Path, files: list[str], texts: Mapping[str, str]) -> Iterator[Path]:
    """Yield a temporary folder with links to files of a folder, and with texts that replace some of them."""
    with TemporaryDirectory() as made:
        for file in files:
            if file in texts:
                replace_text(Path(made, file), texts[file])
            elif (folder / file).is_file():
                Path(made, file).symlink_to((folder / file).resolve())
        yield Path(made)


def upload(
    folder: Path,
    files: list[str],
    name: str,
    private: bool = False,
    revision: str | None = None,
    *,
    texts: Mapping[str, str],
) -> str:
    """Upload files of a folder to `owner/name` on the Hub as one commit; return the model's URL.

    Files named in `texts` are uploaded with these contents; those in the folder stay as they are. The repository is
    created if necessary. Listed files that the folder does not have are deleted there, because they belong to an older
    model; other files stay. The token is that of `hf auth login` or the environment variable HF_TOKEN.
    """
    lacking = [file for file in files if file not in texts and not (folder / file).is_file()]
    hub = import_hub("uploading to the Hub")
    errors, api = hub.errors, hub.HfApi()
    try:
        api.create_repo(name, private=private or None, exist_ok=True)
        exposed = private and not api.model_info(name).private  # it existed before and is public
        if revision is not None and not exposed:
            api.create_branch(name, branch=revision, exist_ok=True)
        if not exposed:
            with staged(folder, files, texts) as complete:
                api.upload_folder(
                    repo_id=name,
                    folder_path=complete,
                    delete_patterns=lacking or None,
                    revision=revision,
                    commit_message=f"Written by priormatch {__version__}",
                )
    except Exception as error:  # whatever its network library raises, which differs between versions
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403) or isinstance(error, errors.LocalTokenNotFoundError):
            way_out = "log in with `hf auth login`, using a token with write access"
        elif "xet" in str(error).lower():
            way_out = "the Xet servers cannot be reached; set HF_HUB_DISABLE_XET=1, and try again"
        else:
            way_out = "check the connection, and try again"
        raise UserError(f"{folder} could not be pushed to {name} ({reason(error)}): {way_out}") from error
    if exposed:
        raise UserError(f"{name} is public on the Hub: make it private there, or choose another name")
    return f"{api.endpoint}/{name}" + (f"/tree/{revision}" if revision else "")


def import_hub(purpose: str) -> Any:
    """Import huggingface_hub, or raise an error that says how to install it."""
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise UserError(
            f"{purpose} needs huggingface_hub: install it with pip install 'priormatch[hub]'"
        ) from error
    return huggingface_hub


def _times(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


@cache
def _sha256(file: Path, times: tuple[int, int]) -> str:
    """The hash of a file, computed again if its size or time changes."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def reason(error: Exception) -> str:
    """The first line of an error message."""
    said = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return said.removeprefix("Got: ").rstrip(".: ")

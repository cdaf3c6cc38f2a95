"""Models on the Hugging Face Hub: fetched by their names, and put there."""

import os
import re
from pathlib import Path
from typing import Any

from priormatch import __version__
from priormatch.errors import UserError

FETCHED = ("*.safetensors", "*.yaml", "tokenizer.model", "README.md")
NAME = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?")


def model_folder(given: str | os.PathLike[str]) -> Path:
    """The folder of a model: the one given, or a copy of what the Hub has under `owner/name[@revision]`."""
    found = NAME.fullmatch(str(given))
    if found is None or Path(given).exists():
        return Path(given)
    return fetch(found["name"], found["revision"])


def fetch(name: str, revision: str | None = None) -> Path:
    """Download a model into the Hub's cache, or find it there; nothing but weights, settings, pieces and card."""
    hub = import_hub(f"there is no folder {name} here, and to fetch the model of that name from the Hub")
    errors = hub.errors
    try:
        folder = Path(hub.snapshot_download(name, revision=revision, allow_patterns=list(FETCHED)))
    except errors.RevisionNotFoundError as error:
        raise UserError(f"{name} on the Hub has no revision {revision}: leave @{revision} out") from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f"there is no folder {name} here, and no model of that name on the Hub that you may see: check the name,"
            " or log in with `hf auth login` if it is private"
        ) from error
    except Exception as error:  # whatever its network library raises, which differs between versions
        raise UserError(
            f"there is no folder {name} here, and the Hub cannot be asked for it ({reason(error)}): check the path,"
            " or the connection"
        ) from error
    if not (folder / "model.yaml").is_file():
        what = "holds no model of priormatch" if any(folder.glob("*")) else "is empty"
        raise UserError(f"{name} on the Hub {what}: check the name, or push a model there")
    return folder


def require_name(name: str) -> None:
    """Refuse what no model on the Hub can be called."""
    found = NAME.fullmatch(name)
    if found is None or found["revision"]:
        raise UserError(f"{name} is no name on the Hub: give owner/name, and a branch by --revision")


def upload(
    folder: Path, files: list[str], name: str, private: bool = False, revision: str | None = None
) -> str:
    """Put files of a folder on the Hub as one commit of `owner/name`, made if need be; the model's address.

    Those that the folder lacks are removed there, as an older model's; other files stay. The token is that of
    `hf auth login` or of the environment variable HF_TOKEN.
    """
    lacking = [file for file in files if not (folder / file).is_file()]
    hub = import_hub("to reach the Hub")
    errors, api = hub.errors, hub.HfApi()
    try:
        api.create_repo(name, private=private or None, exist_ok=True)
        exposed = private and not api.model_info(name).private  # it was there before, and for all to see
        if revision is not None and not exposed:
            api.create_branch(name, branch=revision, exist_ok=True)
        if not exposed:
            api.upload_folder(
                repo_id=name,
                folder_path=folder,
                allow_patterns=files,
                delete_patterns=lacking or None,
                revision=revision,
                commit_message=f"Written by priormatch {__version__}",
            )
    except Exception as error:  # whatever its network library raises, which differs between versions
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403) or isinstance(error, errors.LocalTokenNotFoundError):
            way_out = "log in with `hf auth login`, with a token that may write there"
        elif "xet" in str(error).lower():
            way_out = "Xet's servers are out of reach; set HF_HUB_DISABLE_XET=1, and call it again"
        else:
            way_out = "check the connection, and call it again"
        raise UserError(f"{folder} could not be pushed to {name} ({reason(error)}): {way_out}") from error
    if exposed:
        raise UserError(f"{name} is public on the Hub: make it private there, or give another name")
    return f"{api.endpoint}/{name}" + (f"/tree/{revision}" if revision else "")


def import_hub(purpose: str) -> Any:
    """The library that speaks to the Hub, or a word on how to get it."""
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise UserError(
            f"{purpose} takes huggingface_hub: install it with pip install 'priormatch[hub]'"
        ) from error
    return huggingface_hub


def reason(error: Exception) -> str:
    """The first line of what an error says."""
    said = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return said.removeprefix("Got: ").rstrip(".: ")

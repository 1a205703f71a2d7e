"""The Hugging Face hub: `hf://owner/name` as a directory, and uploads to it.

The package huggingface_hub does the work and keeps its own rules: the cache
(HF_HOME, HF_HUB_CACHE), HF_HUB_OFFLINE, HF_ENDPOINT for a mirror, and the token
of HF_TOKEN or of `hf auth login`. Its errors become one line here.
"""

import contextlib
import dataclasses
import os
import re
import sys
from collections.abc import Collection, Iterator
from typing import Any

from albert_tf.config import UserError

SCHEME = "hf://"
_REPOSITORY = r"[\w.-]+/[\w.-]+"
_FORM = re.compile(rf"{SCHEME}({_REPOSITORY})(?:@([^\s@]+?))?/?")
# The origin that the client's requests name.
_LIBRARY = "albert_tf"
# Errors that the client raises beside its own; others are bugs.
_FAILURES = (OSError, ValueError, RuntimeError)
# Released under the owner `albert`; the name alone is in many tutorials.
_RELEASED = re.compile(r"albert-(base|large|xlarge|xxlarge)-v[12]")
# Where a browser shows a model.
_PAGES = re.compile(rf"https?://huggingface\.co/({_REPOSITORY})(/.*)?")


@dataclasses.dataclass(frozen=True)
class HubModel:
    """A repository of models on the hub, and its revision.

    Attributes:
        repository: as `owner/name`.
        revision: a branch, tag or commit; None is the branch main.
    """

    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"{SCHEME}{self.repository}{revision}"


@dataclasses.dataclass(frozen=True)
class Contents:
    """The state of a repository at a commit.

    Attributes:
        commit: its hash.
        names: of all files.
        is_private: whether only some may read it.
    """

    commit: str
    names: tuple[str, ...]
    is_private: bool


def is_on_hub(path: str | os.PathLike[str]) -> bool:
    """Returns whether a path names a model on the hub.

    Raises UserError for the address of its page there.
    """
    name = os.fspath(path)
    if page := _PAGES.fullmatch(name):
        raise UserError(
            f"{name} is the address of a page; the model is given as "
            f"{SCHEME}{page[1]}."
        )
    return name.startswith(SCHEME)


def parse(path: str) -> HubModel:
    """Returns the repository and revision of an `hf://` path."""
    found = _FORM.fullmatch(path)
    if not found:
        raise UserError(
            f"{path}: expected {SCHEME}owner/name or "
            f"{SCHEME}owner/name@revision, such as "
            f"{SCHEME}albert/albert-base-v2."
        )
    return HubModel(found[1], found[2])


def hint(path: str | os.PathLike[str]) -> str:
    """Returns a sentence for a path that does not exist and looks like a name.

    It is empty for other paths: a name has one slash, and its owner is no
    directory here.
    """
    path = os.fspath(path)
    owner = path.partition("/")[0]
    if _RELEASED.fullmatch(path):
        path = f"albert/{path}"
    elif not re.fullmatch(_REPOSITORY, path) or os.path.exists(owner):
        return ""
    return f" A model of the Hugging Face hub is given as {SCHEME}{path}."


def download(path: str, names: Collection[str]) -> str:
    """Returns the directory in the cache with files of a repository.

    Args:
        path: an `hf://` path.
        names: files to download, where the repository has them; `*` matches
            any characters.

    Raises:
        UserError: when the repository or revision is missing or must not be
            read, or cannot be reached and is not in the cache.
    """
    model = parse(path)
    with _client(model) as package:
        return package.snapshot_download(
            model.repository,
            revision=model.revision,
            allow_patterns=sorted(names),
            library_name=_LIBRARY,
        )


def contents(model: HubModel) -> Contents:
    """Returns the names of a repository's files, from the hub itself."""
    with _client(model) as package:
        info = _api(package).model_info(
            model.repository, revision=model.revision
        )
        names = tuple(sorted(file.rfilename for file in info.siblings or ()))
        return Contents(info.sha, names, bool(info.private))


def create(model: HubModel, *, private: bool) -> None:
    """Creates a repository unless it exists.

    Where it is not private, it is as the owner's settings have it.
    """
    with _client(model) as package:
        _api(package).create_repo(
            model.repository, private=private or None, exist_ok=True
        )


def read_text(model: HubModel, commit: str, name: str) -> str:
    """Returns the text of a file of a repository."""
    path = download(str(HubModel(model.repository, commit)), [name])
    with open(os.path.join(path, name), encoding="utf-8", newline="") as file:
        return file.read()


def upload(
    model: HubModel,
    directory: str,
    *,
    message: str,
    parent: str,
    removed: Collection[str],
) -> str:
    """Adds the files of a directory in one commit; returns its address.

    Args:
        model: the repository, and a branch.
        directory: all files in it are uploaded.
        message: describes the commit.
        parent: the commit that it must follow.
        removed: names of files to remove.

    Raises:
        UserError: also when somebody changed the repository since `parent`.
    """
    with _client(model) as package:
        commit = _api(package).upload_folder(
            repo_id=model.repository,
            folder_path=directory,
            revision=model.revision,
            commit_message=message,
            parent_commit=parent,
            delete_patterns=sorted(removed),
        )
        return commit.commit_url


def _api(package: Any) -> Any:
    return package.HfApi(library_name=_LIBRARY)


@contextlib.contextmanager
def _client(model: HubModel) -> Iterator[Any]:
    """Yields huggingface_hub; its errors are raised as UserError."""
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError:
        raise UserError(
            f"{model} needs the package huggingface_hub: pip install "
            "huggingface_hub (requirements-hub.txt)."
        ) from None
    try:
        with _quietly():
            yield huggingface_hub
    except (*_FAILURES, errors.HTTPError, errors.XetDownloadError) as error:
        # Errors with a number are of this machine, such as a full disk.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise UserError(_explained(model, error)) from None


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Turns off the client's warnings and, in logs, its progress bars.

    Its warnings come before an error that says the same. What the user chose
    in HF_HUB_VERBOSITY and HF_HUB_DISABLE_PROGRESS_BARS stays.
    """
    from huggingface_hub import constants, utils

    with contextlib.ExitStack() as stack:
        if "HF_HUB_VERBOSITY" not in os.environ:
            logging = utils.logging
            stack.callback(logging.set_verbosity, logging.get_verbosity())
            logging.set_verbosity_error()
        is_chosen = constants.HF_HUB_DISABLE_PROGRESS_BARS is not None
        is_off = utils.are_progress_bars_disabled()
        if not (is_chosen or is_off or sys.stderr.isatty()):
            stack.callback(utils.enable_progress_bars)
            utils.disable_progress_bars()
        yield


def _explained(model: HubModel, error: Exception) -> str:
    """Returns a line on an error: what is wrong, and what to do."""
    from huggingface_hub import constants, errors

    hub, cache = constants.ENDPOINT, constants.HF_HUB_CACHE
    # The client looks in its cache when the hub does not answer.
    is_cached = isinstance(error, errors.LocalEntryNotFoundError)
    cause = error.__cause__ if is_cached and error.__cause__ else error
    if isinstance(cause, errors.OfflineModeIsEnabled):
        return (
            f"{model} is not, or not all of it, in the cache {cache}, and "
            "HF_HUB_OFFLINE=1 forbids to download it; run once without that."
        )
    if isinstance(cause, errors.HfHubHTTPError):
        return _refused(model, cause, hub)
    first = str(cause).strip().split("\n")[0] or type(cause).__name__
    if isinstance(cause, errors.HTTPError):
        missing = f", and it is not in the cache {cache}" * is_cached
        return (
            f"{model}: {hub} cannot be reached, or the connection broke "
            f"({first}){missing}. Check the network and HF_ENDPOINT; the same "
            "command continues the download."
        )
    return f"{model}: {hub}: {first}"


def _refused(model: HubModel, error: Any, hub: str) -> str:
    """Returns a line on an answer of the hub that is an error."""
    from huggingface_hub import errors

    status = error.response.status_code
    page = f"{hub}/{model.repository}"
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{model} is gated: ask for access at {page}, and set HF_TOKEN to "
            "a token of the account that has it."
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"{model}: {hub} has no such model, or it is private. Check the "
            "name; for a private one set HF_TOKEN to a token that may read it."
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return (
            f"{model}: there is no branch, tag or commit "
            f"{model.revision or 'main'} in {page}."
        )
    if status in (401, 403):
        return (
            f"{model}: {hub} refuses the token, or there is none (status "
            f"{status}). Set HF_TOKEN to a token with the right to do this."
        )
    if status == 412:
        return (
            f"{model} was changed while this program ran, and nothing was "
            "uploaded; run the same command again."
        )
    said = error.server_message or error.response.reason_phrase
    return (
        f"{model}: {hub} answered with status {status} "
        f"({' '.join(str(said).split())}); try again later."
    )

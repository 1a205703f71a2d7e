"""Uploads a model to the Hugging Face hub: `push_to_hub`."""

import os
import tempfile
from collections.abc import Mapping
from typing import Any

from albert_tf import __version__
from albert_tf.config import Log, listed, require
from albert_tf.interchange.convert import converted
from albert_tf.interchange.formats import FORMATS, REPLACEABLE
from albert_tf.interchange.model_card import (
    CARD_FILE,
    CardFacts,
    is_unedited,
    model_card,
)
from albert_tf.interchange.model_directory import (
    LoadedModel,
    find_initial_weights,
)
from albert_tf.io import files, hub
from albert_tf.jobs.run_card import facts_of_run
from albert_tf.modeling.weights import adapters
from albert_tf.rundir import run_results

# Formats that round weights.
_QUANTIZED = ("litert_int8",)
# Weights of a model that is replaced, in formats that are not written here.
_OTHER_WEIGHTS = (
    "pytorch_model*.bin",
    "pytorch_model.bin.index.json",
    "tf_model*.h5",
    "flax_model*.msgpack",
    "model.safetensors.index.json",
    "model-*-of-*.safetensors",
    # transformers adds adapters to the model beside them.
    adapters.CONFIG_FILE,
    "adapter_model.*",
    # The name of a directory alone matches no file.
    "1_Pooling/*",
    "assets/tokenizer/*",
)


def push_to_hub(
    from_path: str,
    to: str,
    to_format: str = "model_directory",
    *,
    private: bool = False,
    message: str = "",
    overwrite: bool = False,
    card_facts: Mapping[str, Any] | None = None,
    log: Log = print,
    **conversion: Any,
) -> str:
    """Uploads the model at `from_path` with a model card, in one commit.

    Files of an earlier model, whatever its format, are replaced; others stay,
    and so does a README.md that somebody else has written or edited.

    Args:
        from_path: a model or run directory, or another source of `convert`.
        to: `hf://owner/name`, made where it does not exist, or
            `hf://owner/name@branch`.
        to_format: a row of FORMATS.
        private: whether a new repository is private.
        message: of the commit.
        overwrite: whether the repository may hold a model already.
        card_facts: fields of CardFacts: `license`, `languages` and others.
        log: takes a line.
        **conversion: options of `converted`.

    Returns:
        The address of the commit.

    Raises:
        UserError: for what cannot be converted, and where the hub refuses.
    """
    model = hub.parse(to)
    loaded = converted(from_path, to_format, log=log, **conversion)
    facts = {"name": model.repository, **_facts_of_run(from_path)}
    if not _is_the_source(from_path, loaded, to_format, conversion):
        facts.pop("metrics", None)
    facts |= {"library": FORMATS[to_format].hub_library, **(card_facts or {})}
    kind = type(loaded.model).__name__
    with tempfile.TemporaryDirectory() as parent:
        # Some libraries name the model by its directory.
        directory = os.path.join(parent, model.repository.partition("/")[2])
        os.mkdir(directory)
        FORMATS[to_format].write(directory, loaded)
        facts["notes"] = _own_notes(directory)
        card = model_card(loaded, CardFacts(**facts))
        files.write(os.path.join(directory, CARD_FILE), card.encode())
        hub.create(model, private=private)
        found = hub.contents(model)
        _check(model, found, private=private, overwrite=overwrite)
        _keep_edited_card(model, found, directory, log)
        address = hub.upload(
            model,
            directory,
            message=message or f"{kind}, written by ALBERT-TF {__version__}",
            parent=found.commit,
            removed=(REPLACEABLE - {CARD_FILE}).union(_OTHER_WEIGHTS),
        )
    log(f"Uploaded to {model}: {to_format}, {kind}: {address}")
    return address


def _is_the_source(
    path: str,
    loaded: LoadedModel,
    to_format: str,
    conversion: Mapping[str, Any],
) -> bool:
    """Returns whether a converted model predicts what its source does."""
    kinds = find_initial_weights(path).description.kinds
    return (
        type(loaded.model).__name__ in kinds
        and to_format not in _QUANTIZED
        and not conversion.get("changes")
        and not conversion.get("tokenizer")
    )


def _own_notes(directory: str) -> str:
    """Returns the text of the format's own README.md, without its YAML."""
    path = os.path.join(directory, CARD_FILE)
    if not os.path.exists(path):
        return ""
    with files.open(path, "r") as file:
        return file.read().rpartition("---\n")[2].strip()


def _check(
    model: hub.HubModel, found: hub.Contents, *, private: bool, overwrite: bool
) -> None:
    """Raises UserError for a repository that should stay as it is."""
    require(
        found.is_private or not private,
        f"{model} exists and is public, so the upload would not be private; "
        "make it private in its settings, or choose another name.",
    )
    names = REPLACEABLE | {adapters.CONFIG_FILE}
    held = sorted(names.intersection(found.names) - {CARD_FILE})
    require(
        overwrite or not held,
        f"{model} holds {listed(held)} already; --overwrite replaces "
        "the model there (its history keeps the old one).",
    )


def _keep_edited_card(
    model: hub.HubModel, found: hub.Contents, directory: str, log: Log
) -> None:
    """Removes the new card where the hub has one that somebody edited."""
    if CARD_FILE not in found.names:
        return
    if is_unedited(hub.read_text(model, found.commit, CARD_FILE)):
        return
    files.remove(os.path.join(directory, CARD_FILE))
    log(
        f"{model} has a {CARD_FILE} that was edited, which stays as it is; "
        "remove it there to have a new one written."
    )


def _facts_of_run(path: str) -> dict[str, Any]:
    """Returns the metrics and settings of the run that a model is from.

    `path` is a run directory or its `model`; of others there are none.
    """
    parent = os.path.dirname(path.rstrip("/"))
    for run_dir in (path, parent):
        log = os.path.join(run_dir, run_results.METRICS_FILE)
        if not hub.is_on_hub(path) and files.isfile(log):
            return facts_of_run(run_dir)
    return {}

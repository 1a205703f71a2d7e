"""Exports a SavedModel that takes raw strings, for TensorFlow Serving.

The graph uses only TensorFlow Text operations that released servers have.
"""

import errno
import os
from collections.abc import Mapping

import tensorflow as tf

from albert_tf.config import require
from albert_tf.interchange.exported_weights import PRECISIONS
from albert_tf.interchange.length_groups import MICRO_BATCH_TOKENS
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.interchange.model_files import flush_files
from albert_tf.interchange.serving_files import write_serving_files
from albert_tf.interchange.signatures import ServingModule
from albert_tf.io import files


def _next_version(export_dir: str) -> int:
    if not files.isdir(export_dir):
        return 1
    versions = [int(n) for n in files.listdir(export_dir) if n.isdecimal()]
    return max(versions, default=0) + 1


def export_saved_model(
    loaded: LoadedModel,
    export_dir: str,
    *,
    version: int | None = None,
    precision: str = "float32",
    micro_batch_tokens: int = MICRO_BATCH_TOKENS,
    origin: Mapping[str, str] | None = None,
) -> str:
    """Writes `<export_dir>/<version>/` and returns its path.

    A server that watches the directory sees it only when it is complete: in a
    bucket, which renames no directories, the graph's file comes last.

    Args:
        loaded: the model.
        export_dir: its name is that of the model.
        version: one that is not there; by default one above the highest.
        precision: a row of PRECISIONS, by which the model was loaded.
        micro_batch_tokens: at most this many are computed together.
        origin: rows for the export's README, such as the command.

    Raises:
        UserError: when the version is there, or a head cannot be exported.
    """
    require(
        files.isdir(export_dir) or not files.exists(export_dir),
        f"{export_dir} is a file; name a directory.",
    )
    target = os.path.join(export_dir, str(version))
    require(
        version is None or not files.exists(target),
        f"version={version}: {target} exists, and versions are not replaced; "
        "name another one, or none for the next that is free.",
    )
    module = ServingModule(
        loaded, PRECISIONS[precision].weights, micro_batch_tokens
    )
    name = os.path.basename(os.path.abspath(export_dir))

    def save(directory: str) -> None:
        tf.saved_model.save(module, directory, signatures=module.functions)
        write_serving_files(
            directory, module, name, {"precision": precision, **(origin or {})}
        )

    if files.is_remote(export_dir):
        number = version or _next_version(export_dir)
        target = os.path.join(export_dir, str(number))
        with files.local_directory(target, last="saved_model.pb") as local:
            save(local)
        return target
    os.makedirs(export_dir, exist_ok=True)
    # A server ignores names that are no numbers.
    with files.new_directory(os.path.join(export_dir, "export")) as temporary:
        save(temporary)
        flush_files(temporary)
        return _publish(temporary, export_dir, version)


def _publish(temporary: str, export_dir: str, version: int | None) -> str:
    """Renames an export to the version, or to the next that is free."""
    while True:
        number = version or _next_version(export_dir)
        target = os.path.join(export_dir, str(number))
        try:
            os.rename(temporary, target)
            return target
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            # Another export took the number in between: take the next.
            require(version is None, f"{target} was written in between.")

"""The formats that models are written in: FORMATS, a row for each."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sequence

from albert_tf.config import shares_whole_groups
from albert_tf.interchange import google_tf1, keras_hub, runtimes
from albert_tf.interchange.model_directory import (
    LoadedModel,
    save_model_directory,
)
from albert_tf.interchange.model_files import (
    FILES,
    MODEL_FILES,
    TOKENIZER_FILES,
)
from albert_tf.interchange.task_record import TASK_FILE
from albert_tf.io.json_files import read_json
from albert_tf.modeling.heads import Head
from albert_tf.modeling.models import AlbertModel
from albert_tf.modeling.weights import pretrained
from albert_tf.modeling.weights.names import file_groups
from albert_tf.text.tokenizer_base import Tokenizer


@dataclasses.dataclass(frozen=True)
class Format:
    """A format that models are written in.

    Attributes:
        library: that it belongs to, for messages.
        write: writes a directory, as `save_model_directory` does.
        files: the names of the files that it writes.
        not_stored: yields a line for each property that the format lacks,
            from model, tokenizer and max_seq_length.
        supports: whether the format has a head.
        always_pooler: whether all its models have a pooler; else a model has
            one if the source has.
        prepare: raises UserError where a needed package is not installed.
        stores_task: whether `write` takes a `task`, the TaskRecord.
    """

    library: str
    write: Callable[..., None]
    files: frozenset[str]
    not_stored: Callable[..., Iterator[str]] = lambda *_: iter(())
    supports: Callable[[type[Head]], bool] = lambda head: True
    always_pooler: bool = False
    prepare: Callable[[], object] = lambda: None
    stores_task: bool = False


def _not_stored_by_transformers(
    model: AlbertModel, tokenizer: Tokenizer, max_seq_length: int
) -> Iterator[str]:
    config = model.config
    groups = file_groups(config)
    if not shares_whole_groups(config) or groups != config.num_hidden_groups:
        yield (
            f"Not stored: sharing={config.sharing} with "
            f"num_hidden_groups={config.num_hidden_groups}; it is read back "
            f"as sharing=all with num_hidden_groups={groups}."
        )
    yield from google_tf1.length_not_stored(model, max_seq_length)


def _runtime(
    library: str,
    name: str,
    write: Callable[[LoadedModel, str], None],
    prepare: Callable[[], object] = lambda: None,
) -> Format:
    """Returns the row of a runtime whose models are one file."""
    return Format(
        library=library,
        write=functools.partial(runtimes.save_directory, name, write),
        files=frozenset((name, runtimes.LABELS_FILE, *TOKENIZER_FILES)),
        prepare=prepare,
        stores_task=True,
    )


FORMATS: dict[str, Format] = {
    "model_directory": Format(
        library="albert_tf",
        write=save_model_directory,
        files=FILES,
        stores_task=True,
    ),
    "huggingface": Format(
        library="transformers",
        write=functools.partial(save_model_directory, own_settings=False),
        files=FILES - {TASK_FILE},
        not_stored=_not_stored_by_transformers,
        supports=lambda head: head.transformers_model != "AlbertModel",
    ),
    "google_tf1": Format(
        library="google-research/albert",
        write=google_tf1.save_folder,
        files=google_tf1.FILES,
        not_stored=google_tf1.not_stored,
        supports=google_tf1.supports,
        always_pooler=True,
    ),
    "keras_hub": Format(
        library="KerasHub's AlbertBackbone",
        write=keras_hub.save_preset,
        files=keras_hub.FILES,
        not_stored=keras_hub.not_stored,
        supports=lambda head: False,
        always_pooler=True,
        prepare=keras_hub.imported,
    ),
    "litert": _runtime("LiteRT", "model.tflite", runtimes.save_litert),
    "litert_int8": _runtime(
        "LiteRT",
        "model_int8.tflite",
        functools.partial(runtimes.save_litert, int8=True),
    ),
    "onnx": _runtime(
        "ONNX", "model.onnx", runtimes.save_onnx, runtimes.require_tf2onnx
    ),
    "keras": _runtime("Keras", "model.keras", runtimes.save_keras),
}
# The files of any format, which a conversion may replace.
REPLACEABLE = frozenset().union(*(row.files for row in FORMATS.values()))


def format_at(directory: str, names: Sequence[str]) -> str | None:
    """Returns the row of FORMATS that a directory of these files holds."""
    rows = [
        name
        for name, row in FORMATS.items()
        if not row.files.issuperset(MODEL_FILES)
    ]
    if set(names).issuperset(MODEL_FILES):
        # transformers has files of the same names, but no section of ours.
        values = read_json(os.path.join(directory, pretrained.CONFIG_FILE))
        rows = ["model_directory" if "albert_tf" in values else "huggingface"]
    for row in rows:
        if FORMATS[row].files.issuperset(names):
            return row
    return None

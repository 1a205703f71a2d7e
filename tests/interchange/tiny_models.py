"""Models of random weights, as small as they can be."""

import functools
import io
import json
import pathlib
import zipfile

import tensorflow as tf
from numpy_albert import randomise

from albert_tf.config import ModelConfig, override
from albert_tf.interchange.convert import models_by_head
from albert_tf.interchange.model_directory import save_model_directory

TINY = ModelConfig(
    vocab_size=200,
    embedding_size=4,
    hidden_size=8,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=16,
)


@functools.cache
def built(head="pretraining", *, labels=None, pooler=True, **changes):
    """Returns a model of random weights, which is not to be changed."""
    kind = models_by_head()[head]
    if kind.takes_labels() and not labels:
        labels = ("LABEL_0", "LABEL_1", "LABEL_2")
    model = kind(override(TINY, changes), labels=labels, pooler=pooler)
    return randomise(model, seed=len(head) + len(changes))


def save(directory, model, tokenizer, max_seq_length=16):
    """Writes a model directory and returns its path."""
    save_model_directory(
        str(directory), model, tokenizer, max_seq_length=max_seq_length
    )
    return str(directory)


def edit_json(directory, name, **changes):
    """Changes values of a JSON file."""
    path = pathlib.Path(directory, name)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def save_tensors(prefix, tensors, slices=None):
    """Writes a checkpoint of tensors by name and returns its prefix."""
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(tensors),
        shape_and_slices=slices or [""] * len(tensors),
        tensors=[tf.constant(value) for value in tensors.values()],
    )
    return str(prefix)


def torch_archive(arrays):
    """Returns the bytes of a file that torch.save writes of float32 arrays."""

    def text(value):
        return b"X" + len(value).to_bytes(4, "little") + value.encode()

    def numbers(values):
        return b"(" + b"".join(b"J" + n.to_bytes(4, "little") for n in values)

    pickled = b"\x80\x02}("
    for key, (name, value) in enumerate(arrays.items()):
        strides = [stride // 4 for stride in value.strides]
        pickled += text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(("
        pickled += text("storage") + b"ctorch\nFloatStorage\n" + text(str(key))
        pickled += text("cpu") + numbers([value.size])[1:] + b"tQK\x00"
        pickled += numbers(value.shape) + b"t" + numbers(strides) + b"t"
        pickled += b"\x89ccollections\nOrderedDict\n)RtR"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("weights/data.pkl", pickled + b"u.")
        for key, value in enumerate(arrays.values()):
            file.writestr(f"weights/data/{key}", value.tobytes())
    return stream.getvalue()

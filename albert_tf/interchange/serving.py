"""Exports a SavedModel that takes raw strings, for TensorFlow Serving.

The graph uses only TensorFlow Text operations that released servers have.
"""

import errno
import os

import tensorflow as tf

from albert_tf.config import require
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.interchange.model_files import flush_files
from albert_tf.io import files
from albert_tf.modeling.heads.embedding import mean_of_tokens
from albert_tf.modeling.models import AlbertModel
from albert_tf.text.in_graph import InGraphTokenizer


def _classes(
    model: AlbertModel, features: dict, labels: tf.Tensor
) -> dict[str, tf.Tensor]:
    logits = model(features)["logits"]
    return {
        "probabilities": tf.nn.softmax(logits),
        "label": tf.gather(labels, tf.argmax(logits, axis=-1)),
    }


def _number(
    model: AlbertModel, features: dict, labels: None
) -> dict[str, tf.Tensor]:
    return {"predictions": model(features)["predictions"]}


def _embeddings(
    model: AlbertModel, features: dict, labels: None
) -> dict[str, tf.Tensor]:
    outputs = model.encode(features)
    embeddings = {
        "mean_output": mean_of_tokens(
            outputs["sequence_output"], features["input_mask"]
        )
    }
    if "pooled_output" in outputs:
        embeddings["pooled_output"] = tf.cast(
            outputs["pooled_output"], tf.float32
        )
    return embeddings


# The outputs of a signature, by the model's first head.
_OUTPUTS = {
    "masked_lm": _embeddings,
    "sentence_order": _embeddings,
    "sentence_embedding": _embeddings,
    "classification": _classes,
    "token_classification": _classes,
    "regression": _number,
}


class ServingModule(tf.Module):
    """A model with its tokenizer in the graph.

    Signatures: `serving_default` takes `text`, string `[batch]`; `ids` takes
    `input_ids`, `input_mask` and `segment_ids`, int32 `[batch, seq]`. Both
    return the outputs of the model's head: a classifier `probabilities`
    float32 `[batch, labels]` and `label` string `[batch]`, of every token
    where it classifies tokens; a regression `predictions` float32 `[batch]`; a
    pretrained model, an encoder or a sentence embedding `mean_output` (of the
    tokens) and, with a pooler, `pooled_output`, float32 `[batch, hidden]`.

    Raises:
        UserError: when the model does not take single texts.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        super().__init__(name="albert")
        heads = loaded.model.head_names
        require(
            _OUTPUTS.keys() >= set(heads),
            f"An {type(loaded.model).__name__} reads more than single texts; "
            "models with one of these heads can be exported: "
            f"{', '.join(_OUTPUTS)}.",
        )
        outputs = _OUTPUTS[heads[0]] if heads else _embeddings
        labels = tf.constant(loaded.labels) if loaded.labels else None
        # The model is hidden in a function, which is not tracked; the values
        # of its Keras variables are tracked instead. A server that runs the
        # graph finds no value of a Keras variable, and tracking both would
        # write every weight twice.
        self._outputs = lambda features: outputs(loaded.model, features, labels)
        self.weights = [variable.value for variable in loaded.model.weights]
        self._max_seq_length = loaded.max_seq_length
        self.tokenizer = InGraphTokenizer(loaded.tokenizer)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def serve_text(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the outputs for raw strings `[batch]`."""
        return self._outputs(
            self.tokenizer.pack_single(text, self._max_seq_length)
        )

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.int32, name)
            for name in ("input_ids", "input_mask", "segment_ids")
        ]
    )
    def serve_ids(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """Returns the outputs for token ids `[batch, seq]`."""
        return self._outputs(
            {
                "input_ids": input_ids,
                "input_mask": input_mask,
                "segment_ids": segment_ids,
            }
        )


def _next_version(export_dir: str) -> int:
    if not files.isdir(export_dir):
        return 1
    versions = [int(n) for n in files.listdir(export_dir) if n.isdecimal()]
    return max(versions, default=0) + 1


def export_saved_model(loaded: LoadedModel, export_dir: str) -> str:
    """Writes `<export_dir>/<version>/` and returns its path.

    The version is one above the highest there. A server that watches the
    directory sees it only when it is complete: in a bucket, which renames no
    directories, the graph's file comes last.
    """
    require(
        files.isdir(export_dir) or not files.exists(export_dir),
        f"{export_dir} is a file; name a directory.",
    )
    module = ServingModule(loaded)
    if files.is_remote(export_dir):
        target = os.path.join(export_dir, str(_next_version(export_dir)))
        with files.local_directory(target, last="saved_model.pb") as local:
            _save(module, local)
        return target
    os.makedirs(export_dir, exist_ok=True)
    # A server ignores names that are no numbers.
    with files.new_directory(os.path.join(export_dir, "export")) as temporary:
        _save(module, temporary)
        flush_files(temporary)
        return _publish(temporary, export_dir)


def _save(module: ServingModule, directory: str) -> None:
    signatures = {
        "serving_default": module.serve_text,
        "ids": module.serve_ids,
    }
    tf.saved_model.save(module, directory, signatures=signatures)


def _publish(temporary: str, export_dir: str) -> str:
    """Renames an export to the next version that is free."""
    while True:
        target = os.path.join(export_dir, str(_next_version(export_dir)))
        try:
            os.rename(temporary, target)
            return target
        except OSError as error:
            # Another export took the number in between: take the next.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise

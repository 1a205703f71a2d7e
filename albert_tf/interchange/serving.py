"""A SavedModel that answers raw strings, for TensorFlow Serving.

The graph uses only TensorFlow Text operations that released servers have.
"""

import errno
import os

import tensorflow as tf

from albert_tf.config import UserError
from albert_tf.interchange.model_directory import (
    LoadedModel,
    flush_files,
)
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
    answer = {
        "mean_output": mean_of_tokens(
            outputs["sequence_output"], features["input_mask"]
        )
    }
    if "pooled_output" in outputs:
        answer["pooled_output"] = tf.cast(outputs["pooled_output"], tf.float32)
    return answer


# Of a SavedModel's files the one that makes it one.
_GRAPH_FILE = "saved_model.pb"
# What a server answers, by the model's first head.
_ANSWERS = {
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
    give what the model's head answers (see _ANSWERS): a classifier
    `probabilities` float32 `[batch, labels]` and `label` string `[batch]`, of
    every token where it classifies tokens; a regression `predictions`
    float32 `[batch]`; a pretrained model, an encoder or a sentence embedding
    `mean_output` (of the tokens) and, with a pooler, `pooled_output`,
    float32 `[batch, hidden]`.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        """Makes the graph's parts.

        Raises:
            UserError: when the model answers no single texts.
        """
        super().__init__(name="albert")
        heads = loaded.model.head_names
        unserved = [name for name in heads if name not in _ANSWERS]
        if unserved:
            raise UserError(
                f"An {type(loaded.model).__name__} reads more than single "
                "texts; models with one of these heads can be exported: "
                f"{', '.join(_ANSWERS)}."
            )
        head_answer = _ANSWERS[heads[0]] if heads else _embeddings
        labels = tf.constant(loaded.labels) if loaded.labels else None
        # The model is in a function, which is not tracked, and its variables
        # are: of a Keras variable a server that runs the graph finds no value,
        # and tracking both would write every weight twice.
        self._answer = lambda features: head_answer(
            loaded.model, features, labels
        )
        self.weights = [variable.value for variable in loaded.model.weights]
        self._max_seq_length = loaded.max_seq_length
        self.tokenizer = InGraphTokenizer(loaded.tokenizer)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def answer_text(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the answers for raw strings `[batch]`."""
        return self._answer(
            self.tokenizer.pack_single(text, self._max_seq_length)
        )

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.int32, name)
            for name in ("input_ids", "input_mask", "segment_ids")
        ]
    )
    def answer_ids(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """Returns the answers for token ids `[batch, seq]`."""
        return self._answer(
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

    The version is one above the highest there; a server that watches the
    directory sees it only when it is complete; in a bucket, which renames
    no directories, it finds no model there before.
    """
    if files.exists(export_dir) and not files.isdir(export_dir):
        raise UserError(f"{export_dir} is a file; name a directory.")
    module = ServingModule(loaded)
    if files.is_remote(export_dir):
        target = os.path.join(export_dir, str(_next_version(export_dir)))
        with files.local_directory(target, last=_GRAPH_FILE) as place:
            _save(module, place)
        return target
    os.makedirs(export_dir, exist_ok=True)
    # Its name is not a number: a server passes it over.
    with files.new_directory(os.path.join(export_dir, "export")) as temporary:
        _save(module, temporary)
        flush_files(temporary)
        return _publish(temporary, export_dir)


def _save(module: ServingModule, directory: str) -> None:
    signatures = {
        "serving_default": module.answer_text,
        "ids": module.answer_ids,
    }
    tf.saved_model.save(module, directory, signatures=signatures)


def _publish(temporary: str, export_dir: str) -> str:
    """Renames an export to the next version, never over one that is there."""
    while True:
        target = os.path.join(export_dir, str(_next_version(export_dir)))
        try:
            os.rename(temporary, target)
            return target
        except OSError as error:
            # Another export took the number in between: take the next.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise

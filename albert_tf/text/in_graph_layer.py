"""A Keras layer from texts to a model's inputs, for tf.data and models."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from albert_tf.config import require
from albert_tf.text.sequences import check_options
from albert_tf.text.tokenizer import tokenizer_from_config
from albert_tf.text.tokenizer_base import Tokenizer


@keras.saving.register_keras_serializable(package="albert_tf")
class TextPreprocessor(keras.layers.Layer):
    """Returns what the tokenizer does, of string tensors, in TensorFlow graphs.

    For `dataset.map(preprocessor)`, and to stand before a model in a
    Functional one; a Keras file of it holds the vocabulary.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | Mapping[str, Any],
        *,
        max_seq_length: int | None = 512,
        padding: str = "longest",
        **kwargs: Any,
    ) -> None:
        """Takes a tokenizer, or its `get_config`, and the options of its call.

        With "none" the outputs are ragged tensors, which models do not read.
        """
        super().__init__(**kwargs)
        if not isinstance(tokenizer, Tokenizer):
            tokenizer = tokenizer_from_config(tokenizer)
        check_options(max_seq_length, padding)
        self.tokenizer = tokenizer
        self.max_seq_length, self.padding = max_seq_length, padding
        # XLA has no strings, and Keras converts them to no tensors.
        self.supports_jit = False
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        self._in_graph: Any = None
        self.built = True

    def call(
        self, texts: Any, labels: Any = None, sample_weight: Any = None
    ) -> Any:
        """Returns `input_ids`, `input_mask` and `segment_ids` `[batch, seq]`.

        Args:
            texts: strings `[batch]`, or of pairs a tuple (first, second).
            labels: returned beside the inputs, for data sets that have them.
            sample_weight: as the labels.
        """
        columns = _columns(texts)
        require(
            getattr(labels, "dtype", None) != "string",
            "The second argument is labels; give the texts of pairs as a tuple "
            "(first, second), in a data set ((first, second), labels).",
        )
        inputs = self._inputs(*columns)
        if labels is None:
            return inputs
        return keras.utils.pack_x_y_sample_weight(inputs, labels, sample_weight)

    def _inputs(self, *texts: Any) -> dict[str, Any]:
        """Returns the inputs of texts, or of first and second ones."""
        import tensorflow as tf

        from albert_tf.text.in_graph import InGraphTokenizer

        # Tables are made outside of the graphs that use them.
        with tf.init_scope():
            if self._in_graph is None:
                self._in_graph = InGraphTokenizer(self.tokenizer)
        return self._in_graph.model_inputs(
            *map(tf.convert_to_tensor, texts),
            max_seq_length=self.max_seq_length,
            padding=self.padding,
        )

    def compute_output_spec(
        self, texts: Any, labels: Any = None, sample_weight: Any = None
    ) -> dict[str, keras.KerasTensor]:
        """Returns the shapes for a Functional model.

        Raises:
            UserError: where Keras runs on another backend, or rows are not
                padded.
        """
        require(
            keras.backend.backend() == "tensorflow",
            "Only TensorFlow has string tensors; on "
            f"{keras.backend.backend()} use the preprocessor in tf.data.",
        )
        require(
            self.padding != "none",
            "Models read padded rows: give padding='longest' or 'max'.",
        )
        first = _columns(texts)[0]
        width = self.max_seq_length if self.padding == "max" else None
        return {
            name: keras.KerasTensor((*first.shape, width), "int32")
            for name in ("input_ids", "input_mask", "segment_ids")
        }

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "tokenizer": self.tokenizer.get_config(),
            "max_seq_length": self.max_seq_length,
            "padding": self.padding,
        }


def _columns(texts: Any) -> Sequence[Any]:
    """Returns the strings `[batch]`, or the first and the second of pairs.

    (In a model that Keras has loaded, a tuple is a list.)
    """
    is_list = isinstance(texts, tuple | list)
    if not is_list or any(isinstance(text, str | bytes) for text in texts):
        return (texts,)
    require(
        len(texts) in (1, 2),
        f"Got {len(texts)} string tensors; give one, or the two of pairs.",
    )
    return texts

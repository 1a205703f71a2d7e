"""What a model has of files: pretrained weights, adapters, Keras' exports."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras

from albert_tf.config import require
from albert_tf.io import directories, files
from albert_tf.modeling.fitting.fit import FittableModel
from albert_tf.modeling.inputs import ENCODER_INPUTS
from albert_tf.modeling.kernels import ON_TENSORFLOW
from albert_tf.modeling.weights import pretrained
from albert_tf.modeling.weights.adapters import (
    CONFIG_FILE,
    read_adapters,
    write_adapters,
)
from albert_tf.modeling.weights.model_paths import local_adapters, local_model


class PretrainedModel(FittableModel):
    """A model with heads that is read from files, and written to them."""

    @classmethod
    def from_pretrained(
        cls,
        directory: str,
        *,
        num_labels: int | None = None,
        labels: Sequence[str] | None = None,
        allow_missing: bool = False,
        changes: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Returns the model in a directory, ours or saved by transformers.

        Of another model class the encoder and the heads that both classes
        have are read. Prints what is initialised or left out.

        Args:
            directory: with `config.json` and `model.safetensors`, that of a
                run, or `hf://owner/name` for a model on the hub.
            num_labels: classes of a new head; by default those of the file.
            labels: their names.
            allow_missing: whether weights that the directory lacks, such as
                those of a new head, keep their initial values.
            changes: settings of the architecture for another task: the rates
                of dropout and `pooling`.
            **kwargs: as the constructor's: `remat`, `dtype`.

        Raises:
            UserError: naming each weight that is missing, unexpected,
                misshapen or damaged; for other changes.
        """
        stored = pretrained.read_model_files(local_model(directory))
        model, lines = pretrained.restore_model(
            cls,
            stored.for_task(changes) if changes else stored,
            num_labels=num_labels,
            labels=labels,
            allow_missing=allow_missing,
            **kwargs,
        )
        for line in lines:
            print(line, flush=True)
        return model

    def save_pretrained(
        self, directory: str, *, adapters: bool = False
    ) -> None:
        """Writes `config.json` and `model.safetensors`; other files stay.

        `from_pretrained` and transformers open the directory. Low-rank
        adapters (LoRA) are added to the weights.

        Args:
            directory: made where it is missing.
            adapters: whether to write only the adapters, and the weights of
                heads that were trained, as PEFT does: `load_adapters` and
                PEFT add them to the model they were trained on.

        Raises:
            UserError: when the directory is a file, for a quantized model,
                and see `write_adapters`.
        """
        require(
            files.isdir(directory) or not files.exists(directory),
            f"{directory} is a file; name a directory.",
        )
        last = CONFIG_FILE if adapters else pretrained.CONFIG_FILE
        with directories.local_directory(directory, last=last) as local:
            if adapters:
                write_adapters(local, self)
                return
            length = self.config.max_position_embeddings
            pretrained.write_model_files(local, self, length)

    def load_adapters(self, directory: str) -> None:
        """Adds the low-rank adapters (LoRA) in a directory, ours or PEFT's.

        Prints a warning for ours that were trained on other weights.

        Raises:
            UserError: for adapters that do not fit the model.
        """
        for line in read_adapters(local_adapters(directory), self):
            print(line, flush=True)

    def export(
        self,
        filepath: str,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: object = None,
        **kwargs: object,
    ) -> None:
        """Exports the model as Keras does, by default for any batch and length.

        Keras itself would take the length of the first call, and ids as floats.
        On backends other than TensorFlow it exports known sizes alone.

        Raises:
            UserError: for what Keras cannot export on a backend.
        """
        backend = keras.backend.backend()
        require(
            backend != "torch" or format != "tf_saved_model",
            "On torch Keras exports no SavedModel of a model that reads a "
            'dictionary; give format="onnx" or "torch", or set '
            "KERAS_BACKEND=tensorflow.",
        )
        require(
            ON_TENSORFLOW or input_signature is not None,
            f"On {backend} Keras exports a model for one length: give it as "
            'input_signature=[{"input_ids": keras.InputSpec("int32", (8, 128), '
            'name="input_ids")}], with every input, or set '
            "KERAS_BACKEND=tensorflow.",
        )
        if input_signature is None:
            names = (*ENCODER_INPUTS, *self.features_of_heads())
            axes = dict.fromkeys(names, 2)
            if any(head.reads_choices for head in self.heads.values()):
                axes |= dict.fromkeys(ENCODER_INPUTS, 3)
            input_signature = [
                {
                    name: keras.InputSpec("int32", (None,) * number, name=name)
                    for name, number in axes.items()
                }
            ]
        super().export(filepath, format, verbose, input_signature, **kwargs)

"""Converts models between this library and others.

python -m bin.convert --from_path=albert_base_v2 --to_path=base \\
    --to_format=model_directory
python -m bin.convert --from_path=runs/mytask --to_path=hf://owner/name \\
    --to_format=model_directory --private
"""

import functools
from collections.abc import Callable
from typing import Any

from absl import flags

from albert_tf.config import ModelConfig, require
from albert_tf.io import hub
from bin import command_line, own_rows

FLAGS = flags.FLAGS

# Copies: the library takes seconds to import; a test compares them.
FORMATS = (
    *("model_directory", "huggingface", "google_tf1", "keras_hub"),
    *("litert", "litert_int8", "onnx", "keras"),
)
MERGES = ("equal", "mean", "first")
# Settings that a conversion may change.
_SETTINGS = (
    "sharing",
    "num_hidden_layers",
    "num_hidden_groups",
    "inner_group_num",
    "max_position_embeddings",
)


def define_flags() -> None:
    own_rows.define_flag()
    flags.DEFINE_string(
        "from_path",
        None,
        "A model or run directory, a Hugging Face directory, a model on the "
        "hub (hf://owner/name), or a Google TF1 checkpoint: its prefix, or the "
        "folder of the released archive.",
    )
    flags.DEFINE_string(
        "to_path",
        None,
        "Directory to write, or hf://owner/name: uploads to the Hugging Face "
        "hub, with a model card.",
    )
    flags.DEFINE_enum("to_format", None, FORMATS, "Format to write.")
    flags.DEFINE_string(
        "head",
        "",
        "The model's head: none (the encoder alone), pretraining, or one "
        "head. Default: that of the source; Google's regression and "
        "multiple_choice look alike and must be given.",
    )
    flags.DEFINE_list(
        "labels",
        [],
        "Names of the classes, in order. Default: the source's; Google's "
        "files have none.",
    )
    flags.DEFINE_string(
        "tokenizer",
        "",
        f"{command_line.TOKENIZER_HELP} Default: that beside the weights, "
        "which a Google checkpoint may lack.",
    )
    flags.DEFINE_enum(
        "merge",
        "equal",
        MERGES,
        "Merging of several weights into one: only equal ones, their mean, or "
        "the first layer's.",
    )
    flags.DEFINE_bool(
        "allow_missing",
        False,
        "Initialise weights that are missing in the source, and list them.",
    )
    flags.DEFINE_integer(
        "seed",
        12345,
        "Seed of initialised weights.",
        lower_bound=0,
        upper_bound=2**32 - 1,
    )
    flags.DEFINE_bool(
        "overwrite",
        False,
        "Replace a model of another form at --to_path; on the hub, any model.",
    )
    _define_hub_flags()
    command_line.define_settings(
        ModelConfig(),
        only=_SETTINGS,
        default="that of the source",
    )
    command_line.required("from_path", "to_path", "to_format")


def _define_hub_flags() -> None:
    flags.DEFINE_bool(
        "private", False, "On the hub: make a new repository private."
    )
    flags.DEFINE_string(
        "commit_message", "", "On the hub: the message of the commit."
    )
    flags.DEFINE_string(
        "license", "", "On the hub: the model's license, such as apache-2.0."
    )
    flags.DEFINE_list(
        "language", [], "On the hub: codes of the model's languages, as en."
    )


# Flags that only an upload reads.
_OF_THE_HUB = ("private", "commit_message", "license", "language")


def main() -> None:
    is_upload = hub.is_on_hub(FLAGS.to_path)
    for name in _OF_THE_HUB:
        require(
            is_upload or not FLAGS[name].present,
            f"--{name} is for --to_path={hub.SCHEME}owner/name.",
        )
    command_line.load_tensorflow()
    import keras

    from albert_tf.interchange.convert import convert
    from albert_tf.jobs.hub_upload import push_to_hub

    keras.utils.set_random_seed(FLAGS.seed)
    write: Callable[..., Any] = convert
    if is_upload:
        write = functools.partial(
            push_to_hub,
            private=FLAGS.private,
            message=FLAGS.commit_message,
            card_facts={
                "license": FLAGS.license,
                "languages": tuple(FLAGS.language),
            },
        )
    write(
        FLAGS.from_path,
        FLAGS.to_path,
        FLAGS.to_format,
        head=FLAGS.head,
        labels=FLAGS.labels,
        tokenizer=FLAGS.tokenizer,
        changes=command_line.given_settings(ModelConfig()),
        merge=FLAGS.merge,
        allow_missing=FLAGS.allow_missing,
        overwrite=FLAGS.overwrite,
    )


if __name__ == "__main__":
    command_line.run(define_flags, main)

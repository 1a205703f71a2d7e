"""Converts models between this library and others.

python -m bin.convert --from_path=albert_base_v2 --to_path=base \\
    --to_format=model_directory
"""

from absl import flags

from albert_tf.config import ModelConfig
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
        "A model or run directory, a Hugging Face directory, or a Google TF1 "
        "checkpoint: its prefix, or the folder of the released archive.",
    )
    flags.DEFINE_string("to_path", None, "Directory to write.")
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
        "overwrite", False, "Replace a model of another form at --to_path."
    )
    command_line.define_settings(
        ModelConfig(),
        only=_SETTINGS,
        default="that of the source",
    )
    command_line.required("from_path", "to_path", "to_format")


def main() -> None:
    command_line.load_tensorflow()
    import keras

    from albert_tf.interchange.convert import convert

    keras.utils.set_random_seed(FLAGS.seed)
    convert(
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

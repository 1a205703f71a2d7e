"""A SavedModel for TensorFlow Serving, whose inputs are raw texts.

python -m bin.export --model_dir=runs/mytask/model --export_dir=export/mytask
"""

import shlex
import sys

from absl import flags

from bin import command_line

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the program's flags."""
    flags.DEFINE_string("model_dir", None, "Model or run directory.")
    flags.DEFINE_string(
        "export_dir", None, "The model goes to <export_dir>/<version>."
    )
    flags.DEFINE_integer(
        "version",
        None,
        "Version to write; by default the next that is free.",
        lower_bound=1,
    )
    command_line.required("model_dir", "export_dir")


def main() -> None:
    """Exports the model and prints its path."""
    command_line.load_tensorflow()
    from albert_tf.cluster.environment import source_commit
    from albert_tf.interchange.model_directory import load_model_directory
    from albert_tf.interchange.serving import export_saved_model

    commit = source_commit()
    path = export_saved_model(
        load_model_directory(FLAGS.model_dir),
        FLAGS.export_dir,
        version=FLAGS.version,
        origin={"command": f"`{shlex.join(sys.orig_argv)}`"}
        | ({"commit": commit} if commit else {}),
    )
    print(f"Exported to {path}; {path}/README.md lists its signatures.")


if __name__ == "__main__":
    command_line.run(define_flags, main)

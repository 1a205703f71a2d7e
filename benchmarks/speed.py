"""Measures the speed of this machine at each stage of the project's work.

python -m benchmarks.speed
python -m benchmarks.speed --stages=reading --repeats=1
python -m benchmarks.speed --stages=training,memory --batch_size=8 \\
    --max_seq_length=128 --against=transformers,keras_hub --repeats=5
python -m benchmarks.speed --stages=featurisation,finetuning --preset=small \\
    --task=SST-2 --data_dir=glue/SST-2 --max_seq_length=128 --batch_size=32

Without --input it reads the docstrings of the installed packages, so it needs
no data. The results depend on what else the machine does meanwhile.
"""

import os
import shlex
import sys
import tempfile
from typing import Any

from absl import flags

from albert_tf.config import (
    PRESETS,
    FeatureConfig,
    MaskingConfig,
    ModelConfig,
    OptimizerConfig,
    PretrainConfig,
    PretrainingDataConfig,
    TrainingConfig,
    lookup,
    override,
    preset,
    require,
    setting_fields,
)
from albert_tf.io.json_files import write_json
from albert_tf.text.tokenizer import load_tokenizer
from benchmarks.data import DATA_PREPARATION, READING
from benchmarks.finetuning import FEATURISATION, FINETUNING
from benchmarks.harness import Stage, in_fresh_process, run_stage, table
from benchmarks.libraries import LIBRARIES, check_peers
from benchmarks.serving import SERVING
from benchmarks.training import (
    ATTENTION,
    MEMORY,
    RECOMPUTATION,
    TRAINING_SPEED,
)
from benchmarks.workload import Workload
from benchmarks.workspace import Workspace
from bin import command_line, tasks
from data_prep.corpus.listing import list_files

FLAGS = flags.FLAGS

STAGES: dict[str, Stage] = {
    "data_preparation": DATA_PREPARATION,
    "reading": READING,
    "training": TRAINING_SPEED,
    "memory": MEMORY,
    "recomputation": RECOMPUTATION,
    "attention": ATTENTION,
    "featurisation": FEATURISATION,
    "finetuning": FINETUNING,
    "serving": SERVING,
}

_DATA = PretrainingDataConfig(record_kind="static", dupe_factor=10)
# The settings that are flags. The length of features is --max_seq_length.
_FLAGS = (
    (_DATA, set(setting_fields(_DATA)) - {"record_kind", "eval_fraction"}),
    (MaskingConfig(), None),
    (ModelConfig(), ["max_position_embeddings"]),
    (TrainingConfig(), ("precision", "remat", "xla")),
    (OptimizerConfig(), ["optimizer"]),
    (FeatureConfig(), ["doc_stride", "max_query_length", "max_choice_length"]),
)


def define_flags() -> None:
    flags.DEFINE_list(
        "stages", list(STAGES), f"What to measure: {', '.join(STAGES)}."
    )
    flags.DEFINE_list(
        "input",
        [],
        "Text, as for build_pretraining_data; none: the docstrings of the "
        "installed packages.",
    )
    flags.DEFINE_string(
        "tokenizer",
        None,
        "Tokenizer, a directory or file; none: a vocabulary is trained first.",
    )
    flags.DEFINE_integer(
        "vocab_size",
        8000,
        "Pieces of the vocabulary that is trained without --tokenizer.",
        lower_bound=20,
    )
    flags.DEFINE_integer("repeats", 3, "Rounds of measurements.", lower_bound=1)
    flags.DEFINE_string(
        "work_dir",
        None,
        "A directory for temporary files; none: the system's temporary one.",
    )
    flags.DEFINE_string(
        "output", "benchmark.json", "File for the results, as JSON."
    )
    command_line.written_as("output", [".json"])
    flags.DEFINE_enum(
        "preset", "base", list(PRESETS), "The model of training steps."
    )
    flags.DEFINE_integer(
        "batch_size", 1, "Sequences of a training step.", lower_bound=1
    )
    flags.DEFINE_list(
        "against",
        [],
        "Libraries that train and compute the same by turns: "
        f"{', '.join(LIBRARIES)}.",
    )
    tasks.define_flags(
        "Task whose examples fine-tuning is measured on; none: paragraphs of "
        "the text, with arbitrary labels."
    )
    for config, names in _FLAGS:
        command_line.define_settings(config, only=names)


def main() -> None:
    stages = {n: lookup(STAGES, n, "stages") for n in FLAGS.stages or [""]}
    with tempfile.TemporaryDirectory(
        prefix="benchmark-", dir=FLAGS.work_dir
    ) as directory:
        workspace = _workspace(directory)
        if "serving" in stages and "transformers" in FLAGS.against:
            command_line.require_packages(
                "The comparison of serving", ["onnxruntime"]
            )
        result: dict[str, Any] = {
            "command": shlex.join(sys.orig_argv),
            "machine": in_fresh_process(workspace.cores, _machine),
            "stages": {},
        }
        for name, stage in stages.items():
            rows = run_stage(stage, workspace, FLAGS.repeats)
            print(f"\n{name}: {stage.description}.\n\n{table(rows)}\n")
            measured = {"measures": stage.description, "results": rows}
            result["stages"][name] = measured
            # The file is written after every stage: the next one may be
            # interrupted.
            write_json(FLAGS.output, result)
    print(f"The results are in {FLAGS.output}.")


def _machine() -> list[str]:
    """Returns versions and hardware, on which measurements depend."""
    command_line.load_tensorflow()
    from albert_tf.cluster.environment import describe_environment

    loads = ", ".join(f"{load:.2f}" for load in os.getloadavg())
    return [*describe_environment().splitlines(), f"| load | {loads} |"]


def _workspace(directory: str) -> Workspace:
    """Returns settings and inputs, all checked before anything is measured."""
    task = tasks.chosen_if_any()
    examples = task.read(FLAGS.data_dir, "train") if task else []
    folder = os.path.dirname(os.path.abspath(FLAGS.output))
    require(
        os.access(folder, os.W_OK),
        f"--output: {folder} is no directory that can be written to.",
    )
    if FLAGS.input:
        list_files(FLAGS.input)
    model = command_line.with_flags(
        override(PretrainConfig(), preset(FLAGS.preset)).model
    )
    if FLAGS.tokenizer:
        pieces = load_tokenizer(FLAGS.tokenizer).vocab_size
        # Records have the ids of all pieces.
        model = override(model, {"vocab_size": max(pieces, model.vocab_size)})
    config = _data_config(model.max_position_embeddings)
    length = config.max_seq_length
    masking = command_line.with_flags(MaskingConfig())
    work = Workload(
        model=model,
        batch_size=FLAGS.batch_size,
        seq_length=length,
        num_predictions=masking.prediction_slots(length),
        training=command_line.with_flags(TrainingConfig()),
        optimizer=command_line.with_flags(OptimizerConfig()),
    )
    return Workspace(
        directory,
        inputs=FLAGS.input,
        tokenizer=FLAGS.tokenizer,
        vocab_size=FLAGS.vocab_size,
        config=config,
        masking=masking,
        work=work,
        features=override(
            command_line.with_flags(FeatureConfig()), {"max_seq_length": length}
        ),
        peers=check_peers(FLAGS.against, work),
        task=task,
        examples=examples,
    )


def _data_config(max_positions: int) -> PretrainingDataConfig:
    defaults = {"max_seq_length": min(_DATA.max_seq_length, max_positions)}
    if not FLAGS.input:
        # The form of the sample corpus.
        defaults["document_separator"] = "blank_line"
    config = command_line.with_flags(override(_DATA, defaults))
    require(
        config.max_seq_length <= max_positions,
        f"--max_seq_length={config.max_seq_length} is more than the "
        f"{max_positions} tokens that --preset={FLAGS.preset} reads; give it "
        "more with --max_position_embeddings.",
    )
    return config


if __name__ == "__main__":
    command_line.run(define_flags, main)

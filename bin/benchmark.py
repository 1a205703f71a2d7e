"""The speed of this machine at what the project does, stage by stage.

python -m bin.benchmark
python -m bin.benchmark --stages=reading --repeats=1
python -m bin.benchmark --input=corpus --tokenizer=vocab
python -m bin.benchmark --stages=training,memory --batch_size=8 \
    --max_seq_length=128 --against=transformers,keras_hub --repeats=5

python -m bin.benchmark --stages=featurisation,finetuning --preset=small \
    --task=SST-2 --data_dir=glue/SST-2 --max_seq_length=128 --batch_size=32

Without --input it reads the docstrings of the installed packages, so it needs
no data. The figures depend on what else the machine does meanwhile.
"""

import os
import shlex
import sys
import tempfile

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
    UserError,
    override,
    preset,
    setting_fields,
    to_dict,
)
from albert_tf.io.json_files import write_json
from albert_tf.jobs.workload import Workload
from albert_tf.tasks.base import Task
from bin import command_line, tasks
from bin.benchmarking.machine import describe_machine
from bin.benchmarking.measures import run_stage, stage_table
from bin.benchmarking.peers import PEERS, find_peers
from bin.benchmarking.stages import STAGES, find_stage
from bin.benchmarking.workplace import Workplace

FLAGS = flags.FLAGS

# What is measured unless flags say otherwise.
_DATA = PretrainingDataConfig(record_kind="static", dupe_factor=10)
# Neither is for flags to change: the stages decide.
_NO_FLAGS = ("record_kind", "eval_fraction")
# What of training is for flags to change. The optimizer: other libraries'
# steps are with AdamW, which is less work than LAMB.
_TRAINING_FLAGS = ("precision", "remat", "xla")
_OPTIMIZER_FLAGS = ("optimizer",)
# What of features is for flags to change; their length is --max_seq_length.
_FEATURE_FLAGS = ("doc_stride", "max_query_length", "max_choice_length")


def define_flags() -> None:
    """Defines the program's flags."""
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
    flags.DEFINE_integer(
        "repeats", 3, "How often everything is measured.", lower_bound=1
    )
    flags.DEFINE_string(
        "work_dir",
        None,
        "A directory on the disk to work on; none: the system's temporary "
        "one. What is written there is removed again.",
    )
    flags.DEFINE_string(
        "output", "benchmark.json", "File for the figures, as JSON."
    )
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
        f"{', '.join(PEERS)}.",
    )
    tasks.define_flags(
        "Whose examples fine-tuning is measured on; none: paragraphs of the "
        "text, with labels that say nothing."
    )
    flags.DEFINE_string("data_dir", None, "The task's files.")
    command_line.define_settings(_DATA, leave_out=_NO_FLAGS)
    command_line.define_settings(MaskingConfig())
    for config, names in (
        (TrainingConfig(), _TRAINING_FLAGS),
        (OptimizerConfig(), _OPTIMIZER_FLAGS),
        (FeatureConfig(), _FEATURE_FLAGS),
    ):
        command_line.define_settings(
            config, leave_out=set(setting_fields(config)).difference(names)
        )


def main() -> None:
    """Measures the stages, prints their tables and writes them as JSON."""
    stages = [find_stage(name) for name in FLAGS.stages or [""]]
    peers = find_peers(FLAGS.against)
    task = _task()
    # What is wrong with its files is told at once, too.
    examples = task.read(FLAGS.data_dir, "train") if task else []
    _check_paths()
    config = _data_config()
    masking = override(
        MaskingConfig(), command_line.given_settings(MaskingConfig())
    )
    work = _workload(config.max_seq_length, masking)
    features = override(
        FeatureConfig(),
        {
            **command_line.given_settings(FeatureConfig()),
            "max_seq_length": config.max_seq_length,
        },
    )
    for peer in peers:
        # At once, and not after minutes, for what it cannot do.
        peer.variants(work)
    result = {
        "command": shlex.join(sys.orig_argv),
        "machine": describe_machine(),
        "settings": {
            "input": FLAGS.input,
            "tokenizer": FLAGS.tokenizer,
            "repeats": FLAGS.repeats,
            "preset": FLAGS.preset,
            "batch_size": FLAGS.batch_size,
            "against": FLAGS.against,
            **{n: getattr(work.training, n) for n in _TRAINING_FLAGS},
            **{n: getattr(work.optimizer, n) for n in _OPTIMIZER_FLAGS},
            "data": to_dict(config),
            "masking": to_dict(masking),
            "task": FLAGS.task,
            "features": to_dict(features),
        },
        "stages": {},
    }
    with tempfile.TemporaryDirectory(
        prefix="benchmark-", dir=FLAGS.work_dir
    ) as directory:
        place = Workplace(
            directory,
            work=work,
            peers=peers,
            inputs=FLAGS.input,
            tokenizer_dir=FLAGS.tokenizer,
            vocab_size=FLAGS.vocab_size,
            config=config,
            masking=masking,
            features=features,
            task=task,
            examples=examples,
        )
        for stage in stages:
            measured = run_stage(stage, place, FLAGS.repeats)
            print(f"\n{stage.name}: {stage.measures}.\n")
            print(f"{stage_table(measured['results'])}\n", flush=True)
            result["stages"][stage.name] = measured
            # After every stage: the next one may be broken off.
            write_json(FLAGS.output, result)
    print(f"The figures are in {FLAGS.output}.")


def _task() -> Task | None:
    """Returns the task of --task, if one is given.

    Raises:
        UserError: when it comes without its files, or they without it.
    """
    if not (FLAGS.task or FLAGS.columns or FLAGS.data_dir):
        return None
    if not (FLAGS.task and FLAGS.data_dir):
        raise UserError("--task and --data_dir go together; give both.")
    return tasks.chosen()


def _data_config() -> PretrainingDataConfig:
    given = command_line.given_settings(_DATA)
    if not FLAGS.input:
        # The form of the sample corpus.
        given.setdefault("document_separator", "blank_line")
    # As long as the model reads, where nothing is said.
    model = _model()
    given.setdefault(
        "max_seq_length",
        min(_DATA.max_seq_length, model.max_position_embeddings),
    )
    config = override(_DATA, given)
    if config.max_seq_length > model.max_position_embeddings:
        raise UserError(
            f"--max_seq_length={config.max_seq_length} is more than the "
            f"{model.max_position_embeddings} tokens that "
            f"--preset={FLAGS.preset} reads."
        )
    return config


def _model() -> ModelConfig:
    return override(PretrainConfig(), preset(FLAGS.preset)).model


def _workload(seq_length: int, masking: MaskingConfig) -> Workload:
    return Workload(
        model=_model(),
        batch_size=FLAGS.batch_size,
        seq_length=seq_length,
        num_predictions=masking.prediction_slots(seq_length),
        training=override(
            TrainingConfig(), command_line.given_settings(TrainingConfig())
        ),
        optimizer=override(
            OptimizerConfig(), command_line.given_settings(OptimizerConfig())
        ),
    )


def _check_paths() -> None:
    """Raises UserError at once for what would only fail after minutes."""
    from albert_tf.text.tokenizer import load_tokenizer
    from data_prep.corpus.reading import list_files

    if FLAGS.input:
        list_files(FLAGS.input)
    if FLAGS.tokenizer:
        load_tokenizer(FLAGS.tokenizer)
    folder = os.path.dirname(os.path.abspath(FLAGS.output))
    for name, path in (("output", folder), ("work_dir", FLAGS.work_dir)):
        if path and not (os.path.isdir(path) and os.access(path, os.W_OK)):
            raise UserError(
                f"--{name}: {path} is no directory that can be written to."
            )


if __name__ == "__main__":
    command_line.run(define_flags, main)

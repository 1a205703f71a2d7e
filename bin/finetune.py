"""Fine-tuning: a task's head on a pretrained encoder.

python -m bin.finetune --task=classification --data_dir=mytask \\
    --init_from=runs/tiny --run_dir=runs/mytask
"""

from absl import flags

from albert_tf.config import (
    FinetuneConfig,
    ModelConfig,
    RuntimeConfig,
    from_dict,
    override,
)
from albert_tf.tasks.custom import TASKS
from bin import command_line
from bin.results_table import results_table

FLAGS = flags.FLAGS

# Settings of the architecture that fine-tuning may change.
_MODEL_SETTINGS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout_prob",
)


def define_flags() -> None:
    """Defines the program's flags."""
    flags.DEFINE_enum("task", None, list(TASKS), "What to learn.")
    flags.DEFINE_string("data_dir", None, "The task's files.")
    flags.DEFINE_string(
        "init_from",
        None,
        "Pretrained weights: a model or run directory, or a Google TF1 "
        "checkpoint.",
    )
    flags.DEFINE_string("run_dir", None, "Where the run writes.")
    flags.DEFINE_string(
        "tokenizer", None, "Tokenizer, where --init_from brings none."
    )
    flags.DEFINE_string(
        "config_json",
        None,
        "The config.json of a run: start from its settings.",
    )
    command_line.define_settings(FinetuneConfig())
    command_line.define_settings(RuntimeConfig())
    command_line.define_settings(
        ModelConfig(),
        leave_out=[
            field
            for field in ModelConfig.__dataclass_fields__
            if field not in _MODEL_SETTINGS
        ],
    )
    command_line.required("task", "data_dir", "init_from", "run_dir")


def main() -> None:
    """Fine-tunes and prints the evaluation."""
    command_line.load_tensorflow()
    from albert_tf.interchange.model_directory import find_initial_weights
    from albert_tf.training.finetune import run_finetuning

    config = FinetuneConfig()
    recorded_model: dict = {}
    if FLAGS.config_json:
        values = command_line.recorded_config(FLAGS.config_json, "finetune")
        config = from_dict(FinetuneConfig, values["config"], FLAGS.config_json)
        recorded_model = values.get("model", {})
    config = override(config, command_line.given_settings(config))
    model_changes = {
        name: recorded_model[name]
        for name in _MODEL_SETTINGS
        if name in recorded_model
    } | {
        name: FLAGS[name].value
        for name in _MODEL_SETTINGS
        if FLAGS[name].value is not None
    }
    evaluation = run_finetuning(
        config,
        TASKS[FLAGS.task],
        data_dir=FLAGS.data_dir,
        run_dir=FLAGS.run_dir,
        initial=find_initial_weights(FLAGS.init_from),
        tokenizer_dir=FLAGS.tokenizer or "",
        model_changes=model_changes,
        runtime=command_line.given_runtime(),
    )
    print(f"\n{results_table({FLAGS.run_dir: evaluation})}")
    print(f"The model is in {FLAGS.run_dir}/model.")


if __name__ == "__main__":
    command_line.run(define_flags, main)

"""ALBERT from raw text to a served model.

The public names below are imported when they are first used, so that
`import albert_tf` loads neither TensorFlow nor Keras.
"""

import importlib
import sys
from typing import Any

__version__ = "0.2.0"

# Public name -> the module that defines it.
_MODULES = {
    name: f"albert_tf.{module}"
    for module, names in {
        "config": (
            *("FeatureConfig", "FinetuneConfig", "MaskingConfig"),
            *("ModelConfig", "OptimizerConfig", "PRESETS", "PretrainConfig"),
            *("RuntimeConfig", "TrainingConfig", "UserError"),
            *("override", "preset"),
        ),
        "text.tokenizer": ("load_tokenizer",),
        "text.in_graph_layer": ("TextPreprocessor",),
        "modeling.models": (
            *("AlbertForAnswerableQuestions", "AlbertForClassification"),
            *("AlbertForMaskedLM", "AlbertForMultiLabelClassification"),
            "AlbertForMultipleChoice",
            *("AlbertForPretraining", "AlbertForQuestionAnswering"),
            *("AlbertForRegression", "AlbertForSentenceEmbedding"),
            *("AlbertForTokenClassification", "AlbertModel", "models"),
        ),
        "optim.optimizers": ("Lamb",),
        "tasks.catalog": ("TASKS",),
        "interchange.model_directory": (
            *("find_initial_weights", "load_model_directory"),
            "save_model_directory",
        ),
        "interchange.export.saved_model": ("export_saved_model",),
        "jobs.finetune": ("run_finetuning",),
        "jobs.hub_upload": ("push_to_hub",),
        "prediction.predictor": ("Predictor",),
        "jobs.pretrain": ("run_pretraining",),
        "jobs.pretraining_phases": ("PretrainingShards",),
        "jobs.task_evaluation": ("evaluate_task",),
    }.items()
    for name in names
}
__all__ = ["__version__", *sorted(_MODULES)]
# The import of their modules registers every class that a Keras file may name.
_REGISTERED = ("AlbertModel", "Lamb", "TextPreprocessor")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    if "keras" in sys.modules:
        # A file must load whichever name is used first.
        for other in _REGISTERED:
            importlib.import_module(_MODULES[other])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

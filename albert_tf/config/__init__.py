"""Settings: their fields, the dataclasses, the presets."""

from albert_tf.config.data import (
    PART_LENGTHS,
    FeatureConfig,
    MaskingConfig,
    PretrainingDataConfig,
    lengths_within,
)
from albert_tf.config.fields import (
    Config,
    as_default,
    differences,
    from_dict,
    given_settings,
    lookup,
    override,
    setting_fields,
    to_dict,
    without_removed,
)
from albert_tf.config.messages import (
    Log,
    UserError,
    cut,
    listed,
    markdown_table,
    optional_page,
    require,
    shown,
    shown_metric,
    silent,
)
from albert_tf.config.model import (
    SHARING,
    TASK_SETTINGS,
    ModelConfig,
    Sharing,
    shares_whole_groups,
    sharing_plan,
)
from albert_tf.config.presets import PRESETS, preset
from albert_tf.config.serving import ServingConfig
from albert_tf.config.training import (
    ATTENTION_FORMS,
    REMAT,
    EmbeddingConfig,
    FinetuneConfig,
    OptimizerConfig,
    PretrainConfig,
    RuntimeConfig,
    TrainingConfig,
)

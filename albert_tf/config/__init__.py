"""Settings: their fields, the dataclasses, the presets."""

from albert_tf.config.fields import (
    Config as Config,
)
from albert_tf.config.fields import (
    UserError as UserError,
)
from albert_tf.config.fields import (
    differences as differences,
)
from albert_tf.config.fields import (
    from_dict as from_dict,
)
from albert_tf.config.fields import (
    override as override,
)
from albert_tf.config.fields import (
    setting as setting,
)
from albert_tf.config.fields import (
    setting_fields as setting_fields,
)
from albert_tf.config.fields import (
    shown as shown,
)
from albert_tf.config.fields import (
    to_dict as to_dict,
)
from albert_tf.config.presets import (
    PRESETS as PRESETS,
)
from albert_tf.config.presets import (
    preset as preset,
)
from albert_tf.config.settings import (
    REMAT as REMAT,
)
from albert_tf.config.settings import (
    SENTENCE_OBJECTIVES as SENTENCE_OBJECTIVES,
)
from albert_tf.config.settings import (
    SHARING as SHARING,
)
from albert_tf.config.settings import (
    FeatureConfig as FeatureConfig,
)
from albert_tf.config.settings import (
    FinetuneConfig as FinetuneConfig,
)
from albert_tf.config.settings import (
    FinetuneSettings as FinetuneSettings,
)
from albert_tf.config.settings import (
    MaskingConfig as MaskingConfig,
)
from albert_tf.config.settings import (
    ModelConfig as ModelConfig,
)
from albert_tf.config.settings import (
    OptimizerConfig as OptimizerConfig,
)
from albert_tf.config.settings import (
    PretrainConfig as PretrainConfig,
)
from albert_tf.config.settings import (
    PretrainingDataConfig as PretrainingDataConfig,
)
from albert_tf.config.settings import (
    PretrainingSettings as PretrainingSettings,
)
from albert_tf.config.settings import (
    RuntimeConfig as RuntimeConfig,
)
from albert_tf.config.settings import (
    TrainingConfig as TrainingConfig,
)

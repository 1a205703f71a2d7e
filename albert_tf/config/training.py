"""Settings of training: optimizer, steps, pretraining, fine-tuning, runtime."""

import dataclasses

from albert_tf.config.data import FeatureConfig, MaskingConfig
from albert_tf.config.fields import Section, as_default, setting
from albert_tf.config.model import MAX_TOKENS, ModelConfig

REMAT = ("none", "selective", "full")
ATTENTION_FORMS = ("auto", "plain", "cudnn", "pallas")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(Section):
    """The optimizer and its schedule (defaults: the released recipe)."""

    optimizer: str = setting(
        "lamb", "Update rule: lamb, adamw, muon or normuon."
    )
    learning_rate: float = setting(0.00176, "Peak learning rate.", minimum=0.0)
    num_warmup_steps: int = setting(3125, "Steps of linear warm-up.", minimum=0)
    learning_rate_decay: str = setting(
        "polynomial",
        "Learning-rate decay after the warm-up.",
        choices=("polynomial", "cosine", "constant"),
    )
    decay_power: float = setting(
        1.0, "Power of the polynomial decay.", minimum=0.0
    )
    end_learning_rate: float = setting(
        0.0,
        "Learning rate that the decay ends at, after the last step.",
        minimum=0.0,
    )
    original_schedule: bool = setting(
        False,
        "Use google-research/albert's schedule: the first step of a warm-up "
        "has rate 0, and the decay counts from step 0, so the rate jumps where "
        "the warm-up ends.",
    )
    layer_decay: float = setting(
        1.0,
        "Layer-wise learning-rate decay: factor from a layer to the one "
        "below it; heads have the full rate. Layers that share weights "
        "count as one.",
        minimum=0.0,
        maximum=1.0,
    )
    weight_decay_rate: float = setting(
        0.01, "Decoupled weight decay.", minimum=0.0
    )
    exclude_from_weight_decay: str = setting(
        "LayerNorm,layer_norm,bias",
        "Regular expressions, comma-separated: variables whose path "
        "matches one get no weight decay.",
    )
    exclude_from_layer_adaptation: str = setting(
        "LayerNorm,layer_norm,bias",
        "Regular expressions, comma-separated: variables whose path "
        "matches one get no trust ratio (LAMB).",
    )
    freeze: str = setting(
        "",
        "Regular expressions, comma-separated: variables whose path "
        "matches one are not trained (encoder: train the head only).",
    )
    ema_decay: float = setting(
        0.0,
        "Decay of an exponential moving average of the weights, which is "
        "evaluated and saved in their place; at most (1 + n) / (10 + n) after "
        "n steps. 0: none.",
        minimum=0.0,
        maximum=0.9999999,
    )
    beta_1: float = setting(
        0.9,
        "Decay of the first moment; of matrices that muon trains it is 0.95.",
        minimum=0.0,
        maximum=0.9999999,
    )
    beta_2: float = setting(
        0.999, "Decay of the second moment.", minimum=0.0, maximum=0.9999999
    )
    epsilon: float = setting(
        1e-6, "Added to the square root of the second moment.", minimum=0.0
    )
    bias_correction: bool = setting(
        False,
        "Bias-correct the moments, as the LAMB paper and tensorflow-addons "
        "do; the released models' code does not. What muon trains is "
        "corrected in any case.",
    )
    max_grad_norm: float = setting(
        1.0,
        "Gradient clipping: maximum global norm; 0: no clipping.",
        minimum=0.0,
    )


@dataclasses.dataclass(frozen=True)
class TrainingConfig(Section):
    """Training length, batch sizes and intervals.

    Settings that may change when a run resumes do not change the result of a
    step (but for the order of floating-point sums), or are needed by a run
    that has diverged. The interval of evaluations may change too: the best
    model and early stopping depend on it, the steps do not.
    """

    num_train_steps: int = setting(
        125000,
        "Optimizer steps; 0 (fine-tuning only): num_train_epochs decides.",
        minimum=0,
    )
    train_batch_size: int = setting(
        4096, "Global batch: sequences per step, all replicas.", minimum=1
    )
    eval_batch_size: int = setting(
        64, "Sequences per evaluation step, all replicas.", minimum=1
    )
    seed: int = setting(
        12345,
        "Seed of weights, order, masks and dropout.",
        minimum=0,
        maximum=2**32 - 1,
    )
    precision: str = setting(
        "float32",
        "Mixed precision: arithmetic of the layers; weights stay float32. "
        "float16 adds loss scaling.",
        choices=("float32", "bfloat16", "float16"),
    )
    micro_batch_size: int = setting(
        0,
        "Gradient accumulation: sequences (multiple choice: examples with "
        "all choices) per micro-batch and replica. 0: the whole "
        "per-replica batch; auto: the largest that fits in the memory of "
        "CPUs by formula, kept in config.json.",
        minimum=0,
        words=("auto",),
        may_change=True,
    )
    steps_per_loop: int = setting(
        1,
        "Steps per call of the compiled loop; more keep an accelerator busy.",
        minimum=1,
        may_change=True,
    )
    xla: bool = setting(
        False,
        "Compile the whole step with XLA; of several replicas, forward and "
        "backward of each.",
    )
    remat: str = setting(
        "none",
        "Activation checkpointing: what the backward pass recomputes to "
        "save memory, with the same result: selective, attention (about "
        "half of the memory); full, the inside of every block.",
        choices=REMAT,
        may_change=True,
    )
    attention: str = setting(
        "auto",
        "Attention in training: plain, TensorFlow's operations; cudnn (GPUs) "
        "or pallas (TPUs), JAX's kernels, which keep no attention weights; "
        "auto: plain.",
        choices=ATTENTION_FORMS,
        may_change=True,
    )
    save_checkpoints_steps: int = setting(
        5000, "Steps between checkpoints.", minimum=1, may_change=True
    )
    keep_checkpoint_max: int = setting(
        5, "Number of newest checkpoints to keep.", minimum=1, may_change=True
    )
    log_steps: int = setting(
        100, "Steps between logged scalars.", minimum=1, may_change=True
    )
    eval_steps: int = setting(
        5000,
        "Steps between evaluations while training; 0: only at the end.",
        minimum=0,
        may_change=True,
    )
    max_eval_steps: int = setting(
        0, "Maximum batches per evaluation; 0: all.", minimum=0
    )
    best_metric: str = setting(
        "",
        "Metric that selects the best model: the lowest for a loss, "
        "perplexity or error, the highest otherwise. Empty: the job's "
        "default.",
    )
    early_stopping_patience: int = setting(
        0,
        "Evaluations without improvement after which training stops; 0: never.",
        minimum=0,
    )
    on_nonfinite: str = setting(
        "stop",
        "What to do at a NaN or infinite loss or gradient, which is never "
        "applied: stop the run; skip the step; or rollback to the last "
        "checkpoint and continue with other examples.",
        choices=("stop", "skip", "rollback"),
        may_change=True,
    )
    max_loss_spike: float = setting(
        0.0,
        "Skip a step whose loss exceeds the mean of the last 128 steps with "
        "the same masks, shards and depth, 32 at least, by more than this "
        "number of standard deviations; 0: never.",
        minimum=0.0,
        may_change=True,
    )


@dataclasses.dataclass(frozen=True)
class PretrainingSettings(Section):
    """Settings that only pretraining has."""

    sentence_objective: str = setting(
        "",
        "Sentence objective that the shards must have: sop, nsp or none; "
        "empty: any.",
    )
    sentence_loss_weight: float = setting(
        1.0,
        "Weight of the sentence objective's loss in the sum that is "
        "minimized. The logged loss is the sum without it.",
        minimum=0.0,
    )
    phases: str = setting(
        "",
        "Steps of each phase, comma-separated, when --train_data names "
        "several directories of shards (short sequences, then long ones); "
        "they add up to num_train_steps.",
    )
    phase_batch_sizes: str = setting(
        "",
        "Global batch size of each phase, comma-separated; empty: "
        "train_batch_size.",
    )
    masking_schedule: str = setting(
        "",
        "Share of tokens to predict in training, as step:share: "
        "0:0.4,2000:0.2. Held-out text is masked by masked_lm_prob. Empty: "
        "masked_lm_prob always.",
    )
    ngram_schedule: str = setting(
        "",
        "Longest n-gram masked in training, as step:words: 0:1,2000:3. "
        "Held-out text is masked by max_ngram. Empty: max_ngram always.",
    )
    masking_weights: str = setting(
        "",
        "JSON file of an object with weights of pieces, by piece, 1 where "
        "there is none: the first words of n-grams are drawn in proportion to "
        "the mean of their pieces, in held-out text evenly. Empty: all alike.",
    )
    depth_schedule: str = setting(
        "",
        "Progressive depth, as step:layers: 0:3,2000:6,4000:12. Shared "
        "layers keep their weights. Empty: all layers from the start.",
    )


@dataclasses.dataclass(frozen=True)
class PretrainConfig:
    """Everything that decides a pretraining run."""

    pretraining: PretrainingSettings = PretrainingSettings()
    model: ModelConfig = ModelConfig()
    masking: MaskingConfig = MaskingConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig = TrainingConfig()


@dataclasses.dataclass(frozen=True)
class FinetuneSettings(Section):
    """Settings that only fine-tuning has."""

    num_train_epochs: float = setting(
        3.0, "Passes over the training examples.", minimum=0.0
    )
    warmup_proportion: float = setting(
        0.1,
        "Share of the steps used for warm-up if num_warmup_steps is 0.",
        minimum=0.0,
        maximum=1.0,
    )
    padding: str = setting(
        "bucket",
        "bucket: bucketing by length, each part of a batch only as wide as "
        "its examples; max: random batches, all max_seq_length wide, which "
        "costs time.",
        choices=("bucket", "max"),
    )
    lora_rank: int = setting(
        0,
        "Low-rank adapters (LoRA) of this rank on the queries and values of "
        "attention, trained with the head in place of the encoder; 0: none.",
        minimum=0,
    )
    lora_alpha: float = setting(
        0.0,
        "Scale of the adapters: their product counts lora_alpha / lora_rank "
        "times; 0: once.",
        minimum=0.0,
    )
    class_weights: str = setting(
        "",
        "Weights of classes in the training loss, for classes, tags and "
        "several labels: balanced, the inverse of their frequency; or "
        "label:weight, a line of CSV, where others weigh 1: a label with a "
        "comma is quoted together with its weight. Empty: all weigh 1.",
    )
    double_unordered: bool = setting(
        False,
        "Train on every pair of texts in both orders, for tasks with "
        "symmetric pairs (MRPC, QQP, STS-B, your own).",
    )
    calibrate: bool = setting(
        True,
        "Fit a temperature on the dev set, by which the model's probabilities "
        "of classes agree better with how often they are right; its labels "
        "stay the same. off: probabilities as transformers computes them.",
    )


@dataclasses.dataclass(frozen=True)
class FinetuneConfig:
    """Everything that decides a fine-tuning run; the model brings its own."""

    finetuning: FinetuneSettings = FinetuneSettings()
    features: FeatureConfig = FeatureConfig()
    optimizer: OptimizerConfig = as_default(
        OptimizerConfig(
            optimizer="adamw", learning_rate=2e-5, num_warmup_steps=0
        )
    )
    training: TrainingConfig = as_default(
        TrainingConfig(
            num_train_steps=0,
            train_batch_size=32,
            save_checkpoints_steps=500,
            keep_checkpoint_max=2,
            eval_steps=500,
        )
    )


@dataclasses.dataclass(frozen=True)
class EmbeddingSettings(Section):
    """Settings that only the training of embeddings has."""

    pairs: str = setting(
        "neighbours",
        "Texts that are to have similar vectors: neighbours, two passages "
        "next to each other in a document; dropout, a passage and itself under "
        "another dropout (SimCSE); columns, the two texts in each row of a "
        "table.",
        choices=("neighbours", "dropout", "columns"),
    )
    pooling: str = setting(
        "mean",
        "Vector of a text: mean, the mean state of the tokens; mean_max, that "
        "and the maximum of their states; first, the state of [CLS].",
        choices=("first", "mean", "mean_max"),
    )
    max_seq_length: int = setting(
        0,
        "Longest text in tokens, what is beyond is cut off; 0: the longest "
        "input that the weights were trained on.",
        minimum=0,
        maximum=MAX_TOKENS,
    )
    held_out_fraction: float = setting(
        0.05,
        "Share of the documents, or rows, whose pairs are evaluated and not "
        "learned.",
        minimum=0.0001,
        maximum=0.5,
    )
    num_train_epochs: float = setting(
        3.0, "Passes over the pairs if num_train_steps is 0.", minimum=0.0
    )
    warmup_proportion: float = setting(
        0.1,
        "Share of the steps used for warm-up if num_warmup_steps is 0.",
        minimum=0.0,
        maximum=1.0,
    )


@dataclasses.dataclass(frozen=True)
class EmbeddingConfig:
    """Everything that decides a training of embeddings but the model."""

    embeddings: EmbeddingSettings = EmbeddingSettings()
    optimizer: OptimizerConfig = as_default(
        OptimizerConfig(
            optimizer="adamw", learning_rate=1e-4, num_warmup_steps=0
        )
    )
    training: TrainingConfig = as_default(
        TrainingConfig(
            num_train_steps=0,
            train_batch_size=64,
            save_checkpoints_steps=500,
            keep_checkpoint_max=2,
            eval_steps=500,
        )
    )


@dataclasses.dataclass(frozen=True)
class RuntimeConfig(Section):
    """Where and how a run is carried out, and how far a job takes it.

    It is no part of the configuration: a run may resume with other values, with
    more replicas, elsewhere. But for extend_to_steps none decides the result.
    """

    extend_to_steps: int = setting(
        0,
        "Extend the run in --run_dir to this number of steps; all other "
        "flags stay the same. The learning-rate schedule becomes that of "
        "the new length, so the rate jumps up; of several --phases the "
        "last one is extended. 0: do not.",
        minimum=0,
    )
    strategy: str = setting(
        "default",
        "default: one device; mirrored: every GPU of the machine, or "
        "num_replicas logical CPUs; multi_worker: several processes, one per "
        "machine, see cluster; tpu: a TPU, see tpu.",
    )
    num_replicas: int = setting(
        0,
        "Replicas of mirrored or of each worker; 0: one per device.",
        minimum=0,
    )
    cluster: str = setting(
        "",
        "How the workers of multi_worker find each other: tf_config, the "
        "variable TF_CONFIG; local:N, N processes started on this machine; "
        "jobset:N, Kubernetes; slurm. Empty: tf_config.",
    )
    cluster_timeout_secs: float = setting(
        600.0,
        "Seconds to wait for the other workers at the start.",
        minimum=1.0,
    )
    tpu: str = setting("local", "The TPU's name; local: that of this machine.")
    data_timeout_secs: float = setting(
        600.0,
        "Seconds that reading a batch may take before the run ends and "
        "reports where it hangs.",
        minimum=1.0,
    )
    profile_steps: str = setting(
        "",
        "Profile from one step to another, such as 10,20, for "
        "TensorBoard's profiler.",
    )

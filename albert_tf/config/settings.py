"""Every setting once: frozen dataclasses.

The model's field names are those of the released `albert_config.json`. The
other sections hold what a job needs beside the model.
"""

import dataclasses

from albert_tf.config.fields import Section, UserError, setting

# What no real model comes near, however much its layers share: a
# configuration that asks for more is a mistake or a trap.
_MOST_BLOCKS = 1024
_MOST_WEIGHTS = 1 << 38
_MOST_TOKENS = 1 << 20
SHARING = ("all", "attention", "ffn", "none")
REMAT = ("none", "selective", "full")


@dataclasses.dataclass(frozen=True)
class ModelConfig(Section):
    """The architecture, under the names of the released albert_config.json."""

    vocab_size: int = setting(
        30000, "Pieces in the vocabulary.", minimum=6, maximum=2**24
    )
    embedding_size: int = setting(
        128, "E: width of the token embeddings.", minimum=1, maximum=2**16
    )
    hidden_size: int = setting(
        768, "H: width of the hidden states.", minimum=1, maximum=2**16
    )
    num_hidden_layers: int = setting(
        12,
        "How many times a block is applied.",
        minimum=1,
        maximum=_MOST_BLOCKS,
    )
    num_hidden_groups: int = setting(
        1,
        "Groups of layers; layers of one group share weights.",
        minimum=1,
        maximum=_MOST_BLOCKS,
    )
    inner_group_num: int = setting(
        1,
        "Blocks applied one after another within a layer.",
        minimum=1,
        maximum=64,
    )
    num_attention_heads: int = setting(
        12, "Attention heads; divides hidden_size.", minimum=1, maximum=2**16
    )
    intermediate_size: int = setting(
        3072, "Width of the feed-forward layer.", minimum=1, maximum=2**18
    )
    hidden_act: str = setting(
        "gelu",
        "Activation; gelu is the tanh form, as in the released models.",
        choices=("gelu", "gelu_exact", "relu"),
    )
    hidden_dropout_prob: float = setting(
        0.0,
        "Dropout of embeddings and block outputs.",
        minimum=0.0,
        maximum=0.99,
    )
    attention_probs_dropout_prob: float = setting(
        0.0, "Dropout of the attention weights.", minimum=0.0, maximum=0.99
    )
    classifier_dropout_prob: float = setting(
        0.1,
        "Dropout before a fine-tuning head.",
        minimum=0.0,
        maximum=0.99,
    )
    max_position_embeddings: int = setting(
        512,
        "Longest sequence the model can read, in tokens.",
        minimum=4,
        maximum=_MOST_TOKENS,
    )
    type_vocab_size: int = setting(2, "Segments.", minimum=1, maximum=2**10)
    initializer_range: float = setting(
        0.02, "Standard deviation of the initial kernels.", minimum=0.0
    )
    layer_norm_eps: float = setting(
        1e-12, "Added to the variance in layer normalisation.", minimum=0.0
    )
    sharing: str = setting(
        "all", "What the layers of a group share.", choices=SHARING
    )
    always_project_embeddings: bool = setting(
        False,
        "Project the embeddings even where embedding_size equals hidden_size, "
        "as transformers does and the original does not.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size % self.num_attention_heads:
            raise UserError(
                f"hidden_size={self.hidden_size} is not a multiple of "
                f"num_attention_heads={self.num_attention_heads}."
            )
        if self.num_hidden_groups > self.num_hidden_layers:
            raise UserError(
                f"num_hidden_groups={self.num_hidden_groups} exceeds "
                f"num_hidden_layers={self.num_hidden_layers}."
            )
        self._check_extent()

    def _check_extent(self) -> None:
        """Raises UserError where settings fit singly but not together."""
        blocks = self.num_hidden_layers * self.inner_group_num
        if blocks > _MOST_BLOCKS:
            raise UserError(
                f"num_hidden_layers={self.num_hidden_layers} times "
                f"inner_group_num={self.inner_group_num} makes {blocks} "
                f"blocks; the most allowed is {_MOST_BLOCKS}."
            )
        # The large matrices, as if nothing were shared.
        ids = (
            self.vocab_size
            + self.max_position_embeddings
            + self.type_vocab_size
        )
        block = self.hidden_size * (
            4 * self.hidden_size + 2 * self.intermediate_size
        )
        weights = ids * self.embedding_size + blocks * block
        if weights > _MOST_WEIGHTS:
            raise UserError(
                f"A model of vocab_size={self.vocab_size}, "
                f"embedding_size={self.embedding_size}, "
                f"hidden_size={self.hidden_size}, "
                f"intermediate_size={self.intermediate_size} and {blocks} "
                f"blocks could hold {weights} weights; the most allowed is "
                f"{_MOST_WEIGHTS}."
            )


@dataclasses.dataclass(frozen=True)
class MaskingConfig(Section):
    """N-gram masked language modelling (paper, section 4.1)."""

    masked_lm_prob: float = setting(
        0.15,
        "Share of the tokens to predict; at least one of each sequence.",
        minimum=0.0,
        maximum=0.9,
    )
    max_ngram: int = setting(
        3, "Longest n-gram of words masked together.", minimum=1, maximum=10
    )
    favor_shorter_ngram: bool = setting(
        True, "p(n) proportional to 1/n; off: proportional to n."
    )
    whole_word_masking: bool = setting(
        True, "Mask words whole; off: each piece counts as a word."
    )
    max_predictions_per_seq: int = setting(
        0,
        "Most tokens to predict in a sequence; 0: what masked_lm_prob of "
        "the longest sequence needs (the original: 20).",
        minimum=0,
    )

    def prediction_slots(self, max_seq_length: int) -> int:
        """Returns P, the masked positions that a record has room for."""
        if self.max_predictions_per_seq:
            return self.max_predictions_per_seq
        return max(1, round(self.masked_lm_prob * max_seq_length))


@dataclasses.dataclass(frozen=True)
class PretrainingDataConfig(Section):
    """How a corpus becomes pretraining records."""

    document_separator: str = setting(
        "auto",
        "Where a document of plain text ends: with its file, at a blank "
        "line, or auto: blank_line for a single file of plain text that is "
        "not hard-wrapped and for one sentence a line, else file. A Markdown "
        "file is a document, and so are a line of JSON lines and a <doc> of "
        "WikiExtractor.",
        choices=("auto", "file", "blank_line"),
    )
    skip_header_lines: int = setting(
        0,
        "Lines at the head of each file that are not its text.",
        minimum=0,
    )
    remove_duplicates: str = setting(
        "none",
        "Leave out what was read before, to the letter: documents, or "
        "paragraphs as well.",
        choices=("none", "documents", "paragraphs"),
    )
    sentence_splitter: str = setting(
        "punkt",
        "punkt: NLTK's Punkt trained on the corpus itself, and Unicode's "
        "sentence marks of other scripts (Chinese, Hindi, Arabic ...); "
        "newline: each line is a sentence already.",
        choices=("punkt", "newline"),
    )
    sentence_objective: str = setting(
        "sop",
        "Sentence objective: sop, sentence order (paper, section 3.1); nsp, "
        "next sentence (BERT); none: single segments.",
    )
    record_kind: str = setting(
        "dynamic",
        "dynamic: masked anew at every reading; static: masked here, in the "
        "schema of google-research/albert.",
        choices=("dynamic", "static"),
    )
    max_seq_length: int = setting(
        512, "Tokens in a record, special ones included.", minimum=8
    )
    short_seq_prob: float = setting(
        0.1,
        "Share of the instances drawn shorter.",
        minimum=0.0,
        maximum=1.0,
    )
    dupe_factor: int = setting(
        1,
        "Passes over the corpus with other segment boundaries and, for "
        "static records, other masks.",
        minimum=1,
    )
    num_shards: int = setting(
        0, "Output shards; 0: one per 64 MB of records.", minimum=0
    )
    eval_fraction: float = setting(
        0.0,
        "Share of the documents held out into a split of its own.",
        minimum=0.0,
        maximum=0.5,
    )
    random_seed: int = setting(
        12345,
        "Seed of everything that is drawn.",
        minimum=0,
        maximum=2**63 - 1,
        flag="seed",
    )


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(Section):
    """The optimizer and its schedule (defaults: the released recipe)."""

    optimizer: str = setting("lamb", "Update rule.", choices=("lamb", "adamw"))
    learning_rate: float = setting(0.00176, "Peak learning rate.", minimum=0.0)
    num_warmup_steps: int = setting(3125, "Steps of linear warm-up.", minimum=0)
    learning_rate_decay: str = setting(
        "polynomial",
        "How the learning rate falls after the warm-up.",
        choices=("polynomial", "cosine", "constant"),
    )
    decay_power: float = setting(
        1.0, "Power of the polynomial decay.", minimum=0.0
    )
    end_learning_rate: float = setting(
        0.0, "Learning rate at the last step.", minimum=0.0
    )
    original_schedule: bool = setting(
        False,
        "The schedule as google-research/albert computes it: the first step "
        "has rate 0, and the decay counts from the start of the run, so that "
        "the rate jumps where the warm-up ends.",
    )
    layer_decay: float = setting(
        1.0,
        "The learning rate of a layer is so many times that of the one above "
        "it; the heads have the full rate. Layers that share weights count "
        "as one.",
        minimum=0.0,
        maximum=1.0,
    )
    weight_decay_rate: float = setting(
        0.01, "Decoupled weight decay.", minimum=0.0
    )
    exclude_from_weight_decay: str = setting(
        "LayerNorm,layer_norm,bias",
        "Regular expressions, separated by commas: variables whose path "
        "matches one have no weight decay.",
    )
    exclude_from_layer_adaptation: str = setting(
        "LayerNorm,layer_norm,bias",
        "Likewise: variables that LAMB does not rescale.",
    )
    freeze: str = setting(
        "",
        "Likewise: variables that are not trained at all (encoder: a probe "
        "on the pretrained encoder).",
    )
    ema_decay: float = setting(
        0.0,
        "Decay of an exponential moving average of the weights, which is "
        "evaluated and saved as the model in their place; 0: none.",
        minimum=0.0,
        maximum=0.9999999,
    )
    beta_1: float = setting(
        0.9, "Decay of the first moment.", minimum=0.0, maximum=0.9999999
    )
    beta_2: float = setting(
        0.999, "Decay of the second moment.", minimum=0.0, maximum=0.9999999
    )
    epsilon: float = setting(
        1e-6, "Added to the root of the second moment.", minimum=0.0
    )
    bias_correction: bool = setting(
        False,
        "Correct the moments for their start at 0: the paper and "
        "tensorflow-addons do, the released models' code does not.",
    )
    max_grad_norm: float = setting(
        1.0, "Clip the global gradient norm; 0: never.", minimum=0.0
    )


@dataclasses.dataclass(frozen=True)
class TrainingConfig(Section):
    """How long, how wide and how often.

    What may change when a run goes on leaves the mathematics of its steps as
    it is (but for the order of floating-point sums), or is what a run that has
    diverged needs. The interval of evaluations may change too, although
    the best model and early stopping depend on it: the steps do not.
    """

    num_train_steps: int = setting(
        125000,
        "Optimizer steps; 0 (fine-tuning only): what num_train_epochs needs.",
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
        "Arithmetic of the layers; weights stay float32. float16 scales the "
        "loss, so that small gradients are not lost.",
        choices=("float32", "bfloat16", "float16"),
    )
    micro_batch_size: int = setting(
        0,
        "Sequences (of multiple choice: examples, with all their choices) "
        "that a replica works on at a time; the gradients of "
        "several such parts are added up before the update. 0: a replica's "
        "whole share of the batch; auto: the largest that fits into memory, "
        "which a new run tries and config.json keeps.",
        minimum=0,
        words=("auto",),
        may_change=True,
    )
    steps_per_loop: int = setting(
        1,
        "Steps per call of the compiled loop: more of them keep an "
        "accelerator busy.",
        minimum=1,
        may_change=True,
    )
    xla: bool = setting(
        False, "Compile forward and backward of a replica with XLA."
    )
    remat: str = setting(
        "none",
        "What is computed again for the gradient instead of being kept, for "
        "less memory, more time and the same result: selective, what is large "
        "for its arithmetic (about half of the memory); full, the inside of "
        "every block.",
        choices=REMAT,
        may_change=True,
    )
    save_checkpoints_steps: int = setting(
        5000,
        "Steps between checkpoints.",
        minimum=1,
        may_change=True,
    )
    keep_checkpoint_max: int = setting(
        5,
        "Newest checkpoints that are kept, beside the best.",
        minimum=1,
        may_change=True,
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
        0, "Most batches of one evaluation; 0: all.", minimum=0
    )
    best_metric: str = setting(
        "",
        "The measure of an evaluation by which the best model is kept; the "
        "lowest of a loss, perplexity or error, the highest of anything else. "
        "Empty: what suits the job.",
    )
    early_stopping_patience: int = setting(
        0,
        "End the run after so many evaluations without a better one; 0: never.",
        minimum=0,
    )
    on_nonfinite: str = setting(
        "stop",
        "At a loss or gradient that is NaN or infinite, which is never "
        "applied: stop the run; skip the step and go on; or rollback to the "
        "last checkpoint and go on with other examples.",
        choices=("stop", "skip", "rollback"),
        may_change=True,
    )
    max_loss_spike: float = setting(
        0.0,
        "Skip a step whose loss is more than so many standard deviations "
        "above the mean of the last 128 steps; 0: never.",
        minimum=0.0,
        may_change=True,
    )


@dataclasses.dataclass(frozen=True)
class PretrainingSettings(Section):
    """What only pretraining has."""

    sentence_objective: str = setting(
        "",
        "Sentence objective that the shards must have: sop, nsp or none; "
        "empty: any.",
    )
    phases: str = setting(
        "",
        "Steps of each phase, where several directories of shards are read "
        "one after another (short sequences, then long ones): numbers "
        "separated by commas, which add up to num_train_steps.",
    )
    phase_batch_sizes: str = setting(
        "",
        "The global batch of each phase, likewise; empty: train_batch_size "
        "in all.",
    )
    depth_schedule: str = setting(
        "",
        "How many of the model's layers are applied from which step on: "
        "0:3,2000:6,4000:12. Layers that share weights make it possible: "
        "those that train shallow go on unchanged. Empty: all, always.",
    )


@dataclasses.dataclass(frozen=True)
class PretrainConfig:
    """Everything that decides a pretraining run."""

    pretraining: PretrainingSettings = dataclasses.field(
        default_factory=PretrainingSettings
    )
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    masking: MaskingConfig = dataclasses.field(default_factory=MaskingConfig)
    optimizer: OptimizerConfig = dataclasses.field(
        default_factory=OptimizerConfig
    )
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)


@dataclasses.dataclass(frozen=True)
class RuntimeConfig(Section):
    """Where and how a run is carried out, and how far a job takes it.

    Not part of the configuration: a run may go on with other values, with
    more replicas, elsewhere. But for extend_to_steps none decides the result.
    """

    extend_to_steps: int = setting(
        0,
        "Lengthen the run in --run_dir to so many steps; the other flags stay "
        "those it was started with. The schedule becomes that of the new "
        "length, so that the learning rate jumps up from where it had fallen "
        "to; the last of several --phases is the longer one. 0: do not.",
        minimum=0,
    )
    strategy: str = setting(
        "default",
        "default: one device; mirrored: every GPU of the machine, or "
        "num_replicas logical CPUs; multi_worker: several processes, one per "
        "machine, see cluster; tpu: a TPU, see tpu.",
        choices=("default", "mirrored", "multi_worker", "tpu"),
    )
    num_replicas: int = setting(
        0,
        "Replicas of mirrored, or of each worker; 0: every device.",
        minimum=0,
    )
    cluster: str = setting(
        "",
        "How the workers of multi_worker find each other: tf_config, the "
        "variable TF_CONFIG as it is; local:N, N processes that are started "
        "on this machine; jobset, of Kubernetes; slurm. Empty: tf_config.",
    )
    cluster_timeout_secs: float = setting(
        600.0,
        "How long to wait for the other workers at the start.",
        minimum=1.0,
    )
    tpu: str = setting("local", "The TPU's name; local: that of this machine.")
    data_timeout_secs: float = setting(
        600.0,
        "How long a batch may take to be read before the run ends and tells "
        "where it hangs.",
        minimum=1.0,
    )
    profile_steps: str = setting(
        "",
        "Record what happens between two steps, such as 10,20, for "
        "TensorBoard's profiler.",
    )


@dataclasses.dataclass(frozen=True)
class FeatureConfig(Section):
    """How examples become sequences, and scores become answers.

    A fine-tuned model keeps it.
    """

    max_seq_length: int = setting(
        512,
        "Tokens of an example, special ones included; no more than the model "
        "has positions.",
        minimum=8,
        maximum=_MOST_TOKENS,
    )
    doc_stride: int = setting(
        128,
        "Tokens between the starts of two windows on a paragraph (questions).",
        minimum=1,
        maximum=_MOST_TOKENS,
    )
    max_query_length: int = setting(
        64,
        "Tokens of a question; what is longer is cut.",
        minimum=1,
        maximum=_MOST_TOKENS,
    )
    max_answer_length: int = setting(
        30,
        "Tokens of an answer that the model may give.",
        minimum=1,
        maximum=_MOST_TOKENS,
    )
    n_best_size: int = setting(
        20,
        "Likeliest answers that are kept of a question.",
        minimum=1,
        maximum=_MOST_TOKENS,
    )
    max_choice_length: int = setting(
        128,
        "Tokens of a question with one of its options (multiple choice); the "
        "last ones are kept.",
        minimum=1,
        maximum=_MOST_TOKENS,
    )
    null_threshold: float = setting(
        0.0,
        "Questions that may have no answer: a score of that above this means "
        "none. Fine-tuning chooses it on the dev examples.",
    )


@dataclasses.dataclass(frozen=True)
class FinetuneSettings(Section):
    """What only fine-tuning has."""

    num_train_epochs: float = setting(
        3.0, "Passes over the training examples.", minimum=0.0
    )
    warmup_proportion: float = setting(
        0.1,
        "Share of the steps that warm up, where num_warmup_steps is 0.",
        minimum=0.0,
        maximum=1.0,
    )
    padding: str = setting(
        "bucket",
        "bucket: a batch holds examples of about the same length, and is as "
        "wide as they need; max: every batch is max_seq_length wide, which "
        "costs time.",
        choices=("bucket", "max"),
    )
    double_unordered: bool = setting(
        False,
        "Train on every pair of texts in both orders; for tasks where their "
        "order says nothing (MRPC, QQP, STS-B, your own).",
    )


@dataclasses.dataclass(frozen=True)
class FinetuneConfig:
    """Everything that decides a fine-tuning run; the model brings its own."""

    finetuning: FinetuneSettings = dataclasses.field(
        default_factory=FinetuneSettings
    )
    features: FeatureConfig = dataclasses.field(default_factory=FeatureConfig)
    optimizer: OptimizerConfig = dataclasses.field(
        default_factory=lambda: OptimizerConfig(
            optimizer="adamw", learning_rate=2e-5, num_warmup_steps=0
        )
    )
    training: TrainingConfig = dataclasses.field(
        default_factory=lambda: TrainingConfig(
            num_train_steps=0,
            train_batch_size=32,
            save_checkpoints_steps=500,
            keep_checkpoint_max=2,
            eval_steps=500,
        )
    )

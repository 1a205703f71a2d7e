"""The architecture: `ModelConfig`, and what its layers share."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from albert_tf.config.fields import Section, setting
from albert_tf.config.messages import require

# Far above every real model, however much its layers share: a configuration
# that asks for more is a mistake or malicious.
_MAX_BLOCKS = 1024
_MAX_WEIGHTS = 1 << 38
MAX_TOKENS = 1 << 20
# The rows of POOLINGS (modeling/heads/pooling.py).
POOLING = (
    "first",
    "mean",
    "mean_max",
    "mean_ngrams",
    "pair_mean",
    "pair_mean_ngrams",
)


# Settings of an architecture that another task may change: no weight of the
# encoder depends on them.
TASK_SETTINGS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout_prob",
    "pooling",
)


# Layers with equal keys share the weights of a block's part.
LayerKey = Callable[[int, "ModelConfig"], int]


def own_weights(layer: int, config: "ModelConfig") -> int:
    """Returns a key of its own for every layer."""
    return layer


def group_weights(layer: int, config: "ModelConfig") -> int:
    """Returns the layer's group, the same for neighbouring layers.

    In integers: the original's division of floats picks the wrong group for
    some depths.
    """
    return layer * config.num_hidden_groups // config.num_hidden_layers


class Sharing(NamedTuple):
    """A row of SHARING: which layers share each part of their blocks."""

    attention: LayerKey
    feed_forward: LayerKey


# Sharing modes by name (paper, section 3.1 and Table 4). A new mode is a row
# here: nothing else depends on the name.
SHARING = {
    "all": Sharing(group_weights, group_weights),
    "attention": Sharing(group_weights, own_weights),
    "ffn": Sharing(own_weights, group_weights),
    "none": Sharing(own_weights, own_weights),
}


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
        12, "Number of block applications.", minimum=1, maximum=_MAX_BLOCKS
    )
    num_hidden_groups: int = setting(
        1,
        "Groups of layers; layers of one group share weights.",
        minimum=1,
        maximum=_MAX_BLOCKS,
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
        0.1, "Dropout before a fine-tuning head.", minimum=0.0, maximum=0.99
    )
    pooling: str = setting(
        "first",
        "Vector of a text that heads for classes, a number and choices read: "
        "first, the pooled output, tanh of a dense layer on the state of "
        "[CLS], as other libraries have it; mean, the mean state of the "
        "tokens; mean_max, that and the maximum of their states; mean_ngrams, "
        "that and which tokens and pairs of neighbours the text has; "
        "pair_mean, of a pair the means u and v of each text, |u - v| and "
        "u * v; pair_mean_ngrams, that and the same of their n-grams.",
        choices=POOLING,
    )
    max_position_embeddings: int = setting(
        512,
        "Longest sequence the model can read, in tokens.",
        minimum=4,
        maximum=MAX_TOKENS,
    )
    type_vocab_size: int = setting(2, "Segments.", minimum=1, maximum=2**10)
    initializer_range: float = setting(
        0.02, "Standard deviation of the initial kernels.", minimum=0.0
    )
    output_init_scale: float = setting(
        1.0,
        "Factor of that deviation for the output kernels of attention and "
        "feed-forward.",
        minimum=0.0,
    )
    position_init: str = setting(
        "normal",
        "Initial position embeddings: random, or sines and cosines of the "
        "same mean square, as in the first Transformer.",
        choices=("normal", "sinusoidal"),
    )
    layer_norm_eps: float = setting(
        1e-12, "Added to the variance in layer normalisation.", minimum=0.0
    )
    sharing: str = setting(
        "all", "Parameters that the layers of a group share.", choices=SHARING
    )
    always_project_embeddings: bool = setting(
        False,
        "Project the embeddings even where embedding_size equals hidden_size, "
        "as transformers does and the original does not.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.hidden_size % self.num_attention_heads == 0,
            f"hidden_size={self.hidden_size} is not a multiple of "
            f"num_attention_heads={self.num_attention_heads}.",
        )
        require(
            self.num_hidden_groups <= self.num_hidden_layers,
            f"num_hidden_groups={self.num_hidden_groups} exceeds "
            f"num_hidden_layers={self.num_hidden_layers}.",
        )
        blocks = self.num_hidden_layers * self.inner_group_num
        require(
            blocks <= _MAX_BLOCKS,
            f"num_hidden_layers={self.num_hidden_layers} times "
            f"inner_group_num={self.inner_group_num} makes {blocks} blocks; "
            f"the maximum is {_MAX_BLOCKS}.",
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
        require(
            weights <= _MAX_WEIGHTS,
            f"A model of vocab_size={self.vocab_size}, "
            f"embedding_size={self.embedding_size}, "
            f"hidden_size={self.hidden_size}, "
            f"intermediate_size={self.intermediate_size} and {blocks} blocks "
            f"could hold {weights} weights; the maximum is {_MAX_WEIGHTS}.",
        )

    @property
    def projects_embeddings(self) -> bool:
        """Whether a dense layer maps embeddings to the hidden states' width."""
        return (
            self.embedding_size != self.hidden_size
            or self.always_project_embeddings
        )


def sharing_plan(config: ModelConfig) -> list[tuple[int, int]]:
    """Returns (attention id, feed-forward id) of every block application.

    A layer applies inner_group_num blocks. Equal ids share weights. The list
    is in the order of application; ids count from 0 in the order of first
    use.
    """
    ids: tuple[dict, dict] = ({}, {})
    plan = []
    for layer in range(config.num_hidden_layers):
        keys = [key(layer, config) for key in SHARING[config.sharing]]
        for inner in range(config.inner_group_num):
            pair = []
            for known, key in zip(ids, keys, strict=True):
                pair.append(known.setdefault((key, inner), len(known)))
            plan.append(tuple(pair))
    return plan


def shares_whole_groups(config: ModelConfig) -> bool:
    """Returns whether the layers of a group share all their weights."""
    return set(SHARING[config.sharing]) == {group_weights}

"""How many weights a configuration has, by formula: nothing is built."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from albert_tf.config import ModelConfig, UserError

# What a pretraining model has on its encoder.
PRETRAINING_HEADS = ("masked_lm", "sentence_order")


@dataclasses.dataclass(frozen=True)
class ParameterCount:
    """Weights by parts; normalisations count with the part they close."""

    embeddings: int
    projection: int
    attention: int
    feed_forward: int
    pooler: int
    heads: Mapping[str, int]

    @property
    def encoder(self) -> int:
        """The weights of the encoder, with its pooler."""
        return (
            self.embeddings
            + self.projection
            + self.attention
            + self.feed_forward
            + self.pooler
        )

    @property
    def total(self) -> int:
        """The weights of the encoder and its heads."""
        return self.encoder + sum(self.heads.values())


def _dense(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def _layer_norm(width: int) -> int:
    return 2 * width


def _masked_lm(config: ModelConfig, num_labels: int) -> int:
    # The decoder is the table of word embeddings; only its bias is new.
    width = config.embedding_size
    return (
        _dense(config.hidden_size, width)
        + _layer_norm(width)
        + config.vocab_size
    )


def _answerable_span(config: ModelConfig, num_labels: int) -> int:
    # The head of google-research/albert for SQuAD 2.0. A span's end is found
    # from each state beside that of a start, answerability from a state beside
    # that of [CLS], by a layer without bias.
    width = config.hidden_size
    start = _dense(width, 1)
    end = _dense(2 * width, width) + _layer_norm(width) + _dense(width, 1)
    answerability = _dense(2 * width, width) + width
    return start + end + answerability


def _outputs(number: int) -> Callable[[ModelConfig, int], int]:
    """Returns the count of one dense layer from H to so many outputs."""
    return lambda config, num_labels: _dense(config.hidden_size, number)


def _one_output_a_label(config: ModelConfig, num_labels: int) -> int:
    return _dense(config.hidden_size, num_labels)


# What a head has, from the configuration and the number of its labels.
HEAD_WEIGHTS: dict[str, Callable[[ModelConfig, int], int]] = {
    "masked_lm": _masked_lm,
    "sentence_order": _outputs(2),
    "classification": _one_output_a_label,
    "regression": _outputs(1),
    "multiple_choice": _outputs(1),
    "token_classification": _one_output_a_label,
    "span": _outputs(2),
    "answerable_span": _answerable_span,
    "sentence_embedding": lambda config, num_labels: 0,
}


def parameter_count(
    config: ModelConfig,
    heads: Sequence[str] = (),
    num_labels: int = 2,
    pooler: bool = True,
) -> ParameterCount:
    """Returns the exact number of weights of a model, part by part.

    Args:
        config: the architecture.
        heads: rows of HEAD_WEIGHTS that sit on the encoder.
        num_labels: of the heads that classify.
        pooler: whether the encoder has one.

    Raises:
        UserError: for an unknown head.
    """
    for head in heads:
        if head not in HEAD_WEIGHTS:
            raise UserError(
                f"head={head!r} is not one of {', '.join(HEAD_WEIGHTS)}."
            )
    width, inner = config.hidden_size, config.intermediate_size
    ids = (
        config.vocab_size
        + config.type_vocab_size
        + config.max_position_embeddings
    )
    one_attention = 4 * _dense(width, width) + _layer_norm(width)
    one_feed_forward = (
        _dense(width, inner) + _dense(inner, width) + _layer_norm(width)
    )
    shared = config.num_hidden_groups * config.inner_group_num
    own = config.num_hidden_layers * config.inner_group_num
    attentions = shared if config.sharing in ("all", "attention") else own
    feed_forwards = shared if config.sharing in ("all", "ffn") else own
    projects = (
        config.embedding_size != width or config.always_project_embeddings
    )
    return ParameterCount(
        embeddings=ids * config.embedding_size
        + _layer_norm(config.embedding_size),
        projection=_dense(config.embedding_size, width) if projects else 0,
        attention=attentions * one_attention,
        feed_forward=feed_forwards * one_feed_forward,
        pooler=_dense(width, width) if pooler else 0,
        heads={head: HEAD_WEIGHTS[head](config, num_labels) for head in heads},
    )

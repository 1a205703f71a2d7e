"""How much arithmetic a pass through a model is, by formula: nothing is built.

What is counted, and what not:

1. A product of matrices [m, k] and [k, n] is 2 m k n operations: a
   multiplication and an addition for each of m k n.
2. Products of matrices only. Biases, activations, softmax, normalisation,
   dropout, losses and the optimizer's update are no share of a machine's rate
   of matrix multiplication; they are what keeps a program below it.
3. Embeddings are looked up: that the two segments may be a product with
   one-hot rows is a way of writing, not work that the model asks for.
4. Every position counts, padding as well.
5. On the way back every product has two: the gradient of either factor. Each
   is as large as the product itself, so a training step is three forward
   passes. The optimizer is not counted (2).
6. What --remat computes again is not counted: it gives nothing new. So rates
   with and without it compare.
7. The word embeddings' gradient from the tied output is such a product (5);
   that from the look-up is none.

B is batch_size, S seq_length, H hidden_size, E embedding_size, I
intermediate_size, V vocab_size, P num_predictions.
"""

from albert_tf.config import ModelConfig


def forward_terms(
    config: ModelConfig,
    *,
    batch_size: int,
    seq_length: int,
    num_predictions: int,
    read_positions_only: bool,
    num_applications: int | None = None,
) -> dict[str, int]:
    """Returns the operations of a forward pass in pretraining, part by part.

    Args:
        config: the architecture.
        batch_size: B, sequences.
        seq_length: S, tokens of each.
        num_predictions: P, positions of each that masked LM predicts.
        read_positions_only: whether the last block computes nothing but what
            the heads read: the state of [CLS] and of the P positions. Keys
            and values it needs everywhere.
        num_applications: how many times a block is applied; None: as the
            architecture says.

    Returns:
        `projection`, `query`, `key_value`, `attention` (the products of
        queries and keys, and of weights and values), `attention_output`,
        `feed_forward`, `pooler`, `masked_lm` and `sentence_order`.
    """
    width, table = config.hidden_size, config.embedding_size
    blocks = num_applications
    if blocks is None:
        blocks = config.num_hidden_layers * config.inner_group_num
    tokens = batch_size * seq_length
    predicted = batch_size * num_predictions
    # Summed over the blocks: the tokens whose states a block computes.
    computed = blocks * tokens
    if read_positions_only:
        computed += predicted + batch_size - tokens
    projects = table != width or config.always_project_embeddings
    return {
        "projection": _product(tokens, table, width) if projects else 0,
        "query": _product(computed, width, width),
        "key_value": 2 * _product(blocks * tokens, width, width),
        # Over all heads; each has its part of the width.
        "attention": 2 * _product(computed, width, seq_length),
        "attention_output": _product(computed, width, width),
        "feed_forward": 2 * _product(computed, width, config.intermediate_size),
        "pooler": _product(batch_size, width, width),
        "masked_lm": _product(predicted, width, table)
        + _product(predicted, table, config.vocab_size),
        "sentence_order": _product(batch_size, width, 2),
    }


def _product(rows: int, inner: int, columns: int) -> int:
    return 2 * rows * inner * columns


def encoder_flops(
    config: ModelConfig,
    *,
    batch_size: int,
    seq_length: int,
    read_positions_only: bool,
) -> int:
    """Returns the operations of the encoder and its pooler, without heads.

    Arguments as `forward_terms`'; what is read is the first position then.
    """
    terms = forward_terms(
        config,
        batch_size=batch_size,
        seq_length=seq_length,
        num_predictions=0,
        read_positions_only=read_positions_only,
    )
    return sum(terms.values()) - terms["masked_lm"] - terms["sentence_order"]


def forward_flops(
    config: ModelConfig,
    *,
    batch_size: int,
    seq_length: int,
    num_predictions: int,
    read_positions_only: bool,
    num_applications: int | None = None,
) -> int:
    """Returns the operations of a forward pass; see `forward_terms`."""
    return sum(
        forward_terms(
            config,
            batch_size=batch_size,
            seq_length=seq_length,
            num_predictions=num_predictions,
            read_positions_only=read_positions_only,
            num_applications=num_applications,
        ).values()
    )


def training_flops(
    config: ModelConfig,
    *,
    batch_size: int,
    seq_length: int,
    num_predictions: int,
    read_positions_only: bool,
    num_applications: int | None = None,
) -> int:
    """Returns the operations of a training step: forward and twice that back.

    Arguments as `forward_terms`'.
    """
    return 3 * forward_flops(
        config,
        batch_size=batch_size,
        seq_length=seq_length,
        num_predictions=num_predictions,
        read_positions_only=read_positions_only,
        num_applications=num_applications,
    )

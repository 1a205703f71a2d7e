"""ServingModule: a model with its tokenizer, and all its signatures.

Beside those of its heads for raw strings every model has `tokens`, `examples`
and `embed`.
"""

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.config import lookup
from albert_tf.interchange.export.exported_weights import (
    FloatWeights,
    Int8Weights,
)
from albert_tf.interchange.export.length_groups import MICRO_BATCH_TOKENS
from albert_tf.interchange.export.signatures import (
    Signature,
    SignatureGraph,
    Tensors,
    assertion,
    checked_values,
    row_assertion,
    strings,
)
from albert_tf.interchange.export.text_inputs import TEXT_INPUTS
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.modeling.heads import Head
from albert_tf.modeling.inputs import ENCODER_INPUTS


def _length_checks(
    lengths: Mapping[str, tf.Tensor], *, positions: int, of_choice: int | None
) -> list[tf.Operation]:
    """Returns assertions of the lengths `[rows]` of the lists of examples.

    Args:
        lengths: by the name of a feature.
        positions: the most ids, where there are no choices.
        of_choice: the number of ids of each choice.
    """
    ids = lengths["input_ids"]
    others = sorted(lengths.keys() - {"input_ids"})
    needed = [name not in ENCODER_INPUTS for name in others]
    counts = tf.stack([lengths[name] for name in others], axis=1)
    # Those of the encoder may be absent; a list that is empty cannot be told
    # from that.
    wrong = (counts != ids[:, None]) & ((counts > 0) | needed)
    if of_choice:
        is_off = ids % of_choice > 0
        number = f"{of_choice} input_ids for each choice"
    else:
        is_off = ids > positions
        number = f"1 to max_position_embeddings={positions} input_ids"
    return [
        row_assertion(
            (ids == 0) | is_off,
            [f"Expected a serialized tf.Example with {number}"],
            [lambda at: tf.gather_nd(ids, at)],
        ),
        row_assertion(
            wrong & (ids > 0)[:, None],
            [
                "Expected as many",
                lambda at: tf.gather(tf.constant(others), at[:, 1]),
                "as input_ids",
            ],
            [
                lambda at: tf.gather_nd(counts, at),
                "and",
                lambda at: tf.gather(ids, at[:, 0]),
            ],
        ),
    ]


def _token_signatures(
    graph: SignatureGraph, head: Head | None
) -> dict[str, Signature]:
    """Returns `tokens` and `examples`, both of ids."""
    length = graph.config.max_seq_length
    has_choices = head is not None and head.text_inputs == "choices"
    names = (*ENCODER_INPUTS, *(head.features if head else ()))
    shape = [None, None, None] if has_choices else [None, None]
    config = graph.loaded.model.config
    positions = config.max_position_embeddings
    limits = {
        "input_ids": config.vocab_size,
        "segment_ids": config.type_vocab_size,
        # Other numbers in a mask would give NaN.
        "input_mask": 2,
        "p_mask": 2,
    }

    def tokens(*values: tf.Tensor) -> Tensors:
        width = tf.shape(values[0])[-1]
        check = assertion(
            width > positions,
            f"Expected at most max_position_embeddings={positions} tokens in "
            "each row; got",
            width,
        )
        with tf.control_dependencies([check]):
            features = dict(zip(names, map(tf.identity, values), strict=True))
        known = {n: limit for n, limit in limits.items() if n in features}
        features = checked_values(features, known)
        if head is None:
            return graph.by_length(graph.embed, features)
        # Those of padding too, for heads that answer for every id.
        each = head.reads == "sequence_output"
        return graph.answer(head, features, one_width=each)

    def examples(examples: tf.Tensor) -> Tensors:
        rows = tf.io.parse_example(
            examples, dict.fromkeys(names, tf.io.RaggedFeature(tf.int64))
        )
        ids = rows["input_ids"]
        size = tf.unstack(tf.cast(ids.bounding_shape(), tf.int32), num=2)
        # Without rows there are columns too.
        size[1] = tf.maximum(size[1], length if has_choices else 1)
        checks = _length_checks(
            {name: values.row_lengths() for name, values in rows.items()},
            positions=positions,
            of_choice=length if has_choices else None,
        )
        with tf.control_dependencies(checks):
            given = {
                name: values.to_tensor(
                    graph.loaded.tokenizer.pad_id if values is ids else 0,
                    shape=size,
                )
                for name, values in rows.items()
            }
        # Without a mask all are tokens.
        given["input_mask"] = tf.where(
            rows["input_mask"].row_lengths()[:, None] > 0,
            given["input_mask"],
            tf.ones_like(ids).to_tensor(shape=size),
        )
        if has_choices:
            each = [size[0], size[1] // length, length]
            given = {n: tf.reshape(v, each) for n, v in given.items()}
        answers = tokens(*(given[name] for name in names))
        if has_choices:
            # Some examples have fewer choices than others.
            real = tf.reduce_any(given["input_mask"] > 0, axis=-1)
            probs = answers["probabilities"] * tf.cast(real, tf.float32)
            total = tf.reduce_sum(probs, axis=-1, keepdims=True)
            answers["probabilities"] = tf.math.divide_no_nan(probs, total)
        return answers

    of_choices = f", {length} ids for each choice in turn"
    lists = ", ".join(names) + (of_choices if has_choices else "")
    return {
        "tokens": Signature(
            "The same for token ids, of any batch and length.",
            tuple(tf.TensorSpec(shape, tf.int32, name) for name in names),
            tokens,
        ),
        "examples": Signature(
            f"The same for serialized tf.Examples with int64 lists {lists}.",
            (strings("examples"),),
            examples,
        ),
    }


def _signatures(graph: SignatureGraph) -> dict[str, Signature]:
    """Returns the model's signatures by name, `serving_default` first."""
    model, task = graph.loaded.model, graph.loaded.task
    own = [head for head in model.heads.values() if head.text_inputs]
    found: dict[str, Signature] = {}
    for head in own:
        row = lookup(TEXT_INPUTS, head.text_inputs, "text_inputs")
        found |= row(graph, head)
    found["embed"] = Signature(
        "Vectors of texts.",
        (strings("text"),),
        lambda text: graph.by_length(
            graph.embed, graph.pack(graph.tokenizer(text))
        ),
    )
    of_task = [head for head in own if not head.is_pretrained]
    default = next(iter(found)) if of_task else "embed"
    if task and task.pairs and "text_pair" in found:
        default = "text_pair"
    found |= _token_signatures(graph, of_task[0] if of_task else None)
    # The name of earlier versions.
    return {"serving_default": found[default], **found, "ids": found["tokens"]}


class ServingModule(tf.Module):
    """A model with its tokenizer in the graph.

    Attributes:
        graph: the parts that the signatures are made of.
        described: the signatures by name, `serving_default` first.
        functions: their functions.

    Raises:
        UserError: when a head of the model takes texts that no row of
            TEXT_INPUTS makes signatures for.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        weights: type[FloatWeights] | type[Int8Weights] = FloatWeights,
        micro_batch_tokens: int | None = MICRO_BATCH_TOKENS,
    ) -> None:
        super().__init__(name="albert")
        self.weights = weights(loaded.model.weights)
        self.graph = SignatureGraph(loaded, self.weights, micro_batch_tokens)
        self.tokenizer = self.graph.tokenizer
        self.described = _signatures(self.graph)
        self.functions = {
            name: signature.function
            for name, signature in self.described.items()
        }

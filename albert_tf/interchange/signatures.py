"""Signatures of an exported model: the texts it takes, the answers it gives.

A head names its row of TEXT_INPUTS (`Head.text_inputs`), which makes the
signatures for raw strings; every model has `tokens`, `examples` and `embed`.
"""

import dataclasses
import functools
from collections.abc import Callable

import tensorflow as tf

from albert_tf.config import lookup
from albert_tf.interchange import span_graph
from albert_tf.interchange.exported_weights import FloatWeights, Int8Weights
from albert_tf.interchange.length_groups import MICRO_BATCH_TOKENS, by_length
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.modeling.heads import Head
from albert_tf.modeling.heads.embedding import mean_of_tokens
from albert_tf.modeling.inputs import ENCODER_INPUTS, in_range
from albert_tf.tasks.kinds.multiple_choice import room_of_choices
from albert_tf.tasks.kinds.span_windows import check_lengths
from albert_tf.text.in_graph import InGraphTokenizer, part

Tensors = dict[str, tf.Tensor]

# Pieces that `fill_mask` returns for a mask.
_TOP_K = 5

# Meanings of outputs, for the export's README.
MEANINGS = {
    "probabilities": "of the classes, choices or pieces; their sum is 1",
    "label": "the likeliest class",
    "predictions": "the number",
    "choice": "the likeliest choice, counted from 0",
    "pieces": "the likeliest for every [MASK], the best first",
    "words": "those that the labels belong to",
    "answer": 'in the words of the context; "" for none',
    "char_start": "first character of the answer in the context; -1 for none",
    "char_end": "the one after its last; -1 for none",
    "byte_start": "first byte of the answer in the context; -1 for none",
    "byte_end": "the one after its last; -1 for none",
    "probability": "of the answer among the n_best_size best",
    "null_probability": "of there being no answer",
    "mean_output": "mean state of the tokens",
    "cls_output": "state of [CLS]",
    "pooled_output": "pooled state of [CLS]",
}


@dataclasses.dataclass(frozen=True)
class Signature:
    """What a signature takes and computes.

    Attributes:
        purpose: one line for the export's README.
        inputs: their names, types and shapes.
        call: a function of the inputs that returns the outputs by name.
    """

    purpose: str
    inputs: tuple[tf.TensorSpec, ...]
    call: Callable[..., Tensors]

    @functools.cached_property
    def function(self) -> tf.types.experimental.PolymorphicFunction:
        """`call` as a function of TensorFlow, one however many its names."""
        return tf.function(self.call, list(self.inputs), autograph=False)


def _strings(name: str, axes: int = 1) -> tf.TensorSpec:
    return tf.TensorSpec([None] * axes, tf.string, name)


class SignatureGraph:
    """The parts that signatures are made of.

    Attributes:
        config: the settings of features that the model was trained with.
        pack: makes features of ids of texts, or pairs.
        by_length: see length_groups.py.
        embed: vectors of features; a function that signatures share, as those
            of heads are.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        weights: FloatWeights | Int8Weights,
        micro_batch_tokens: int | None,
    ) -> None:
        self.loaded = loaded
        self.weights = weights
        self.tokenizer = InGraphTokenizer(loaded.tokenizer)
        self.config = loaded.features
        self.pack = functools.partial(
            self.tokenizer.pack, max_seq_length=self.config.max_seq_length
        )
        self.by_length = functools.partial(
            by_length, micro_batch_tokens=micro_batch_tokens
        )
        self.embed = tf.function(self._embed, autograph=False)
        self._heads = {
            name: tf.function(
                functools.partial(self._outputs, head), autograph=False
            )
            for name, head in loaded.model.heads.items()
        }

    def answer(
        self, head: Head, features: Tensors, *, one_width: bool = False
    ) -> Tensors:
        """Returns a head's answers, rows of similar length together."""
        answers = self.by_length(
            self._heads[head.head_name],
            features,
            sequence_outputs=head.reads == "sequence_output" and not one_width,
            one_width=one_width,
        )
        if head.takes_labels() and "probabilities" in answers:
            best = tf.argmax(answers["probabilities"], axis=-1)
            answers["label"] = tf.gather(tf.constant(self.loaded.labels), best)
        return answers

    def _outputs(self, head: Head, features: Tensors) -> Tensors:
        model = self.loaded.model
        none = tf.zeros([tf.shape(features["input_ids"])[0], 0], tf.int32)
        # Positions that another head reads: none.
        others = {
            other.reads: none
            for other in model.heads.values()
            if other is not head and other.reads in other.features
        }
        with self.weights.scope():
            outputs = model({**others, **features}, heads_only=True)
        return head.answers(outputs)

    def _embed(self, features: Tensors) -> Tensors:
        with self.weights.scope():
            outputs = self.loaded.model.encode(features)
        states = outputs["sequence_output"]
        mask = tf.reshape(features["input_mask"], tf.shape(states)[:2])
        found = {
            "mean_output": mean_of_tokens(states, mask),
            "cls_output": tf.cast(states[:, 0], tf.float32),
        }
        if "pooled_output" in outputs:
            pooled = outputs["pooled_output"]
            found["pooled_output"] = tf.cast(pooled, tf.float32)
        return found


def _texts(graph: SignatureGraph, head: Head) -> dict[str, Signature]:
    def single(text: tf.Tensor) -> Tensors:
        return graph.answer(head, graph.pack(graph.tokenizer(text)))

    def pair(text: tf.Tensor, text_pair: tf.Tensor) -> Tensors:
        first, second = map(graph.tokenizer, (text, text_pair))
        return graph.answer(head, graph.pack(first, second))

    pairs = _strings("text"), _strings("text_pair")
    return {
        "text": Signature("Answers for single texts.", pairs[:1], single),
        "text_pair": Signature("Answers for pairs of texts.", pairs, pair),
    }


def _sentences(graph: SignatureGraph, head: Head) -> dict[str, Signature]:
    pair = _texts(graph, head)["text_pair"]
    purpose = "Whether the second text follows the first."
    return {head.head_name: dataclasses.replace(pair, purpose=purpose)}


def _choices(graph: SignatureGraph, head: Head) -> dict[str, Signature]:
    config, both = graph.config, room_of_choices(graph.config)

    def call(text: tf.Tensor, choices: tf.Tensor) -> Tensors:
        shape = tf.shape(choices)
        second = graph.tokenizer(tf.reshape(choices, [-1]))
        lengths = second.row_lengths()
        tail = part(
            second, tf.maximum(lengths - config.max_choice_length, 0), lengths
        )
        of_choice = tf.repeat(tf.range(shape[0]), shape[1])
        first = tf.gather(graph.tokenizer(text), of_choice)
        room = tf.minimum(first.row_lengths(), both - tail.row_lengths())
        packed = graph.pack(part(first, 0, room), tail)
        features = {
            name: tf.reshape(rows, [*tf.unstack(shape), tf.shape(rows)[1]])
            for name, rows in packed.items()
        }
        answers = graph.answer(head, features)
        best = tf.argmax(answers["probabilities"], axis=-1)
        return {**answers, "choice": best}

    inputs = _strings("text"), _strings("choices", axes=2)
    purpose = "Which of several choices goes with a text."
    return {"choices": Signature(purpose, inputs, call)}


def _masks(graph: SignatureGraph, head: Head) -> dict[str, Signature]:
    tokenizer = graph.loaded.tokenizer
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))

    def call(text: tf.Tensor) -> Tensors:
        features = graph.pack(graph.tokenizer.encode_with_masks(text))
        at = tf.where(features["input_ids"] == tokenizer.mask_id)
        rows = tf.shape(text, tf.int64)[0]
        positions = tf.RaggedTensor.from_value_rowids(
            tf.cast(at[:, 1], tf.int32), at[:, 0], rows, validate=False
        )
        is_mask = tf.ones_like(positions).to_tensor()[..., None]
        features["masked_lm_positions"] = positions.to_tensor()
        probabilities = graph.answer(head, features)["probabilities"]
        values, ids = tf.math.top_k(
            probabilities, min(_TOP_K, tokenizer.vocab_size)
        )
        return {
            "pieces": tf.where(
                is_mask > 0, tf.gather(tf.constant(pieces), ids), ""
            ),
            "probabilities": values * tf.cast(is_mask, tf.float32),
        }

    purpose = "The likeliest pieces for every [MASK] in a text."
    return {"fill_mask": Signature(purpose, (_strings("text"),), call)}


def _words(graph: SignatureGraph, head: Head) -> dict[str, Signature]:
    unknown = graph.loaded.tokenizer.unk_id
    room = graph.config.max_seq_length - 2

    def next_place(
        state: tuple[tf.Tensor, tf.Tensor], length: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns row and end of words, after those of the words before."""
        row, end = state
        fits = end + length <= room
        return (
            tf.where(fits, row, row + 1),
            tf.where(fits, end + length, length),
        )

    def call(text: tf.Tensor) -> Tensors:
        words = graph.tokenizer.words(text)
        ids = graph.tokenizer.encode(words.flat_values)
        # No word may get lost.
        missing = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.math.count_nonzero(ids.row_lengths() == 0)], unknown),
            tf.cast(ids.row_lengths() == 0, tf.int64),
            validate=False,
        )
        ids = tf.concat([ids, missing], 1)[:, :room]
        of_words = words.with_flat_values(ids.row_lengths())
        shape = [words.nrows(), tf.maximum(words.bounding_shape(axis=1), 1)]
        lengths = of_words.to_tensor(shape=shape)
        start = tf.zeros_like(lengths[:, 0])
        rows, ends = (
            tf.transpose(value)
            for value in tf.scan(
                next_place, tf.transpose(lengths), (start, start)
            )
        )
        numbers = rows[:, -1] + 1
        rows += tf.cumsum(numbers, exclusive=True)[:, None]
        is_word = tf.ones_like(of_words).to_tensor(0, shape=shape) > 0
        row = tf.boolean_mask(rows, is_word)
        first = tf.boolean_mask(1 + ends - lengths, is_word)
        in_rows = tf.RaggedTensor.from_value_rowids(
            ids, row, tf.reduce_sum(numbers), validate=False
        )
        answers = graph.answer(head, graph.pack(in_rows.merge_dims(1, 2)))
        places = tf.stack([row, first], axis=-1)
        found = {
            name: words.with_flat_values(
                tf.gather_nd(values, places)
            ).to_tensor()
            for name, values in answers.items()
        }
        return {**found, "words": words.to_tensor()}

    purpose = "A label for every word between white space."
    return {"words": Signature(purpose, (_strings("text"),), call)}


def _questions(graph: SignatureGraph, head: Head) -> dict[str, Signature]:
    config, tokenizer = graph.config, graph.tokenizer
    check_lengths(config)

    def call(question: tf.Tensor, context: tf.Tensor) -> Tensors:
        queries = tokenizer(question)[:, : config.max_query_length]
        texts = tokenizer.decode(context)
        is_space, bytes_of = tokenizer.characters(context)
        ids, starts, ends = tokenizer.encode_with_offsets(texts)
        paragraphs = span_graph.Paragraphs(
            texts, ids, *span_graph.without_spaces(is_space, starts, ends)
        )
        parts = span_graph.windows(queries, ids, config)
        features = graph.pack(
            tf.gather(queries, parts.question),
            tf.gather(ids.flat_values, parts.tokens),
        )
        mask = features["input_mask"]
        null_scores = None
        if "p_mask" in head.features:
            columns = tf.range(tf.shape(mask)[1])
            sizes = tf.cast(parts.tokens.row_lengths(), tf.int32)
            fronts, ends_of = parts.fronts, parts.fronts + sizes
            is_part = (columns >= fronts[:, None]) & (
                columns < ends_of[:, None]
            )
            # An answer can be at [CLS]: none.
            features["p_mask"] = tf.cast(~(is_part | (columns == 0)), tf.int32)
            outputs = graph.answer(head, features, one_width=True)
            beams = span_graph.beams_of_head(outputs)
            null_scores = outputs["unanswerable_logits"]
        else:
            beams = span_graph.beams_of_logits(
                graph.answer(head, features), mask, config.n_best_size
            )
        found = span_graph.best_answers(
            paragraphs, parts, beams, null_scores, config
        )
        for name in ("start", "end"):
            place = found.pop(name)
            at = tf.gather(bytes_of, tf.maximum(place, 0), batch_dims=1)
            found[f"char_{name}"] = place
            found[f"byte_{name}"] = tf.where(place < 0, -1, at)
        return found

    inputs = _strings("question"), _strings("context")
    purpose = "The answer to a question in a context."
    return {"question": Signature(purpose, inputs, call)}


# Signatures for raw strings, the default one first, by `Head.text_inputs`.
TEXT_INPUTS: dict[
    str, Callable[[SignatureGraph, Head], dict[str, Signature]]
] = {
    "texts": _texts,
    "sentences": _sentences,
    "choices": _choices,
    "masks": _masks,
    "words": _words,
    "question": _questions,
}


def _token_signatures(
    graph: SignatureGraph, head: Head | None
) -> dict[str, Signature]:
    """Returns `tokens` and `examples`, both of ids."""
    length = graph.config.max_seq_length
    has_choices = head is not None and head.text_inputs == "choices"
    names = (*ENCODER_INPUTS, *(head.features if head else ()))
    shape = [None, None, None] if has_choices else [None, None]

    def tokens(*values: tf.Tensor) -> Tensors:
        # The process dies of some shapes that disagree.
        same = [
            tf.debugging.assert_equal(
                tf.shape(value),
                tf.shape(values[0]),
                f"{name} must have the shape of input_ids.",
            )
            for name, value in zip(names[1:], values[1:], strict=True)
        ]
        with tf.control_dependencies(same):
            features = dict(zip(names, map(tf.identity, values), strict=True))
        # Other numbers in a mask would give NaN.
        for name in {"input_mask", "p_mask"}.intersection(names):
            features[name] = in_range(name, features[name], 2, "2")
        if head is None:
            return graph.by_length(graph.embed, features)
        # Those of padding too, for heads that answer for every id.
        each = head.reads == "sequence_output"
        return graph.answer(head, features, one_width=each)

    def examples(examples: tf.Tensor) -> Tensors:
        parsed = tf.io.parse_example(
            examples, dict.fromkeys(names, tf.io.RaggedFeature(tf.int64))
        )
        rows = {name: tf.cast(parsed[name], tf.int32) for name in names}
        ids = rows["input_ids"]
        size = tf.unstack(tf.cast(ids.bounding_shape(), tf.int32), num=2)
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
        return tokens(*given.values())

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
            (_strings("examples"),),
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
        (_strings("text"),),
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

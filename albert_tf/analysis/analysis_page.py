"""A page on what a model does inside, by the functions of this room."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from albert_tf.analysis.attention_patterns import (
    attentions,
    mean_distances,
    uniform_distance,
)
from albert_tf.analysis.layer_distances import layer_distances
from albert_tf.analysis.neighbours import nearest
from albert_tf.analysis.probes import (
    Probed,
    can_be_probed,
    in_long_documents,
    longer_than_the_median,
    mean_states,
    neighbours_in_order,
    run_probe,
)
from albert_tf.analysis.tag_probe import TaggedSentences, probe_tags
from albert_tf.config import cut
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.report.figures import draw_grid, draw_lines
from albert_tf.report.page import Figure, Page, Paragraph, Part, Section, Table

# Texts whose attention is measured.
_ATTENDED = 32
_BATCH_SIZE = 32
# Tokens of the sentence whose attention is drawn: the picture grows with their
# square.
_MOST_DRAWN = 64
_NUM_QUERIES = 8
_NUM_NEIGHBOURS = 4
# Pieces whose neighbours are shown: of middling frequency, since a
# vocabulary is sorted by it.
_FIRST_PIECE = 500
_MAX_CHARACTERS = 120
_TAG = "tag of a word"


@dataclasses.dataclass(frozen=True)
class Texts:
    """Texts in their order, and the number of the document of each."""

    texts: Sequence[str]
    documents: Sequence[int]


def analysis_page(
    loaded: LoadedModel,
    texts: Texts,
    sentence: str,
    seed: int,
    tagged: TaggedSentences | None = None,
) -> Page:
    """Returns the page.

    Args:
        loaded: the model.
        texts: what it reads.
        sentence: what the picture of attention shows.
        seed: of the draws.
        tagged: sentences for a probe of their tags.
    """
    config = loaded.model.config
    introduction = Paragraph(
        f"{config.num_hidden_layers} layers of width {config.hidden_size}, "
        f"sharing {config.sharing}; {len(texts.texts)} texts of "
        f"{len(set(texts.documents))} documents."
    )
    states = mean_states(
        loaded.model, loaded.tokenizer, texts.texts, loaded.max_seq_length
    )
    probed = _probed(loaded, texts, states, seed)
    layers = ["embeddings", *(f"layer {n}" for n in range(1, len(states)))]
    sections = [
        _distances(loaded, texts),
        _probes(loaded, probed, layers, tagged),
        _attention(loaded, texts, sentence),
        _pieces(loaded, seed),
        _sentences(texts, states[-1], seed),
    ]
    return Page("What the model does inside", [introduction], sections)


def _distances(loaded: LoadedModel, texts: Texts) -> Section:
    found = layer_distances(
        loaded.model,
        (
            loaded.tokenizer(
                texts.texts[start : start + _BATCH_SIZE],
                max_seq_length=loaded.max_seq_length,
            )
            for start in range(0, len(texts.texts), _BATCH_SIZE)
        ),
    )
    layers = range(1, len(found.l2_distance) + 1)
    parts: list[Part] = [
        Paragraph(
            f"Means over {found.num_tokens:,} tokens (Figure 1 of the ALBERT "
            "paper)."
        )
    ]
    for title, values in (
        ("L2 distance of a layer's input and output", found.l2_distance),
        ("Cosine of a layer's input and output", found.cosine_similarity),
    ):
        png = draw_lines({title: [(list(layers), list(values))]}, "layer")
        name = f"{title.split()[0].lower()}.png"
        parts.append(Figure(png, f"{title}.", name))
    return Section("Layers", parts)


def _probed(
    loaded: LoadedModel, texts: Texts, states: np.ndarray, seed: int
) -> list[Probed]:
    """Returns the results of the probes that can be run on the texts.

    `states` are the mean states of the texts, `[layers + 1, texts, hidden]`.
    """
    pairs, swapped = neighbours_in_order(texts.texts, seed)
    of_pairs = mean_states(
        loaded.model, loaded.tokenizer, pairs, loaded.max_seq_length
    )
    kept = in_long_documents(texts.documents)
    documents = [texts.documents[n] for n in kept]
    longer = longer_than_the_median(texts.texts)
    return [
        run_probe(*question)
        for question in (
            ("order of two neighbouring texts", of_pairs, swapped),
            ("longer than the median", states, longer),
            ("document of the text", states[:, kept], documents),
        )
        if can_be_probed(question[-1])
    ]


def _probes(
    loaded: LoadedModel,
    probed: Sequence[Probed],
    layers: Sequence[str],
    tagged: TaggedSentences | None,
) -> Section:
    lines = {p.name: p.accuracies for p in probed}
    rows = [[p.name, *_shares([p.majority, *p.accuracies])] for p in probed]
    parts: list[Part] = [
        Paragraph(
            "Accuracy of a linear model on the mean state of the tokens, "
            "five-fold cross-validation. A question is left out where all "
            "texts have one answer, or fewer than five texts have some answer."
        ),
        Table(["what is asked", "guessing", *layers], rows),
    ]
    if tagged:
        tags = probe_tags(
            loaded.model, loaded.tokenizer, tagged, loaded.max_seq_length
        )
        lines[_TAG] = tags.accuracies
        row = _shares([tags.majority, tags.by_word, *tags.accuracies])
        parts.append(
            Table(
                ["what is asked", "guessing", "by word", *layers],
                [[_TAG, *row]],
                "Tags: accuracy of a linear model on the state of each word's "
                f"first piece, learned on {len(tagged.train)} sentences, "
                f"on {len(tagged.held_out)} others; beside it, that of "
                "guessing the most frequent tag, and that of each word. What "
                "a layer has above these, and above the embeddings, it has "
                "from other tokens.",
            )
        )
    png = draw_lines(
        {name: [(range(len(layers)), line)] for name, line in lines.items()},
        "layer (0: the embeddings)",
    )
    parts.append(Figure(png, "Accuracy of each probe by layer.", "probes.png"))
    return Section("Probes of frozen states", parts)


def _shares(values: Sequence[float]) -> list[str]:
    return [f"{value:.1%}" for value in values]


def _attention(loaded: LoadedModel, texts: Texts, sentence: str) -> Section:
    inputs = [
        loaded.tokenizer([text], max_seq_length=loaded.max_seq_length)
        for text in texts.texts[:_ATTENDED]
    ]
    lengths = [batch["input_ids"].shape[1] for batch in inputs]
    reach = mean_distances(loaded.model, inputs)
    header = ["layer", *(f"head {head + 1}" for head in range(reach.shape[1]))]
    rows = [
        [layer, *(f"{value:.1f}" for value in row)]
        for layer, row in enumerate(reach, start=1)
    ]
    return Section(
        "Attention",
        [
            Table(
                header,
                rows,
                "Mean distance in tokens of what a token attends to; of a head "
                "that attends to all tokens alike it is "
                f"{uniform_distance(lengths):.1f}. Less is local.",
            ),
            _drawn(loaded, sentence),
        ],
    )


def _drawn(loaded: LoadedModel, sentence: str) -> Figure:
    """Returns the attention in a sentence, or in its beginning."""
    one = loaded.tokenizer([sentence], max_seq_length=loaded.max_seq_length)
    pieces = loaded.tokenizer.pieces(one["input_ids"][0].tolist())
    weights = attentions(loaded.model, one)[:, 0].mean(axis=1)
    png = draw_grid(
        {
            f"layer {number}": matrix[:_MOST_DRAWN, :_MOST_DRAWN]
            for number, matrix in enumerate(weights, start=1)
        },
        pieces[:_MOST_DRAWN],
    )
    part = ""
    if len(pieces) > _MOST_DRAWN:
        part = f" (the first {_MOST_DRAWN} of {len(pieces)} tokens)"
    return Figure(
        png,
        "Attention of each token (row) to each (column), mean over the "
        f"heads{part}: “{sentence}”",
        "attention.png",
    )


def _pieces(loaded: LoadedModel, seed: int) -> Section:
    table = np.array(loaded.model.encoder.embeddings.word_embeddings)
    # Special pieces are near what occurs seldom, which says nothing.
    table[list(loaded.tokenizer.special_ids)] = 0.0
    ids = np.arange(min(_FIRST_PIECE, len(table) // 2), len(table))
    generator = np.random.default_rng(seed)
    queries = np.sort(generator.choice(ids, _NUM_QUERIES, replace=False))
    found, cosines = nearest(table, queries, _NUM_NEIGHBOURS)
    rows = [
        [
            loaded.tokenizer.pieces([int(query)])[0],
            ", ".join(
                f"{piece} ({cosine:.2f})"
                for piece, cosine in zip(
                    loaded.tokenizer.pieces(near.tolist()), row, strict=True
                )
            ),
        ]
        for query, near, row in zip(queries, found, cosines, strict=True)
    ]
    table_part = Table(["piece", "nearest by embedding"], rows)
    return Section("Neighbours of pieces", [table_part])


def _sentences(texts: Texts, states: np.ndarray, seed: int) -> Section:
    """Returns texts with the nearest others by `states`, `[texts, hidden]`."""
    # All states have their mean in common: it is taken off.
    states = states - states.mean(axis=0)
    generator = np.random.default_rng(seed)
    queries = generator.choice(len(states), _NUM_QUERIES, replace=False)
    found, cosines = nearest(states, queries, 2)
    rows = [
        [
            cut(texts.texts[query], _MAX_CHARACTERS),
            cut(texts.texts[near], _MAX_CHARACTERS),
            f"{cosine:.2f}",
        ]
        for query, row, of_row in zip(queries, found, cosines, strict=True)
        for near, cosine in zip(row, of_row, strict=True)
    ]
    header = ["text", "nearest by mean state of the last layer", "cosine"]
    return Section("Neighbours of texts", [Table(header, rows)])

"""A page on what a model does inside, by the functions of this room."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from albert_tf.analysis.attention_patterns import (
    attentions,
    mean_distance,
    uniform_distance,
)
from albert_tf.analysis.layer_distances import layer_distances
from albert_tf.analysis.neighbours import nearest
from albert_tf.analysis.probes import (
    length_probe,
    mean_states,
    order_probe,
    run_probe,
    source_probe,
)
from albert_tf.analysis.tag_probe import TaggedSentences, probe_tags
from albert_tf.config import cut
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.report.figures import draw_grid, draw_lines
from albert_tf.report.page import Figure, Page, Paragraph, Part, Section, Table

# Texts of the batch in which attention is measured.
_ATTENDED = 32
_BATCH_SIZE = 32
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
    sections = [
        _distances(loaded, texts),
        _probes(loaded, texts, tagged, seed),
        _attention(loaded, texts, sentence),
        _pieces(loaded, seed),
        _sentences(loaded, texts, seed),
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


def _probes(
    loaded: LoadedModel,
    texts: Texts,
    tagged: TaggedSentences | None,
    seed: int,
) -> Section:
    probes = [
        order_probe(texts.texts, seed),
        length_probe(texts.texts),
        source_probe(texts.texts, texts.documents),
    ]
    found = [
        run_probe(p, loaded.model, loaded.tokenizer, loaded.max_seq_length)
        for p in probes
        if p
    ]
    layers = ["embeddings"]
    layers += [f"layer {n}" for n in range(1, len(found[0].accuracies))]
    lines = {p.name: p.accuracies for p in found}
    rows = [[p.name, *_shares([p.majority, *p.accuracies])] for p in found]
    parts: list[Part] = [
        Paragraph(
            "Accuracy of a linear model on the mean state of the tokens, "
            "five-fold cross-validation."
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
    batch = loaded.tokenizer(
        texts.texts[:_ATTENDED], max_seq_length=loaded.max_seq_length
    )
    mask = batch["input_mask"]
    reach = mean_distance(attentions(loaded.model, batch), mask)
    header = ["layer", *(f"head {head + 1}" for head in range(reach.shape[1]))]
    rows = [
        [layer, *(f"{value:.1f}" for value in row)]
        for layer, row in enumerate(reach, start=1)
    ]
    one = loaded.tokenizer([sentence], max_seq_length=loaded.max_seq_length)
    pieces = loaded.tokenizer.pieces(one["input_ids"][0].tolist())
    weights = attentions(loaded.model, one)[:, 0].mean(axis=1)
    names = [f"layer {layer + 1}" for layer in range(len(weights))]
    png = draw_grid(dict(zip(names, weights, strict=True)), pieces)
    return Section(
        "Attention",
        [
            Table(
                header,
                rows,
                "Mean distance in tokens of what a token attends to; of a head "
                "that attends to all tokens alike it is "
                f"{uniform_distance(mask):.1f}. Less is local.",
            ),
            Figure(
                png,
                "Attention of each token (row) to each (column), mean over the "
                f"heads: “{sentence}”",
                "attention.png",
            ),
        ],
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


def _sentences(loaded: LoadedModel, texts: Texts, seed: int) -> Section:
    states = mean_states(
        loaded.model, loaded.tokenizer, texts.texts, loaded.max_seq_length
    )[-1]
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

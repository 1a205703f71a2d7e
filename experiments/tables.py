"""TABLES: the paper's tables and figures and some of our own, as data.

Rows are written in the paper's numbers, over ALBERT-base, and have the paper's
results where it prints them; ours may have numbers of their own. What a table
claims is a contrast of its rows.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.recipes import CANDIDATES, PEERS, REFERENCE

# Measures that are scores on held-out shards of that text.
TEXTS = ("domain", "general")
# Measures of next-sentence accuracy on held-out pairs whose random segments are
# drawn from a split: what their columns are called, and the split.
RANDOM_SEGMENTS = {
    "nsp_training": ("training segments", "train"),
    "nsp_held_out": ("held-out segments", "eval"),
}
# The paper's figures of a row, in the order of its columns.
RELATIVE_THROUGHPUT = "relative throughput"
PUBLISHED_COLUMNS = (
    "million parameters",
    *("SQuAD1.1 F1", "SQuAD1.1 EM", "SQuAD2.0 F1", "SQuAD2.0 EM"),
    *("MNLI", "SST-2", "RACE", "average"),
    *("masked-LM accuracy", "NSP accuracy", "SOP accuracy"),
    RELATIVE_THROUGHPUT,
)


@dataclasses.dataclass(frozen=True)
class Row:
    """A model of a table.

    Attributes:
        name: as in the paper.
        settings: of `PretrainConfig` in the paper's numbers, where they differ
            from ALBERT-base; a scale translates them.
        published: the paper's results by column.
        more_text: pretrained on the additional text too.
        equal_work: name of the row with whose arithmetic it is trained.
        own: settings in numbers that no scale translates; schedules have
            shares of the training in place of steps.
        kind: of the unit that trains it.
        domain: pretrained on the domain's text.
        start: name of the row whose model pretraining continues.
        new_words: that model's vocabulary has words of the domain as well.
        work: the arithmetic of its training, as a multiple of the scale's.
        hard_examples: masks words more often that `start` gets wrong.
        seq_length: tokens of a sequence at every scale, of which a step has
            as many in all; 0: the scale's.
        module: imported by the program that trains it (`--import`).
    """

    name: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    published: Mapping[str, float] = dataclasses.field(default_factory=dict)
    more_text: bool = False
    equal_work: str = ""
    own: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    kind: str = "pretraining"
    domain: bool = False
    start: str = ""
    new_words: bool = False
    work: float = 1.0
    hard_examples: bool = False
    seq_length: int = 0
    module: str = ""


@dataclasses.dataclass(frozen=True)
class Claim:
    """What a table shows, as a sum of rows' scores that is above 0.

    Attributes:
        text: the claim in words.
        weights: factor of each row's score, by name; they sum to 0.
        about: beginnings of the columns that it is about, or "tasks"; empty:
            all.
    """

    text: str
    weights: Mapping[str, float]
    about: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Table:
    """A row of TABLES.

    Attributes:
        title: as in the paper.
        rows: of which equal ones in several tables are trained once.
        claims: that the report tests.
        measures: names of MEASURES that every model gets beside the tasks.
        tasks: whether the models are fine-tuned.
        trained: whether models are trained, before they are measured.
        note: what readers must know of its columns.
        throughput_unit: name of the row to which the rates of training are
            set in relation; empty: to none.
    """

    title: str
    rows: Sequence[Row]
    claims: Sequence[Claim] = ()
    measures: Sequence[str] = ()
    tasks: bool = True
    trained: bool = True
    note: str = ""
    throughput_unit: str = ""


def _row(name: str, settings: Mapping[str, Any], scores: str) -> Row:
    """Returns a row with the paper's scores in the order of its columns."""
    numbers = map(json.loads, scores.split())
    published = dict(zip(PUBLISHED_COLUMNS, numbers, strict=False))
    return Row(name, settings, published)


def _embeddings(lines: str) -> tuple[Row, ...]:
    """Returns rows of a sharing and a size of embeddings, and their scores."""
    rows = []
    for line in lines.strip().splitlines():
        sharing, size, scores = line.split(maxsplit=2)
        settings = {"sharing": sharing, "embedding_size": int(size)}
        rows.append(_row(f"{_SHARING[sharing]} E={size}", settings, scores))
    return tuple(rows)


_SHARING = {
    "all": "all-shared",
    "attention": "shared-attention",
    "ffn": "shared-FFN",
    "none": "not-shared",
}
_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24}
_XLARGE = {"hidden_size": 2048, "num_hidden_layers": 24}
_XXLARGE = {"hidden_size": 4096, "num_hidden_layers": 12}
# Arithmetic of adaptation, as a multiple of that of pretraining.
_ADAPTATION = 0.5
# Columns in which models of different vocabularies compare.
_OF_ANY_VOCABULARY = ("domain word accuracy", "domain SOP accuracy", "tasks")
_ATTENTION = {
    "attention to all": "",
    "local attention": "experiments.local_attention",
}
_DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
_NO_DROPOUT = dict.fromkeys(_DROPOUT, 0.0)


def _bert(size: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a BERT of that size."""
    width = size.get("hidden_size", 768)
    bert = {"embedding_size": width, "sharing": "none"}
    return {**size, **bert, "sentence_objective": "nsp"}


def _each(
    setting: str, label: str, values: Sequence[Any], base: Mapping[str, Any]
) -> tuple[Row, ...]:
    """Returns a row for each value of a setting, without published scores."""
    return tuple(Row(f"{label}={v}", {**base, setting: v}) for v in values)


def _initial(name: str, deviation: float, positions: str, scale: float) -> Row:
    """Returns a row of initial weights, of two layers."""
    weights = {
        "initializer_range": deviation,
        "position_init": positions,
        "output_init_scale": scale,
    }
    return Row(name, own={**weights, "num_hidden_layers": 2})


_TABLE_3 = _embeddings(
    """
    none  64   87 89.9 82.9 80.1 77.8 82.9 91.5 66.7 81.3
    none 128   89 89.9 82.8 80.3 77.3 83.7 91.5 67.9 81.7
    none 256   93 90.2 83.2 80.3 77.4 84.1 91.9 67.3 81.8
    none 768  108 90.4 83.2 80.4 77.6 84.5 92.8 68.2 82.3
    all   64   10 88.7 81.4 77.5 74.8 80.8 89.4 63.5 79.0
    all  128   12 89.3 82.3 80.0 77.1 81.6 90.3 64.0 80.1
    all  256   16 88.8 81.5 79.1 76.3 81.5 90.3 63.4 79.6
    all  768   31 88.6 81.5 79.2 76.6 82.0 90.6 63.3 79.8
    """
)
_TABLE_4 = _embeddings(
    """
    all       768   31 88.6 81.5 79.2 76.6 82.0 90.6 63.3 79.8
    attention 768   83 89.9 82.7 80.0 77.2 84.0 91.4 67.7 81.6
    ffn       768   57 89.2 82.1 78.2 75.4 81.5 90.8 62.6 79.5
    none      768  108 90.4 83.2 80.4 77.6 84.5 92.8 68.2 82.3
    all       128   12 89.3 82.3 80.0 77.1 82.0 90.3 64.0 80.1
    attention 128   64 89.9 82.8 80.7 77.9 83.4 91.9 67.6 81.7
    ffn       128   38 88.9 81.6 78.6 75.6 82.3 91.7 64.4 80.2
    none      128   89 89.9 82.8 80.3 77.3 83.2 91.5 67.9 81.6
    """
)


def _size(
    name: str, settings: Mapping[str, Any], millions: int, **others: float
) -> Row:
    """Returns a row with its parameters and rate, as far as published."""
    published = {"million parameters": millions}
    if "throughput" in others:
        published[RELATIVE_THROUGHPUT] = others["throughput"]
    return Row(name, settings, published)


_SIZES = (
    _size("BERT base", _bert({}), 108),
    _size("BERT large", _bert(_LARGE), 334, throughput=1.0),
    _size("BERT xlarge", _bert(_XLARGE), 1270),
    _size("ALBERT base", {}, 12),
    _size("ALBERT large", _LARGE, 18, throughput=1.7),
    _size("ALBERT xlarge", _XLARGE, 60),
    _size("ALBERT xxlarge", _XXLARGE, 235, throughput=0.3),
)

_CANDIDATES = {
    name: Row(name, own=own, equal_work="" if name == REFERENCE else REFERENCE)
    for name, own in CANDIDATES.items()
}
_PEERS = [
    Row(name, own=own, equal_work=REFERENCE, kind="peer")
    for name, own in PEERS.items()
]

TABLES: dict[str, Table] = {
    "parameters": Table(
        "Table 1: configurations and parameters",
        _SIZES,
        tasks=False,
        trained=False,
    ),
    "bert": Table(
        "Table 2: BERT and ALBERT of several sizes",
        _SIZES,
        (
            Claim(
                "ALBERT xxlarge is better than BERT large.",
                {"ALBERT xxlarge": 1, "BERT large": -1},
            ),
            Claim(
                "BERT xlarge is worse than BERT base.",
                {"BERT base": 1, "BERT xlarge": -1},
            ),
        ),
        throughput_unit="BERT large",
    ),
    "embedding": Table(
        "Table 3: the size of the vocabulary embedding",
        _TABLE_3,
        (
            Claim(
                "Without sharing, larger embeddings are better "
                "(E=768 against E=64).",
                {"not-shared E=768": 1, "not-shared E=64": -1},
            ),
            Claim(
                "With all shared, E=128 is better than E=768.",
                {"all-shared E=128": 1, "all-shared E=768": -1},
            ),
            Claim(
                "With all shared, E=128 is better than E=64.",
                {"all-shared E=128": 1, "all-shared E=64": -1},
            ),
        ),
    ),
    "sharing": Table(
        "Table 4: sharing of parameters across layers",
        _TABLE_4,
        (
            Claim(
                "Sharing all costs less at E=128 than at E=768.",
                {
                    "not-shared E=768": 1,
                    "all-shared E=768": -1,
                    "not-shared E=128": -1,
                    "all-shared E=128": 1,
                },
            ),
            Claim(
                "Sharing attention alone costs nothing at E=128.",
                {"shared-attention E=128": 1, "not-shared E=128": -1},
            ),
            Claim(
                "Most of the loss comes from sharing the feed-forward part: "
                "shared-attention is better than shared-FFN (E=128).",
                {"shared-attention E=128": 1, "shared-FFN E=128": -1},
            ),
        ),
    ),
    "objective": Table(
        "Table 5: the sentence-pair objective",
        tuple(
            _row(name, {"sentence_objective": name.lower()}, scores)
            for name, scores in (
                (
                    "none",
                    "12 88.6 81.5 78.1 75.3 81.5 89.9 61.7 79.0 54.9 52.4 53.3",
                ),
                (
                    "NSP",
                    "12 88.4 81.5 77.2 74.6 81.6 91.1 62.3 79.2 54.5 90.5 52.0",
                ),
                (
                    "SOP",
                    "12 89.3 82.3 80.0 77.1 82.0 90.3 64.0 80.1 54.0 78.9 86.5",
                ),
            )
        ),
        (
            Claim("SOP is better than NSP.", {"SOP": 1, "NSP": -1}),
            Claim("SOP is better than none.", {"SOP": 1, "none": -1}),
        ),
        measures=("nsp", "sop", *RANDOM_SEGMENTS),
        note=(
            "NSP takes random segments from another document. A held-out "
            "text that is a single one has none: its pairs are all real, and "
            "a column of their accuracy is missing. So half of the real pairs "
            "also get a second segment of training text, hence of another "
            "document, as in the paper (all held-out first, but the model may "
            "have read the second), and one of held-out text, with a single "
            "document another place of the same one, where the topic says "
            "less. Chance is 50."
        ),
    ),
    "time": Table(
        "Table 6: BERT large and ALBERT xxlarge with equal arithmetic "
        "(the paper: equal time)",
        (
            Row("BERT large", _bert(_LARGE)),
            Row("ALBERT xxlarge", _XXLARGE, equal_work="BERT large"),
        ),
        (
            Claim(
                "ALBERT xxlarge is better than BERT large with equal work.",
                {"ALBERT xxlarge": 1, "BERT large": -1},
            ),
        ),
    ),
    "data": Table(
        "Table 7: additional data",
        (
            Row("no additional data"),
            Row("with additional data", more_text=True),
        ),
        (
            Claim(
                "Additional data helps.",
                {"with additional data": 1, "no additional data": -1},
            ),
        ),
    ),
    "domain": Table(
        "Adaptation to the text of a domain",
        (
            Row("no adaptation"),
            Row(
                "longer on general text",
                start="no adaptation",
                work=_ADAPTATION,
            ),
            Row(
                "adaptation",
                domain=True,
                start="no adaptation",
                work=_ADAPTATION,
            ),
            Row(
                "adaptation with new vocabulary",
                domain=True,
                start="no adaptation",
                new_words=True,
                equal_work="adaptation",
            ),
            Row("from scratch", domain=True, work=1 + _ADAPTATION),
        ),
        (
            Claim(
                "Adaptation is better than none.",
                {"adaptation": 1, "no adaptation": -1},
                ("domain", "tasks"),
            ),
            Claim(
                "Adaptation is better than as much more general text.",
                {"adaptation": 1, "longer on general text": -1},
                ("domain", "tasks"),
            ),
            Claim(
                "Adaptation is better with new vocabulary than without.",
                {"adaptation with new vocabulary": 1, "adaptation": -1},
                _OF_ANY_VOCABULARY,
            ),
            Claim(
                "Adaptation is better than training from scratch.",
                {"adaptation": 1, "from scratch": -1},
                _OF_ANY_VOCABULARY,
            ),
            Claim(
                "Adaptation is worse on general text than none.",
                {"no adaptation": 1, "adaptation": -1},
                ("general",),
            ),
        ),
        measures=TEXTS,
        note=(
            "All rows but the first have as much arithmetic in all: half as "
            "much as pretraining again. They are measured on held-out "
            "documents of the domain, and of the general text for what is "
            "forgotten. Losses and accuracies per token do not compare models "
            "of different vocabularies. So whole words of letters are masked, "
            "with all their tokens: a word is right if all of its tokens are, "
            "and its loss in nats is the sum of theirs. Each is predicted "
            "without the others, so that the loss of words with several is "
            "higher: it compares rows of one vocabulary. How many tokens a "
            "masked word has can be seen, which helps accuracy where words "
            "have several. Sequences have as many tokens in all rows, so that "
            "a vocabulary with longer ones sees more text at once."
        ),
    ),
    "hard_examples": Table(
        "Words masked more often that the model gets wrong",
        (
            Row("before"),
            Row("all words alike", start="before", work=_ADAPTATION),
            Row(
                "hard examples",
                start="before",
                work=_ADAPTATION,
                hard_examples=True,
            ),
        ),
        (
            Claim(
                "Masking what the model gets wrong is better than masking all "
                "words alike.",
                {"hard examples": 1, "all words alike": -1},
            ),
        ),
        note=(
            "Two rows go on from the first, for half as much arithmetic "
            "again. Words are masked in proportion to the share of wrong "
            "answers of the first row's model on text of training, by piece. "
            "All rows are measured on masks of all words alike."
        ),
    ),
    "local_attention": Table(
        "Attention to the nearest 64 tokens on each side, and to the first",
        tuple(
            Row(f"{name}, {length:,} tokens", seq_length=length, module=module)
            for length in (512, 1024)
            for name, module in _ATTENTION.items()
        ),
        tuple(
            Claim(
                f"Local attention costs nothing at {length:,} tokens.",
                {
                    f"local attention, {length:,} tokens": 1,
                    f"attention to all, {length:,} tokens": -1,
                },
            )
            for length in (512, 1024)
        ),
        tasks=False,
        note=(
            "Steps have as many tokens as in the other tables, in fewer and "
            "longer sequences, and all rows have the same arithmetic: local "
            "attention is a mask here. A kernel that leaves out what is masked "
            "would take 129 products of a query in place of 512 or 1,024."
        ),
    ),
    "dropout": Table(
        "Table 8: dropout of the largest model",
        (
            Row("with dropout", {**_XXLARGE, **_DROPOUT}),
            Row("without dropout", {**_XXLARGE, **_NO_DROPOUT}),
        ),
        (
            Claim(
                "The largest model is better without dropout.",
                {"without dropout": 1, "with dropout": -1},
            ),
        ),
    ),
    "depth": Table(
        "Table 11: depth (ALBERT large with 1 to 48 layers)",
        _each(
            "num_hidden_layers",
            "layers",
            (1, 3, 6, 12, 24, 48),
            {"hidden_size": 1024},
        ),
        (
            Claim(
                "More applications of the block are better (24 against 1).",
                {"layers=24": 1, "layers=1": -1},
            ),
            Claim(
                "48 applications gain nothing over 24.",
                {"layers=24": 1, "layers=48": -1},
            ),
        ),
    ),
    "width": Table(
        "Table 12: width (ALBERT large with 3 layers)",
        _each(
            "hidden_size",
            "width",
            (1024, 2048, 4096, 6144),
            {"num_hidden_layers": 3},
        ),
        (
            Claim(
                "Wider models are better (4,096 against 1,024).",
                {"width=4096": 1, "width=1024": -1},
            ),
            Claim(
                "The gain of a doubled width diminishes.",
                {"width=2048": 2, "width=1024": -1, "width=4096": -1},
            ),
        ),
    ),
    "groups": Table(
        "Groups of layers that share (ALBERT base)",
        _each("num_hidden_groups", "groups", (1, 2, 12), {}),
        (
            Claim(
                "More groups are better (12 against 1).",
                {"groups=12": 1, "groups=1": -1},
            ),
        ),
        note=(
            "One group shares everything, and twelve share nothing, as the "
            "rows of Table 4 at E=128 do."
        ),
    ),
    "layers": Table(
        "Figure 1: distance between the input and the output of every layer",
        (
            Row("BERT large", _bert(_LARGE)),
            Row("ALBERT large", _LARGE),
        ),
        measures=("layers",),
        tasks=False,
    ),
    "any_depth": Table(
        "One trained block, applied more or fewer times",
        (
            Row("always all layers"),
            Row("half the layers first", {"depth_schedule": "half first"}),
        ),
        measures=("any_depth",),
        tasks=False,
    ),
    "recipe": Table(
        "Recipes at equal arithmetic, of models 128 wide at every scale",
        tuple(_CANDIDATES.values()),
        (
            Claim(
                "NorMuon is better than Muon.",
                {"normuon-0.004": 1, "muon-0.004": -1},
            ),
            Claim(
                "Muon is better than LAMB.", {"muon-0.004": 1, "lamb-0.01": -1}
            ),
            Claim(
                "LAMB is better than AdamW.",
                {"lamb-0.01": 1, "adamw-0.002": -1},
            ),
            Claim(
                "Masking single words first is better.",
                {"normuon-single-words": 1, "normuon-0.004": -1},
            ),
        ),
    ),
    "peers": Table(
        "Our recipe and the usual one of transformers on the same batches, "
        "128 wide at every scale",
        (_CANDIDATES[REFERENCE], *_PEERS),
        tuple(
            Claim(
                f"Ours is better than {peer.name}.",
                {REFERENCE: 1, peer.name: -1},
            )
            for peer in _PEERS
        ),
        tasks=False,
    ),
    "initialization": Table(
        "Untrained models of several depths, by their initial weights",
        (
            _initial("released", 0.02, "normal", 1.0),
            _initial("wide", 0.05, "sinusoidal", 1.0),
            # 1 / sqrt(2 x applications) for two, as GPT-2's.
            _initial("scaled", 0.05, "sinusoidal", 0.5),
        ),
        measures=("initialization",),
        tasks=False,
        trained=False,
    ),
}

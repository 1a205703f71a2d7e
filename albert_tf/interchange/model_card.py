"""The model card of a model, README.md in the form of the Hugging Face hub.

Its first lines, between `---`, are YAML that the hub reads; the rest is for
people.
"""

import dataclasses
import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from albert_tf import __version__
from albert_tf.config import markdown_table, shown_metric
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.io.hub import SCHEME
from albert_tf.modeling.heads.base import Head
from albert_tf.modeling.weights.config_json import transformers_models

CARD_FILE = "README.md"
HUB = "https://huggingface.co"

# The hub's names of metrics, where they are not ours.
_METRICS = {
    "exact": "exact_match",
    "macro_f1": "f1",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "masked_lm_accuracy": "accuracy",
    "sentence_order_accuracy": "accuracy",
}
# The hub's data sets, with the configuration, by our tasks.
_DATASETS = {
    "CoLA": ("nyu-mll/glue", "cola"),
    "SST-2": ("nyu-mll/glue", "sst2"),
    "MRPC": ("nyu-mll/glue", "mrpc"),
    "STS-B": ("nyu-mll/glue", "stsb"),
    "QQP": ("nyu-mll/glue", "qqp"),
    "MNLI": ("nyu-mll/glue", "mnli"),
    "QNLI": ("nyu-mll/glue", "qnli"),
    "RTE": ("nyu-mll/glue", "rte"),
    "WNLI": ("nyu-mll/glue", "wnli"),
    "SQuAD1.1": ("rajpurkar/squad", "plain_text"),
    "SQuAD2.0": ("rajpurkar/squad_v2", "squad_v2"),
    "RACE": ("ehovy/race", "all"),
    "RACE-middle": ("ehovy/race", "middle"),
    "RACE-high": ("ehovy/race", "high"),
}
# What the names of metrics on MNLI's second dev set end with.
_MISMATCHED = "_mismatched"
# The last line of a card: a digest of those before it.
_MARK = re.compile(r"<!-- Written by ALBERT-TF, sha256 ([0-9a-f]{64}) -->\n?")


@dataclasses.dataclass(frozen=True)
class CardFacts:
    """What a card says beside what is known of the model itself.

    Attributes:
        name: of the model; on the hub `owner/name`.
        path: of its directory, where it is not on the hub by this name.
        metrics: on held-out examples.
        training: settings of its training, for a table.
        license: the hub's name of it, such as `apache-2.0`.
        languages: codes such as `en`.
        datasets: on the hub, that it was trained on; by default the task's.
        tags: further ones.
        base_model: the model on the hub that training began with, as
            `owner/name` or `owner/name@commit`; by default the record's.
        library: the hub's name of the library that opens the files.
        notes: further text, in Markdown.
    """

    name: str
    path: str = ""
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    license: str = ""
    languages: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    base_model: str = ""
    library: str = "transformers"
    notes: str = ""


def model_card(loaded: LoadedModel, facts: CardFacts) -> str:
    """Returns the README.md of a model."""
    if loaded.task and not facts.base_model:
        base = loaded.task.base_model
        facts = dataclasses.replace(facts, base_model=base)
    metadata = _metadata(loaded, facts)
    parts = [
        f"---\n{metadata}---\n",
        f"# {facts.name}\n",
        *_description(loaded),
        *_training(loaded, facts),
        *_evaluation(loaded, facts),
        *_usage(loaded, facts),
        *([f"{facts.notes}\n"] if facts.notes else []),
    ]
    return with_mark("\n".join(parts))


def with_mark(text: str) -> str:
    """Returns a card with a last line by which `is_unedited` knows it."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text}\n<!-- Written by ALBERT-TF, sha256 {digest} -->\n"


def is_unedited(card: str) -> bool:
    """Returns whether a card is as `with_mark` returned it."""
    text, _, last = card.rstrip("\n").rpartition("\n")
    found = _MARK.fullmatch(last)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return found is not None and found[1] == digest


def _metadata(loaded: LoadedModel, facts: CardFacts) -> str:
    """Returns the card's metadata for the hub, as YAML.

    Their form is https://huggingface.co/docs/hub/model-cards.
    """
    head = _head(loaded)
    pipeline = head.pipeline_tag if head else "feature-extraction"
    dataset, config = _dataset(loaded)
    datasets = facts.datasets or ((dataset,) if config else ())
    metadata: dict[str, Any] = {
        "library_name": _library(loaded, facts),
        "pipeline_tag": pipeline,
        "language": [*facts.languages],
        "license": facts.license,
        "base_model": facts.base_model.partition("@")[0],
        "datasets": [*datasets],
        "tags": ["albert", "albert-tf", *facts.tags],
    }
    if facts.metrics:
        task = {"type": pipeline or "other"}
        results = [{"task": task, **r} for r in _results(loaded, facts.metrics)]
        metadata["model-index"] = [
            {"name": facts.name.rpartition("/")[2], "results": results}
        ]
    known = {name: value for name, value in metadata.items() if value}
    return str(yaml.safe_dump(known, sort_keys=False, allow_unicode=True))


def _library(loaded: LoadedModel, facts: CardFacts) -> str:
    """Returns the hub's name of the library that opens all of the model."""
    if facts.library != "transformers" or _opens_in_transformers(loaded):
        return facts.library
    return "sentence-transformers" if _embeds(loaded) else "albert-tf"


def _dataset(loaded: LoadedModel) -> tuple[str, str | None]:
    """Returns the hub's data set of the task, and its configuration."""
    task = loaded.task.task if loaded.task else ""
    return _DATASETS.get(task, ("own-data", None))


def _results(
    loaded: LoadedModel, metrics: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    """Yields data and metrics of each of the hub's splits."""
    dataset, config = _dataset(loaded)
    splits: dict[str, dict[str, float]] = {}
    for name, value in metrics.items():
        split = "validation"
        if config == "mnli":
            second = name.endswith(_MISMATCHED)
            split += _MISMATCHED if second else "_matched"
        splits.setdefault(split, {})[name] = value
    for split, found in splits.items():
        data = {"type": dataset, "name": _data(loaded)}
        if config:
            data |= {"config": config, "split": split}
        yield {"dataset": data, "metrics": [*_metrics(found)]}


def _metrics(metrics: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    for name, value in metrics.items():
        plain = name.removesuffix(_MISMATCHED)
        metric = _METRICS.get(plain, plain)
        yield {"type": metric, "name": name, "value": float(f"{value:.6g}")}


def _data(loaded: LoadedModel) -> str:
    """Returns the name of the data that the model was evaluated on."""
    if not loaded.task:
        return "held-out text"
    name = loaded.task.task
    return name if name in _DATASETS else f"own data ({name})"


def _head(loaded: LoadedModel) -> Head | None:
    """Returns the first of the model's heads, None if it has none."""
    return next(iter(loaded.model.heads.values()), None)


def _class_there(loaded: LoadedModel) -> str:
    """Returns the class of transformers that opens the model."""
    classes = transformers_models(loaded.model.config)
    return str(classes[type(loaded.model).__name__])


def _opens_in_transformers(loaded: LoadedModel) -> bool:
    """Returns whether transformers has the heads too."""
    return not loaded.model.head_names or _class_there(loaded) != "AlbertModel"


def _embeds(loaded: LoadedModel) -> bool:
    return loaded.model.head_names == ("sentence_embedding",)


def _description(loaded: LoadedModel) -> Iterator[str]:
    model, config = loaded.model, loaded.model.config
    heads = " and ".join(name.replace("_", " ") for name in model.head_names)
    yield (
        "An [ALBERT](https://arxiv.org/abs/1909.11942) model "
        f"({'with a head for ' + heads if heads else 'the encoder alone'}), "
        f"written by ALBERT-TF {__version__}.\n"
    )
    lower = loaded.tokenizer.settings.get("do_lower_case")
    rows = {
        "parameters": f"{model.count_params():,}",
        "layers": f"{config.num_hidden_layers} of width {config.hidden_size}, "
        f"sharing {config.sharing}, embeddings of width "
        f"{config.embedding_size}",
        "vocabulary": f"{config.vocab_size:,} pieces"
        f"{', lower-cased' if lower else ''}",
        "longest input": f"{loaded.max_seq_length} tokens",
    }
    if model.head_names and config.pooling != "first":
        rows["pooling"] = config.pooling
    if loaded.labels:
        rows["labels"] = ", ".join(f"`{label}`" for label in loaded.labels)
    yield from _table("", "", rows)


def _training(loaded: LoadedModel, facts: CardFacts) -> Iterator[str]:
    base, _, commit = facts.base_model.partition("@")
    task = f" on {_data(loaded)}" if loaded.task else ""
    if not (base or task or facts.training):
        return
    yield "## Training\n"
    if base:
        at = f" (commit `{commit}`)" if commit else ""
        yield f"Fine-tuned{task} from [{base}]({HUB}/{base}){at}.\n"
    elif task:
        yield f"Fine-tuned{task}.\n"
    if facts.training:
        yield from _table("setting", "value", facts.training)


def _evaluation(loaded: LoadedModel, facts: CardFacts) -> Iterator[str]:
    if not facts.metrics:
        return
    yield "## Evaluation\n"
    part = "the dev examples of " if loaded.task else ""
    yield f"On {part}{_data(loaded)}:\n"
    rows = {n: shown_metric(value) for n, value in facts.metrics.items()}
    yield from _table("metric", "value", rows)
    if loaded.task:
        yield (
            "The model is the best of its run on these examples, so that the "
            "values may be a little too high for others.\n"
        )


def _usage(loaded: LoadedModel, facts: CardFacts) -> Iterator[str]:
    yield "## Use\n"
    if facts.library != "transformers":
        yield f"The files are for {facts.library}.\n"
        return
    if _library(loaded, facts) == "albert-tf":
        yield "transformers opens the encoder, without the head:\n"
    yield f"```python\n{_code(loaded, facts.path or facts.name)}```\n"
    head = _head(loaded) or Head
    is_pair = loaded.task and loaded.task.pairs
    text = repr("A text.\tAnother text." if is_pair else head.example_text)
    if "\\t" in text:
        # A shell reads escapes after a dollar alone.
        text = f"${text}"
    model = shlex.quote(facts.path or SCHEME + facts.name)
    yield (
        "In ALBERT-TF `load_model_directory` returns the model with its "
        "tokenizer; a program predicts:\n"
    )
    yield (
        "```\n"
        f"python -m bin.predict --mode={head.predict_mode} \\\n"
        f"    --model_dir={model} --text={text}\n"
        "```\n"
    )


def _code(loaded: LoadedModel, name: str) -> str:
    """Returns the lines of Python that open the model in other libraries."""
    name = json.dumps(name, ensure_ascii=False)
    if _embeds(loaded):
        return (
            "from sentence_transformers import SentenceTransformer\n\n"
            f"model = SentenceTransformer({name})\n"
            'vectors = model.encode(["A text."])\n'
        )
    there = _class_there(loaded)
    return (
        f"from transformers import AutoTokenizer, {there}\n\n"
        f"tokenizer = AutoTokenizer.from_pretrained({name})\n"
        f"model = {there}.from_pretrained({name})\n"
    )


def _table(name: str, value: str, rows: Mapping[str, Any]) -> Iterator[str]:
    cells = [(key, _printable(str(cell))) for key, cell in rows.items()]
    yield markdown_table([name, value], cells) + "\n"


def _printable(text: str) -> str:
    # Joiners are of the spelling in Persian and Hindi, and of emoji.
    return "".join(
        c if c.isprintable() or c in "\u200c\u200d" else " " for c in text
    )

"""Model cards, read by the hub's own library."""

import dataclasses
import re

import pytest
from huggingface_hub import ModelCard
from tiny_models import built

from albert_tf.config import FeatureConfig
from albert_tf.interchange.model_card import (
    CardFacts,
    is_unedited,
    model_card,
)
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.interchange.model_files import TaskRecord
from albert_tf.modeling.heads import HEADS, ClassificationHead
from albert_tf.prediction.forms import SINGLE
from albert_tf.prediction.modes import MODES

BASE = "albert/albert-base-v2@0123abc"
FACTS = CardFacts("me/mood")


@pytest.fixture
def classifier(tiny_tokenizer):
    model = built("classification", labels=("bad", "no|t"))
    task = TaskRecord("SST-2", FeatureConfig(max_seq_length=16), False, BASE)
    return LoadedModel(model, tiny_tokenizer, 16, task)


def changed(**changes):
    return dataclasses.replace(FACTS, **changes)


def metadata(loaded, **changes):
    return ModelCard(model_card(loaded, changed(**changes))).data


def test_metadata(classifier):
    data = metadata(
        classifier, license="apache-2.0", languages=("en", "no"), tags=("x: y",)
    )
    assert data.to_dict() == {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "language": ["en", "no"],
        "license": "apache-2.0",
        "base_model": "albert/albert-base-v2",
        "datasets": ["nyu-mll/glue"],
        "tags": ["albert", "albert-tf", "x: y"],
    }


def test_what_is_not_known_is_left_out(classifier):
    loaded = dataclasses.replace(classifier, task=None)
    assert set(metadata(loaded).to_dict()) == {
        *("library_name", "pipeline_tag", "tags")
    }


def test_metrics_are_the_hubs(classifier):
    metrics = {"accuracy": 0.9123456789, "macro_f1": 0.5e-9}
    first, second = metadata(classifier, metrics=metrics).eval_results
    assert first.metric_type == "accuracy"
    assert first.metric_value == 0.912346
    assert first.task_type == "text-classification"
    assert first.dataset_type == "nyu-mll/glue"
    assert first.dataset_config == "sst2"
    assert first.dataset_split == "validation"
    assert (second.metric_type, second.metric_name) == ("f1", "macro_f1")
    assert second.metric_value == 5e-10


def test_metrics_on_mnli_are_of_the_hubs_splits(classifier):
    task = dataclasses.replace(classifier.task, task="MNLI")
    loaded = dataclasses.replace(classifier, task=task)
    metrics = {"accuracy": 0.75, "accuracy_mismatched": 0.5}
    assert [
        (r.dataset_split, r.metric_type, r.metric_name, r.metric_value)
        for r in metadata(loaded, metrics=metrics).eval_results
    ] == [
        ("validation_matched", "accuracy", "accuracy", 0.75),
        ("validation_mismatched", "accuracy", "accuracy_mismatched", 0.5),
    ]


def test_exact_answers_are_the_hubs_exact_match(classifier):
    (found,) = metadata(classifier, metrics={"exact": 80.5}).eval_results
    assert (found.metric_type, found.metric_name) == ("exact_match", "exact")


def test_metrics_on_own_data(classifier):
    task = dataclasses.replace(classifier.task, task="classification")
    loaded = dataclasses.replace(classifier, task=task)
    data = metadata(loaded, metrics={"accuracy": 0.5})
    assert data.eval_results[0].dataset_name == "own data (classification)"
    assert data.datasets is None


@pytest.mark.parametrize(
    ("head", "pipeline", "there"),
    [
        ("none", "feature-extraction", "AlbertModel"),
        ("pretraining", "fill-mask", "AlbertForPreTraining"),
        ("masked_lm", "fill-mask", "AlbertForMaskedLM"),
        ("span", "question-answering", "AlbertForQuestionAnswering"),
        (
            "multi_label",
            "text-classification",
            "AlbertForSequenceClassification",
        ),
        (
            "token_classification",
            "token-classification",
            "AlbertForTokenClassification",
        ),
        ("multiple_choice", "multiple-choice", "AlbertForMultipleChoice"),
    ],
)
def test_heads(tiny_tokenizer, head, pipeline, there):
    loaded = LoadedModel(built(head), tiny_tokenizer, 16)
    text = model_card(loaded, FACTS)
    assert ModelCard(text).data.pipeline_tag == pipeline
    assert f'model = {there}.from_pretrained("me/mood")' in text
    assert ModelCard(text).data.library_name == "transformers"


def test_a_model_of_pairs_predicts_a_pair(tiny_tokenizer):
    task = TaskRecord("MRPC", FeatureConfig(), pairs=True)
    model = built("classification")
    text = model_card(LoadedModel(model, tiny_tokenizer, 16, task), FACTS)
    assert r"--text=$'A text.\tAnother text.'" in text


@pytest.mark.parametrize("name", HEADS)
def test_the_mode_of_a_head_is_that_of_its_kind(name):
    modes = {
        kind.head: mode
        for mode, row in MODES.items()
        for variant in (row, *row.variants)
        for kind in variant.kinds
    }
    head = HEADS[name]
    assert head.predict_mode == modes.get(name, head.predict_mode)
    form = MODES[head.predict_mode].form or SINGLE
    texts = head.example_text.count("\t") + 1
    assert form.counts is None or texts in form.counts


def test_a_head_of_ones_own(tiny_tokenizer, monkeypatch):
    class OwnHead(ClassificationHead):
        head_name = "own"
        model_name = "AlbertForOwnTask"
        transformers_model = "AlbertModel"
        pipeline_tag = "text-ranking"
        predict_mode = "choose"
        example_text = "A query.\tA text."

    monkeypatch.setitem(HEADS, "own", OwnHead)
    loaded = LoadedModel(built("own", labels=("a", "b")), tiny_tokenizer, 16)
    text = model_card(loaded, FACTS)
    assert ModelCard(text).data.pipeline_tag == "text-ranking"
    assert "--mode=choose" in text
    assert r"--text=$'A query.\tA text.'" in text


def test_paths_are_quoted(classifier):
    text = model_card(classifier, changed(path='my "é" runs'))
    assert "--model_dir='my \"é\" runs' --text" in text
    assert r'from_pretrained("my \"é\" runs")' in text


def test_joiners_of_labels_stay(tiny_tokenizer):
    labels = ("می\u200cخواهم", "👨\u200d👩", "a\u202eb")
    model = built("classification", labels=labels)
    text = model_card(LoadedModel(model, tiny_tokenizer, 16), FACTS)
    shown = ", ".join(f"`{label}`" for label in labels)
    assert shown.replace("\u202e", " ") in text


def test_a_head_that_transformers_lacks(tiny_tokenizer):
    model = built("classification", labels=("a", "b"), pooling="mean")
    text = model_card(LoadedModel(model, tiny_tokenizer, 16), FACTS)
    assert ModelCard(text).data.library_name == "albert-tf"
    assert "transformers opens the encoder, without the head:" in text
    assert "| pooling | mean |" in text


def test_embeddings_are_for_sentence_transformers(tiny_tokenizer):
    loaded = LoadedModel(built("sentence_embedding"), tiny_tokenizer, 16)
    text = model_card(loaded, FACTS)
    assert ModelCard(text).data.library_name == "sentence-transformers"
    assert 'model = SentenceTransformer("me/mood")' in text
    assert "transformers opens the encoder" not in text


def test_the_text(classifier):
    text = model_card(
        classifier,
        changed(metrics={"accuracy": 0.5}, training={"learning_rate": 1e-5}),
    )
    weights = f"{classifier.model.count_params():,}"
    for line in (
        f"| parameters | {weights} |",
        "| labels | `bad`, `no\\|t` |",
        "Fine-tuned on SST-2 from [albert/albert-base-v2]"
        "(https://huggingface.co/albert/albert-base-v2) (commit `0123abc`).",
        "| learning_rate | 1e-05 |",
        "On the dev examples of SST-2:",
        "| accuracy | 0.5000 |",
        "    --model_dir=hf://me/mood --text='A text.'",
    ):
        assert f"\n{line}\n" in text


def test_another_format(classifier):
    text = model_card(classifier, changed(library="onnx", notes="Mind this."))
    assert ModelCard(text).data.library_name == "onnx"
    assert "The files are for onnx.\n\nMind this.\n" in text
    assert "transformers" not in text


def test_an_edited_card_is_known(classifier):
    card = model_card(classifier, FACTS)
    assert is_unedited(card)
    assert is_unedited(f"{card}\n")
    for edited in (
        card.replace("# me/mood", "# My mood"),
        card.replace("---\n", "---\nlicense: mit\n", 1),
        f"{card}More.\n",
        re.sub("<!--.*-->", "", card),
        "# A card of somebody else",
        "",
    ):
        assert not is_unedited(edited)

"""Fine-tuning, and using what came out of it."""

import dataclasses
import json
import os
import re
import shutil

import keras
import numpy as np
import pytest

from albert_tf.config import (
    FinetuneConfig,
    ModelConfig,
    RuntimeConfig,
    UserError,
    override,
)
from albert_tf.interchange.model_directory import (
    find_initial_weights,
    load_model_directory,
    save_model_directory,
)
from albert_tf.jobs.evaluate import evaluate_pretrained
from albert_tf.jobs.finetune import resolve_steps, run_finetuning
from albert_tf.jobs.predict import Predictor
from albert_tf.jobs.task_evaluation import evaluate_task
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.custom import CLASSIFICATION, custom_task
from albert_tf.tasks.feature_building import FeatureBuilder
from albert_tf.training import loop

LABELS = {"sea": ["bada", "gule", "mizo"], "land": ["tepu", "rika", "sovu"]}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, tiny_tokenizer):
    """An untrained model; what is learned here is learned in fine-tuning."""
    # Some initial weights would take longer than the test gives them.
    keras.utils.set_random_seed(1)
    directory = str(tmp_path_factory.mktemp("models") / "pretrained")
    config = ModelConfig(
        vocab_size=tiny_tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    save_model_directory(
        directory,
        AlbertForPretraining(config),
        tiny_tokenizer,
        max_seq_length=32,
    )
    return directory


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    root = tmp_path_factory.mktemp("task")
    rng = np.random.default_rng(0)
    for split, count in (("train", 160), ("dev", 41)):
        rows = ["text\tlabel"]
        for number in range(count):
            label = list(LABELS)[number % 2]
            words = rng.choice(LABELS[label], size=5)
            rows.append(f"The {' '.join(words)}.\t{label}")
        (root / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    return str(root)


def config(**changes):
    return override(
        FinetuneConfig(),
        {
            "max_seq_length": 24,
            "learning_rate": 3e-3,
            "num_train_epochs": 6.0,
            "train_batch_size": 16,
            "eval_batch_size": 16,
            "log_steps": 20,
            "eval_steps": 0,
            **changes,
        },
    )


def run(data_dir, pretrained, run_dir, settings=None, **options):
    return run_finetuning(
        settings or config(),
        CLASSIFICATION,
        data_dir=data_dir,
        run_dir=str(run_dir),
        initial=find_initial_weights(pretrained),
        **options,
    )


@pytest.fixture(scope="module")
def finished(data_dir, pretrained, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("runs") / "classifier"
    return str(run_dir), run(data_dir, pretrained, run_dir)


def test_it_learns_and_says_against_what(finished):
    _, evaluation = finished
    assert evaluation["accuracy"] > 0.95
    assert evaluation["majority_class_accuracy"] == pytest.approx(21 / 41)


def test_evaluate_agrees_with_the_run(finished, data_dir):
    run_dir, evaluation = finished
    result = evaluate_task(
        [os.path.join(run_dir, "model")],
        CLASSIFICATION,
        data_dir,
        split="dev",
        batch_size=7,
    )
    assert {"loss": evaluation["loss"], **result.metrics} == pytest.approx(
        evaluation
    )
    rows = [prediction.fields for prediction in result.predictions()]
    right = [row["label"] == row["prediction"] for row in rows]
    assert np.mean(right) == pytest.approx(evaluation["accuracy"])
    for row in rows:
        assert sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-5)
        best = max(row["probabilities"], key=row["probabilities"].get)
        assert best == row["prediction"]


def test_the_run_directory_tells_everything(finished):
    run_dir, _ = finished
    with open(os.path.join(run_dir, "config.json")) as file:
        written = json.load(file)
    # 6 epochs of 160 examples in batches of 16, a tenth of them warm-up.
    assert written["config"]["training"]["num_train_steps"] == 60
    assert written["config"]["optimizer"]["num_warmup_steps"] == 6
    assert written["labels"] == ["land", "sea"]


def test_an_extended_run_keeps_its_warm_up(
    finished, data_dir, pretrained, tmp_path
):
    shutil.copytree(finished[0], tmp_path / "run")
    run(
        data_dir,
        pretrained,
        tmp_path / "run",
        runtime=RuntimeConfig(extend_to_steps=80),
    )
    with open(tmp_path / "run/config.json") as file:
        written = json.load(file)
    assert written["changes"] == [
        {"after_step": 60, "settings": {"num_train_steps": [60, 80]}}
    ]
    assert written["config"]["optimizer"]["num_warmup_steps"] == 6
    log = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert json.loads(log[-1])["step"] == 80


class PowerCut(BaseException):
    """What ends a run without letting it tidy up."""


@pytest.mark.slow
def test_interrupted_and_resumed_is_the_same_run(
    pretrained, tmp_path, monkeypatch
):
    """Texts of many lengths: what is summed how must not hang on the past."""
    rng = np.random.default_rng(1)
    words = [word for part in LABELS.values() for word in part]
    rows = [
        f"{' '.join(rng.choice(words, size=rng.integers(1, 20)))}\t{n % 2}"
        for n in range(60)
    ]
    directory = write_task(tmp_path, rows, rows[:10])
    settings = config(
        max_seq_length=32,
        num_train_steps=14,
        train_batch_size=2,
        log_steps=5,
        save_checkpoints_steps=4,
    )
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(directory, pretrained, whole, settings)
    steps = iter(range(1, 100))
    plain_steps = loop.Trainer.train_steps

    def failing_steps(self, *args, **kwargs):
        results = plain_steps(self, *args, **kwargs)
        if next(steps) == 11:
            raise PowerCut
        return results

    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "train_steps", failing_steps)
        with pytest.raises(PowerCut):
            run(directory, pretrained, cut, settings)
    run(directory, pretrained, cut, settings)
    for name in ("metrics.jsonl", "model/model.safetensors"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), name


def test_the_same_weights_under_another_path_are_the_same_run(
    finished, data_dir, pretrained
):
    run_dir, evaluation = finished
    assert run(data_dir, pretrained + "/", run_dir) == evaluation


def test_a_corrected_command_may_use_the_same_directory(
    data_dir, pretrained, tmp_path
):
    weights = find_initial_weights(pretrained)
    broken = dataclasses.replace(
        weights,
        stored=dataclasses.replace(
            weights.stored,
            shapes={
                name: shape
                for name, shape in weights.stored.shapes.items()
                if "pooler" not in name
            },
        ),
    )
    settings = config(num_train_steps=1)
    with pytest.raises(UserError, match="missing: albert.pooler.bias, "):
        run_finetuning(
            settings,
            CLASSIFICATION,
            data_dir=data_dir,
            run_dir=str(tmp_path / "run"),
            initial=broken,
        )
    run(data_dir, pretrained, tmp_path / "run", settings)


def test_predictions_do_not_depend_on_batch_mates(finished):
    loaded = load_model_directory(os.path.join(finished[0], "model"))
    texts = [("the bada",), ("",), ("ÉLÈVE 😀", "a pair"), ("tepu " * 60,)]
    together = list(Predictor(loaded, 4).classify(texts))
    alone = list(Predictor(loaded, 1).classify(texts))
    for one, other in zip(together, alone, strict=True):
        assert one.label == other.label
        for label, value in one.probabilities.items():
            assert value == pytest.approx(other.probabilities[label], rel=1e-4)


def test_a_classifier_fills_no_masks_and_the_other_way_round(
    finished, pretrained
):
    classifier = Predictor(
        load_model_directory(os.path.join(finished[0], "model"))
    )
    with pytest.raises(
        UserError, match="has no masked_lm head; use the pretrained"
    ):
        list(classifier.fill_mask(["a [MASK]"]))
    with pytest.raises(UserError, match="has no classification head"):
        list(Predictor(load_model_directory(pretrained)).classify([("a",)]))


def test_fill_mask_gives_probabilities_in_order(pretrained):
    predictor = Predictor(load_model_directory(pretrained))
    (filled,) = predictor.fill_mask(["The [MASK] of [MASK]."], top_k=4)
    assert [len(place) for place in filled.candidates] == [4, 4]
    for place in filled.candidates:
        values = [value for _, value in place]
        assert values == sorted(values, reverse=True)
        assert all(0 < value < 1 for value in values)
    with pytest.raises(UserError, match=r"Text 1 has no \[MASK\]"):
        list(predictor.fill_mask(["The bada"]))
    with pytest.raises(UserError, match=r"Text 1 has a \[MASK\] beyond"):
        list(predictor.fill_mask(["[MASK] " + "bada " * 40 + "[MASK]"]))


def test_fill_mask_is_the_softmax_over_the_vocabulary(pretrained):
    loaded = load_model_directory(pretrained)
    vocab_size = loaded.tokenizer.vocab_size
    (filled,) = Predictor(loaded).fill_mask(["A [MASK]"], top_k=vocab_size)
    total = sum(value for _, value in filled.candidates[0])
    assert total == pytest.approx(1.0, abs=1e-5)


def write_task(tmp_path, train, dev):
    for split, rows in (("train", train), ("dev", dev)):
        (tmp_path / f"{split}.tsv").write_text(
            "\n".join(["text\tlabel", *rows]) + "\n"
        )
    return str(tmp_path)


@pytest.mark.parametrize(
    ("train", "dev", "changes", "said"),
    [
        (["a\tx", "b\tx"], ["a\tx"], {}, "one label only, 'x'"),
        (
            ["a\tx", "b\ty"],
            ["a\tz"],
            {},
            r"dev.tsv, line 2: the label is 'z'; the model's labels are x, y",
        ),
        (
            ["a\tx", "b\ty"],
            ["a\tx"],
            {"max_seq_length": 64},
            "max_seq_length=64 exceeds.*=32",
        ),
        (
            ["a\tx", "b\ty"],
            ["a\tx"],
            {"num_train_epochs": 0.0},
            "num_train_steps and num_train_epochs are both 0",
        ),
        (
            ["a\tx", "b\ty"],
            ["a\tx"],
            {"steps_per_loop": 2},
            "steps_per_loop=2 needs batches of one width; give --padding=max",
        ),
        (
            ["a\tx", "b\ty"],
            ["a\tx"],
            {"best_metric": "f1"},
            "best_metric='f1' is not a metric of this job: expected one of "
            "accuracy, loss, macro_f1",
        ),
    ],
)
def test_mistakes(tmp_path, pretrained, train, dev, changes, said):
    directory = write_task(tmp_path, train, dev)
    with pytest.raises(UserError, match=said):
        run(directory, pretrained, tmp_path / "run", config(**changes))
    assert not (tmp_path / "run" / "config.json").exists()


def test_one_answer_to_everything_is_told(data_dir, pretrained, tmp_path):
    """As the large second models end where the rate is too high for them."""
    said = []
    settings = config(learning_rate=0.5, num_train_steps=6, num_warmup_steps=1)
    evaluation = run(
        data_dir, pretrained, tmp_path / "run", settings, log=said.append
    )
    assert evaluation["accuracy"] in (pytest.approx(20 / 41), 21 / 41)
    (line,) = (line for line in said if "same answer" in line)
    assert re.match(
        "All dev examples get the same answer at step 6: (sea|land)", line
    )
    assert "if the learning rate is high, with --learning_rate=0.25" in line


@pytest.mark.slow
def test_replicas_end_where_one_device_does(data_dir, pretrained, tmp_path):
    settings = config(num_train_steps=4)
    one = run(data_dir, pretrained, tmp_path / "one", settings)
    two = run(
        data_dir,
        pretrained,
        tmp_path / "two",
        settings,
        runtime=RuntimeConfig(strategy="mirrored", num_replicas=2),
    )
    assert two == pytest.approx(one, rel=1e-4)


def test_a_metric_that_was_never_defined(pretrained, tmp_path, capsys):
    """Pearson's correlation of answers that are all alike."""
    rows = [f"{word}\t1.5" for word in LABELS["sea"] * 4]
    for split in ("train", "dev"):
        path = tmp_path / f"{split}.tsv"
        path.write_text("\n".join(["text\tscore", *rows]) + "\n")
    evaluation = run_finetuning(
        config(num_train_steps=9, eval_steps=2, early_stopping_patience=2),
        custom_task(["text=text", "number=score"]),
        data_dir=str(tmp_path),
        run_dir=str(tmp_path / "run"),
        initial=find_initial_weights(pretrained),
    )
    assert np.isnan(evaluation["pearson"])
    said = capsys.readouterr().out
    assert "has not improved in 2 evaluations: the run ends at step 4" in said
    assert "It was never defined; there is no best_model." in said
    assert not (tmp_path / "run/best_model").exists()


def test_steps_given_outright():
    settings = resolve_steps(
        config(num_train_steps=7, num_warmup_steps=3), num_rows=1000
    )
    assert settings.training.num_train_steps == 7
    assert settings.optimizer.num_warmup_steps == 3


def test_embeddings_are_of_the_tokens_alone(finished):
    loaded = load_model_directory(os.path.join(finished[0], "model"))
    texts = ["the bada", "tepu " * 3]
    together = list(Predictor(loaded, 2).embed(texts))
    for text, embedding in zip(texts, together, strict=True):
        tokenizer = loaded.tokenizer
        ids = [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]
        row = np.array([ids], np.int32)
        states = loaded.model.encode(
            {
                "input_ids": row,
                "input_mask": np.ones_like(row),
                "segment_ids": np.zeros_like(row),
            }
        )["sequence_output"][0]
        assert embedding.text == text
        np.testing.assert_allclose(
            embedding.mean, np.mean(states, axis=0), rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(
            embedding.cls, states[0], rtol=1e-4, atol=1e-5
        )


def test_evaluate_pretrained(pretrained, finished, shards_dir):
    metrics = evaluate_pretrained(
        pretrained, shards_dir, split="eval", batch_size=16, seed=1
    )
    # Untrained: close to a uniform guess over 200 pieces.
    assert metrics["masked_lm_loss"] == pytest.approx(np.log(200), rel=0.1)
    with pytest.raises(
        UserError, match="holds an AlbertForClassification, which"
    ):
        evaluate_pretrained(
            os.path.join(finished[0], "model"),
            shards_dir,
            split="eval",
            batch_size=16,
            seed=1,
        )


def test_pairs_are_trained_on_in_both_orders(pretrained, tmp_path, monkeypatch):
    rows = ["a\tb\tlabel"]
    rows += [
        f"bada\ttepu{' rika' * n}\t{'no' if n % 2 else 'yes'}" for n in range(6)
    ]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    task = custom_task(["text=a", "text=b", "label=label"])
    seen, asked = [], []
    build = FeatureBuilder.build

    def noted(self, examples, *, training):
        (seen if training else asked).extend(examples)
        return build(self, examples, training=training)

    monkeypatch.setattr(FeatureBuilder, "build", noted)
    run_dir = str(tmp_path / "run")
    evaluation = run_finetuning(
        config(double_unordered=True, num_train_epochs=1.0, train_batch_size=4),
        task,
        data_dir=str(tmp_path),
        run_dir=run_dir,
        initial=find_initial_weights(pretrained),
    )
    assert [e.texts for e in seen[6:]] == [e.texts[::-1] for e in seen[:6]]
    assert [e.label for e in seen[6:]] == [e.label for e in seen[:6]]
    # An epoch is of both orders; dev is asked once.
    with open(os.path.join(run_dir, "config.json")) as file:
        recorded = json.load(file)["config"]
    assert recorded["training"]["num_train_steps"] == 3
    assert recorded["finetuning"]["double_unordered"] is True
    assert len(asked) == 6
    assert evaluation["majority_class_accuracy"] == 0.5


@pytest.mark.parametrize(
    ("task", "header", "row", "said"),
    [
        (
            TASKS["RTE"],
            "index\tsentence1\tsentence2\tlabel",
            "0\tbada\tgule\tentailment",
            "double_unordered swaps the texts of pairs, and the labels of RTE "
            "depend on their order.",
        ),
        (
            CLASSIFICATION,
            "text\tlabel",
            "bada\tno\ngule\tyes",
            "{}/train.tsv, line 2: double_unordered is for pairs of texts, and "
            "this is a single one.",
        ),
        (
            custom_task(["context=c", "choice=a", "choice=b", "label=r"]),
            "c\ta\tb\tr",
            "bada\tgule\tmizo\ta",
            "double_unordered is for pairs of texts, and an example of "
            "multiple choice is none.",
        ),
    ],
)
def test_what_has_no_order_to_double(
    task, header, row, said, pretrained, tmp_path
):
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text(f"{header}\n{row}\n")
    with pytest.raises(UserError) as error:
        run_finetuning(
            config(double_unordered=True),
            task,
            data_dir=str(tmp_path),
            run_dir=str(tmp_path / "run"),
            initial=find_initial_weights(pretrained),
        )
    assert str(error.value) == said.format(tmp_path)

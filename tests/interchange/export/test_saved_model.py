"""What an export has on disk: weights, operations, files, versions."""

import errno
import json
import os
import re

import numpy as np
import pytest
import tensorflow as tf
from export_samples import CLOSE, TEXTS
from saved_models import foreign_operations, operations

from albert_tf.config import UserError
from albert_tf.interchange.export import saved_model
from albert_tf.interchange.export.exported_model import ExportedModel
from albert_tf.interchange.export.exported_weights import PRECISIONS
from albert_tf.interchange.export.saved_model import export_saved_model
from albert_tf.interchange.model_directory import save_model_directory
from albert_tf.io import files
from albert_tf.prediction.predictor import Predictor
from albert_tf.text.tokenizer import load_tokenizer


def test_any_batch_size(loaded_signatures):
    answer = loaded_signatures["serving_default"]
    for size in (0, 1, 65):
        got = answer(text=tf.constant((TEXTS * 10)[:size], tf.string))
        assert got["probabilities"].shape == (size, 3)
        assert got["label"].shape == (size,)


def test_each_weight_is_exported_once(classifier, exported):
    stored = tf.train.list_variables(
        os.path.join(exported, "variables/variables")
    )
    shapes = [tuple(shape) for name, shape in stored if "VALUE" in name]
    weights = [tuple(weight.shape) for weight in classifier.model.weights]
    assert sorted(shapes) == sorted(weights)


@pytest.fixture(scope="module")
def model_directory(classifier, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("model"))
    save_model_directory(
        path,
        classifier.model,
        classifier.tokenizer,
        max_seq_length=24,
        task=classifier.task,
    )
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    "precision, close", [("bfloat16", {"atol": 0.02}), ("int8", CLOSE)]
)
def test_an_export_has_the_weights_that_were_evaluated(
    model_directory, serve, tmp_path, precision, close
):
    loaded = PRECISIONS[precision].load(model_directory)
    path = export_saved_model(loaded, str(tmp_path), precision=precision)
    reader = tf.train.load_checkpoint(os.path.join(path, "variables/variables"))
    types = reader.get_variable_to_dtype_map()
    shapes = reader.get_variable_to_shape_map()
    matrices = {types[name].name for name in shapes if len(shapes[name]) > 1}
    assert matrices == {precision}
    text = tf.saved_model.load(path).signatures["text"]
    got = text(text=tf.constant(TEXTS))["probabilities"]
    want = [
        list(answer.probabilities.values())
        for answer in Predictor(loaded).classify(TEXTS)
    ]
    np.testing.assert_allclose(got, want, **close)
    # And not those of float32.
    exact = serve("classification", "text", text=TEXTS)["probabilities"]
    assert 1e-4 < np.abs(got - exact).max() < 0.1


def test_int8_weights_are_near(classifier, model_directory):
    rounded = PRECISIONS["int8"].load(model_directory).model
    for ours, exact in zip(
        rounded.weights, classifier.model.weights, strict=True
    ):
        steps = np.zeros(1)
        if len(exact.shape) > 1:
            steps = np.abs(exact.numpy()).max(axis=0) / 127
        error = np.abs(ours.numpy() - exact.numpy())
        assert (error <= steps / 2 + 1e-7).all(), exact.path


def test_versions(classifier, tmp_path, monkeypatch):
    for place, name in (
        (tf.saved_model, "save"),
        (saved_model, "_write_files"),
    ):
        monkeypatch.setattr(place, name, lambda *_, **signatures: None)
    target = tmp_path / "albert"
    (target / "7").mkdir(parents=True)
    (target / "notes").mkdir()
    path = export_saved_model(classifier, str(target))
    assert path == str(target / "8")
    assert export_saved_model(classifier, str(target), version=3).endswith("3")
    assert sorted(os.listdir(target)) == ["3", "7", "8", "notes"]
    with pytest.raises(UserError, match="version=7: .*/7 exists, and versions"):
        export_saved_model(classifier, str(target), version=7)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="is a file"):
        export_saved_model(classifier, str(tmp_path / "file"))


def full(path, reason="No space left on device"):
    """Returns TensorFlow's error for a file that cannot be written."""
    message = f"{{{{node}}}} {path}/variables; {reason} [Op:SaveV2]"
    return tf.errors.ResourceExhaustedError(None, None, message)


@pytest.mark.parametrize(
    ("failure", "number"),
    [
        (full, errno.ENOSPC),
        (lambda path: full(path, "File too large"), errno.EFBIG),
        (lambda path: full(path, "Unheard of"), errno.EIO),
        (lambda path: OSError(errno.ENOSPC, "full"), errno.ENOSPC),
        (lambda path: OSError(errno.ENOSPC, "full", path), errno.ENOSPC),
    ],
)
def test_a_failed_write_names_the_version_and_leaves_nothing(
    classifier, tmp_path, monkeypatch, failure, number
):
    (tmp_path / "mood/1").mkdir(parents=True)

    def save(module, directory, **options):
        (tmp_path / "mood" / directory / "variables").write_text("half")
        raise failure(directory)

    monkeypatch.setattr(tf.saved_model, "save", save)
    with pytest.raises(OSError) as caught:
        export_saved_model(classifier, str(tmp_path / "mood"))
    assert caught.value.filename == str(tmp_path / "mood/2")
    assert caught.value.errno == number
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path / "mood") == ["1"]


def test_another_error_of_tensorflow_is_no_failed_write(
    classifier, tmp_path, monkeypatch
):
    def save(module, directory, **options):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM [1,2]")

    monkeypatch.setattr(tf.saved_model, "save", save)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="OOM"):
        export_saved_model(classifier, str(tmp_path))


def test_operations_are_those_of_released_servers(exported):
    assert foreign_operations(exported) == {
        "NormalizeUTF8",
        "SentencepieceOp",
        "SentencepieceTokenizeOp",
    }
    # Only these have effects, for the SavedModel's own variables.
    outside = re.compile("PyFunc|File|Directory|Print|Save|Restore|Checkpoint")
    assert set(filter(outside.search, operations(exported))) == {
        *("RestoreV2", "SaveV2", "ShardedFilename", "MergeV2Checkpoints")
    }


def test_files_describe_the_model(classifier, exported):
    assets = os.path.join(exported, "assets")
    fingerprint = load_tokenizer(assets).fingerprint
    assert fingerprint == classifier.tokenizer.fingerprint
    with open(os.path.join(assets, "labels.json"), encoding="utf-8") as file:
        assert json.load(file) == ["sea", "land", "air"]
    found = ExportedModel(exported)
    assert found.columns == ["text=said"]
    assert found.label_separator == "|"
    with open(os.path.join(exported, "README.md"), encoding="utf-8") as file:
        text = file.read()
    for line in (
        "| `tokens` | The same for token ids, of any batch and length. | "
        "`input_ids` int32 [batch, any], `input_mask` int32 [batch, any], "
        "`segment_ids` int32 [batch, any] | `label` string [batch], "
        "`probabilities` float32 [batch, 3] |",
        "| `mean_output` | mean state of the tokens |",
        "(`assets/labels.json`): `sea`, `land`, `air`.",
        "| truncation | a text after 20,000 bytes of UTF-8, an input after 24 "
        "tokens |",
        "| task | mood |",
        "| command | `export \\| all` |",
        f"fingerprint {fingerprint} |",
    ):
        assert line in text


def test_settings_of_the_server(exported):
    def text_of(name):
        path = os.path.join(exported, "assets.extra", name)
        with open(path, encoding="utf-8") as file:
            return file.read()

    models = text_of("models.config")
    assert 'name: "mood"\n    base_path: "/models/mood"\n' in models
    # The server would pad with a row's first value, a mask with 1.
    assert "\npad_variable_length_inputs: false\n" in text_of("batching.config")
    assert "enable: true" in text_of("monitoring.config")


@pytest.mark.slow
def test_an_export_to_a_bucket(classifier, loaded_signatures):
    files.makedirs("ram://serving/7")
    path = export_saved_model(classifier, "ram://serving")
    assert path == "ram://serving/8"
    near, far = (
        signatures["serving_default"](tf.constant(TEXTS))
        for signatures in (
            loaded_signatures,
            tf.saved_model.load(path).signatures,
        )
    )
    np.testing.assert_array_equal(far["probabilities"], near["probabilities"])
    assert files.isfile(f"{path}/assets.extra/tf_serving_warmup_requests")
    with pytest.raises(UserError, match="saved_model.pb is a file"):
        export_saved_model(classifier, f"{path}/saved_model.pb")

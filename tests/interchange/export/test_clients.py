"""Exports answer in programs that have none of our code."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from export_samples import CLOSE, TEXTS, decoded

from albert_tf.interchange.export.exported_model import ExportedModel
from albert_tf.interchange.export.saved_model import export_saved_model


@pytest.mark.slow
def test_answers_through_the_c_api(load, serve, exported, tmp_path):
    pairs = {"text": TEXTS, "text_pair": TEXTS[::-1]}
    questions = {"question": TEXTS[:3], "context": TEXTS[-3:]}
    given = [
        ("classification", "embed", {"text": TEXTS}),
        ("classification", "text_pair", pairs),
        ("answerable_span", "serving_default", questions),
    ]
    head = "answerable_span"
    other = export_saved_model(load(head), str(tmp_path / head))
    exports = {"classification": exported, head: other}
    requests = []
    for head, name, inputs in given:
        signature = ExportedModel(exports[head]).signatures[name]
        feeds, fetches = signature.tensors
        texts = [inputs[of_input] for of_input in signature.inputs]
        by_tensor = dict(zip(feeds, texts, strict=True))
        requests.append((exports[head], by_tensor, fetches))
    client = os.path.join(os.path.dirname(__file__), "c_api_client.py")
    run = subprocess.run(
        [sys.executable, client, json.dumps(requests)],
        check=True,
        capture_output=True,
        cwd=tmp_path,
    )
    answers = json.loads(run.stdout)
    for (head, name, inputs), found in zip(given, answers, strict=True):
        want = sorted(serve(head, name, **inputs).items())
        for (_, value), answer in zip(want, found, strict=True):
            if value.dtype == object:
                assert answer == decoded(value.ravel())
            else:
                np.testing.assert_allclose(answer, value.ravel(), **CLOSE)


@pytest.mark.slow
def test_saved_model_cli(exported, serve, tmp_path):
    program = (
        "import tensorflow_text; "
        "from tensorflow.python.tools.saved_model_cli import main; main()"
    )
    text = TEXTS[1].replace("'", "\\'")
    subprocess.run(
        [
            *(sys.executable, "-c", program, "run"),
            *("--dir", exported, "--tag_set", "serve"),
            *("--signature_def", "serving_default"),
            *("--input_exprs", f"text=['{text}', '']"),
            *("--outdir", tmp_path),
        ],
        check=True,
        capture_output=True,
    )
    want = serve("classification", "text", text=[TEXTS[1], ""])
    np.testing.assert_allclose(
        np.load(tmp_path / "probabilities.npy"), want["probabilities"], **CLOSE
    )

"""The stage that measures serving: raw texts in, probabilities out.

One classifier of random weights behind its tokenizer, in float32, in this
project and in transformers and ONNX Runtime.
"""

import functools
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from albert_tf.config import require
from benchmarks.harness import Stage, Turn, seconds_of
from benchmarks.libraries import OURS
from benchmarks.workspace import Workspace
from bin import command_line

Classify = Callable[[Sequence[str]], np.ndarray]

# (texts of a request, words of each); 0: paragraphs as they are.
_REQUESTS = (*itertools.product((1, 8, 32), (10, 100)), (32, 0))
_SECONDS = 1.0
_CLIENTS = 16
_CLIENT_SECONDS = 2.0
# Probabilities that libraries compute differ by no more.
_CLOSE = 1e-4


def _serving(workspace: Workspace) -> dict[str, Turn]:
    texts = requests_of(workspace.paragraphs)
    sides = _classifiers(workspace)
    check_same_model(sides, texts[32, 0])
    for classify in sides.values():
        for request in texts.values():
            classify(request)
    return {
        name: functools.partial(_turn, classify, texts)
        for name, classify in sides.items()
    }


def requests_of(
    paragraphs: Sequence[str],
) -> dict[tuple[int, int], list[str]]:
    """Returns the texts of each row of _REQUESTS."""
    stream = itertools.cycle(" ".join(paragraphs).split())
    endless = itertools.cycle(paragraphs)
    return {
        (count, words): [
            " ".join(itertools.islice(stream, words))
            if words
            else next(endless)
            for _ in range(count)
        ]
        for count, words in _REQUESTS
    }


def check_same_model(
    sides: Mapping[str, Classify], texts: Sequence[str]
) -> None:
    """Raises UserError unless all sides return the same probabilities."""
    expected = sides[OURS](texts)
    for name, classify in sides.items():
        difference = np.abs(classify(texts) - expected).max()
        require(
            difference <= _CLOSE,
            f"The probabilities of {name} differ from ours by "
            f"{difference:.3g}: they are not the same model.",
        )


def _turn(
    classify: Classify, texts: Mapping[tuple[int, int], list[str]]
) -> dict[str, float]:
    """Returns the latency of each kind of request, and that of clients."""
    found = {}
    for (count, words), request in texts.items():
        seconds: list[float] = []
        while len(seconds) < 5 or sum(seconds) < _SECONDS:
            seconds.append(seconds_of(classify, request))
        of = f"{words} words" if words else "paragraphs"
        found |= _latency(f"{count} x {of}", seconds)
    begin = time.perf_counter()
    seconds = seconds_of_clients(classify, texts[1, 10])
    # The last requests end later than _CLIENT_SECONDS.
    rate = len(seconds) / (time.perf_counter() - begin)
    name = f"{_CLIENTS} clients, 1 x 10 words"
    return found | _latency(name, seconds) | {f"{name}, requests/s": rate}


def _latency(name: str, seconds: Sequence[float]) -> dict[str, float]:
    median, slow = 1e3 * np.quantile(seconds, [0.5, 0.99])
    return {f"{name}, p50 ms": median, f"{name}, p99 ms": slow}


def seconds_of_clients(classify: Classify, request: list[str]) -> list[float]:
    """Returns the seconds of requests that clients make at the same time."""
    seconds: list[float] = []
    end = time.perf_counter() + _CLIENT_SECONDS

    def client() -> None:
        while time.perf_counter() < end:
            seconds.append(seconds_of(classify, request))

    with ThreadPoolExecutor(_CLIENTS) as clients:
        for ended in [clients.submit(client) for _ in range(_CLIENTS)]:
            ended.result()
    return seconds


def _classifiers(workspace: Workspace) -> dict[str, Classify]:
    command_line.load_tensorflow()
    import tensorflow as tf

    # docs/serving.md recommends it.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    from albert_tf.interchange.model_directory import save_model_directory
    from albert_tf.modeling.models import model_class
    from albert_tf.text.tokenizer import load_tokenizer

    directory = os.path.join(workspace.directory, "serving")
    length = workspace.features.max_seq_length
    save_model_directory(
        directory,
        model_class("classification")(
            workspace.model_config(), labels=["even", "odd"]
        ),
        load_tokenizer(workspace.tokenizer_dir),
        max_seq_length=length,
    )
    sides = {OURS: _saved_model(directory)}
    if "transformers" in workspace.peers:
        sides |= _theirs(directory, length)
    return sides


def _saved_model(directory: str) -> Classify:
    from albert_tf.interchange.export.exported_model import ExportedModel
    from albert_tf.interchange.export.exported_weights import PRECISIONS
    from albert_tf.interchange.export.saved_model import export_saved_model

    path = export_saved_model(
        PRECISIONS["float32"].load(directory),
        os.path.join(directory, "export"),
        precision="float32",
    )
    model = ExportedModel(path)
    return lambda texts: model.call("text", {"text": texts})["probabilities"]


def _theirs(directory: str, length: int) -> dict[str, Classify]:
    """Returns transformers' model, eager and compiled, and ONNX Runtime."""
    import torch
    import transformers

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    inputs = functools.partial(
        transformers.AutoTokenizer.from_pretrained(directory),
        padding=True,
        truncation=True,
        max_length=length,
        return_tensors="pt",
    )
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        directory
    ).train(False)

    def classify_by(model: Any, texts: Sequence[str]) -> np.ndarray:
        with torch.inference_mode():
            logits = model(**inputs(list(texts))).logits
            return torch.softmax(logits, -1).numpy()

    compiled = torch.compile(model, dynamic=True)
    return {
        "transformers, eager": functools.partial(classify_by, model),
        "transformers, compiled": functools.partial(classify_by, compiled),
        "ONNX Runtime": _onnx_runtime(
            model, inputs, os.path.join(directory, "model.onnx")
        ),
    }


def _onnx_runtime(
    model: Any, inputs: Callable[[list[str]], Any], path: str
) -> Classify:
    """Returns transformers' model in ONNX Runtime, by way of a file."""
    import onnxruntime
    import torch

    example = dict(inputs(["A text.", "Another, longer text."]))
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    torch.onnx.export(
        model,
        kwargs=example,
        f=path,
        dynamic_shapes=dict.fromkeys(example, sizes),
        dynamo=True,
        verbose=False,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(path, options)

    def classify_by_onnx(texts: Sequence[str]) -> np.ndarray:
        arrays = {n: t.numpy() for n, t in inputs(list(texts)).items()}
        (logits, *_) = session.run(None, {n: arrays[n] for n in example})
        powers = np.exp(logits - logits.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    return classify_by_onnx


SERVING = Stage(
    "a classifier's probabilities for raw texts, tokenised and padded, in "
    "float32; ratios of ms above 1: ours is faster",
    _serving,
    needs=("tokenizer_dir", "paragraphs"),
)

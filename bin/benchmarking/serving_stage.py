"""The stage that measures serving: raw texts in, probabilities out."""

import functools
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from albert_tf.config import override, require
from bin import command_line
from bin.benchmarking.harness import (
    Measurement,
    Stage,
    Turns,
    require_packages,
    seconds_of,
)
from bin.benchmarking.side import check_precision

Answer = Callable[[Sequence[str]], np.ndarray]

# (texts of a request, words of each); 0: paragraphs as they are.
_REQUESTS = (*itertools.product((1, 8, 32), (10, 100)), (32, 0))
# Of a kind of request in a turn.
_SECONDS = 1.0
_CALLS = (5, 200)
_CLIENTS = 16
_CLIENT_SECONDS = 2.0
# Probabilities that libraries compute differ by no more.
_CLOSE = {"float32": 1e-4, "bfloat16": 0.05}


class Serving(Stage):
    """A classifier behind its tokenizer, in this project and in others."""

    name = "serving"
    description = (
        "a classifier's answers for raw texts, tokenised and padded; ratios "
        "above 1: ours is faster"
    )
    needs = ("tokenizer_dir", "first_paragraphs")

    def check(self) -> None:
        check_precision(self.name, self.workspace.work, _CLOSE)
        if "transformers" in self.workspace.peers:
            require_packages("The comparison of serving", ["onnxruntime"])

    def sides(self) -> dict[Any, Callable[[], Any]]:
        answers = _answers(self)
        texts = _texts(self)
        precision = self.workspace.work.training.precision
        want = next(iter(answers.values()))(texts[32, 0])
        for name, answer in answers.items():
            difference = np.abs(answer(texts[32, 0]) - want).max()
            require(
                difference <= _CLOSE[precision],
                f"{name} answers otherwise than {next(iter(answers))}, by "
                f"{difference:.3g}: they are not the same model.",
            )
            for request in texts.values():
                answer(request)
        return {
            name: functools.partial(_turn, answer, texts)
            for name, answer in answers.items()
        }

    def measurements(self, turns: Turns) -> Iterator[Measurement]:
        peers = {
            name: [turns[side] for side in turns if side.startswith(name)]
            for name in ("transformers", "ONNX Runtime")
        }
        for what in turns["ours"]:
            for side, turn in turns.items():
                for measure, unit, value in turn[what]:
                    yield f"{what}, {side}, {measure}", unit, value
            (_, unit, ours), *_ = turns["ours"][what]
            for name, of_peer in peers.items():
                # The best of its variants.
                values = [turn[what][0][2] for turn in of_peer]
                if values and unit == "ms":
                    yield f"{what}, {name} to ours", "times", min(values) / ours
                elif values:
                    yield f"{what}, ours to {name}", "times", ours / max(values)


def _texts(stage: Stage) -> dict[tuple[int, int], list[str]]:
    """Returns the texts of each row of _REQUESTS."""
    paragraphs = [text for text, _ in stage.workspace.first_paragraphs]
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


def _turn(
    answer: Answer, texts: dict[tuple[int, int], list[str]]
) -> dict[str, list[Measurement]]:
    """Returns the latency of each kind of request, and that of clients."""
    found = {}
    for (count, words), request in texts.items():
        least, most = _CALLS
        seconds: list[float] = []
        while len(seconds) < least or (
            sum(seconds) < _SECONDS and len(seconds) < most
        ):
            seconds.append(seconds_of(answer, request))
        of = f"{words} words" if words else "paragraphs"
        found[f"{count} x {of}"] = _latency(seconds)
    begin = time.perf_counter()
    seconds = _seconds_of_clients(answer, texts[1, 10])
    # The last requests end later than _CLIENT_SECONDS.
    rate = len(seconds) / (time.perf_counter() - begin)
    latency = _latency(seconds)
    found[f"{_CLIENTS} clients"] = [("requests", "/s", rate), *latency]
    return found


def _latency(seconds: list[float]) -> list[Measurement]:
    values = 1e3 * np.quantile(seconds, [0.5, 0.99])
    return [("p50", "ms", values[0]), ("p99", "ms", values[1])]


def _seconds_of_clients(answer: Answer, request: list[str]) -> list[float]:
    """Returns the seconds of requests that clients make at the same time."""
    seconds: list[float] = []
    end = time.perf_counter() + _CLIENT_SECONDS

    def client() -> None:
        while time.perf_counter() < end:
            seconds.append(seconds_of(answer, request))

    with ThreadPoolExecutor(_CLIENTS) as clients:
        for ended in [clients.submit(client) for _ in range(_CLIENTS)]:
            ended.result()
    return seconds


def _answers(stage: Stage) -> dict[str, Answer]:
    """Returns the sides: one model, of random weights, in each library."""
    import tensorflow as tf

    # As docs/serving.md recommends.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    from albert_tf.interchange.model_directory import save_model_directory
    from albert_tf.modeling.models import model_class
    from albert_tf.text.tokenizer import load_tokenizer

    workspace = stage.workspace
    directory = os.path.join(workspace.directory, "serving")
    tokenizer = load_tokenizer(workspace.tokenizer_dir)
    config = override(
        workspace.work.model, {"vocab_size": tokenizer.vocab_size}
    )
    model = model_class("classification")(config, labels=["even", "odd"])
    longest = workspace.features.max_seq_length
    save_model_directory(directory, model, tokenizer, max_seq_length=longest)
    precision = workspace.work.training.precision
    answers = {"ours": _saved_model(directory, precision)}
    if "transformers" in workspace.peers:
        for way in ("eager", "compiled"):
            command_line.log(f"Preparing transformers, {way}.")
            answers[f"transformers, {way}"] = _transformers(
                directory, precision, way, longest
            )
        if precision == "float32":
            answers["ONNX Runtime"] = _onnx_runtime(directory, longest)
    return answers


def _saved_model(directory: str, precision: str) -> Answer:
    from albert_tf.interchange.export.exported_model import ExportedModel
    from albert_tf.interchange.export.exported_weights import PRECISIONS
    from albert_tf.interchange.export.saved_model import export_saved_model

    path = export_saved_model(
        PRECISIONS[precision].load(directory),
        os.path.join(directory, "export"),
        precision=precision,
    )
    model = ExportedModel(path)
    return lambda texts: model.call("text", {"text": texts})["probabilities"]


def _their_model(directory: str, longest: int, precision: str) -> Any:
    """Returns transformers' model, and its inputs as a function of texts."""
    import torch
    import transformers

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        directory, dtype=getattr(torch, precision)
    )
    inputs = functools.partial(
        tokenizer,
        padding=True,
        truncation=True,
        max_length=longest,
        return_tensors="pt",
    )
    return model.train(False), inputs


def _transformers(
    directory: str, precision: str, way: str, longest: int
) -> Answer:
    import torch

    model, inputs = _their_model(directory, longest, precision)
    if way == "compiled":
        model = torch.compile(model, dynamic=True)

    def answer(texts: Sequence[str]) -> np.ndarray:
        with torch.inference_mode():
            logits = model(**inputs(list(texts))).logits
            return torch.softmax(logits.float(), -1).numpy()

    return answer


def _onnx_runtime(directory: str, longest: int) -> Answer:
    import onnxruntime
    import torch

    model, inputs = _their_model(directory, longest, "float32")
    example = dict(inputs(["A text.", "Another, longer text."]))
    names = list(example)
    path = os.path.join(directory, "model.onnx")
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    torch.onnx.export(
        model,
        kwargs=example,
        f=path,
        dynamic_shapes=dict.fromkeys(names, sizes),
        dynamo=True,
        verbose=False,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(path, options)

    def answer(texts: Sequence[str]) -> np.ndarray:
        given = inputs(list(texts))
        (logits, *_) = session.run(None, {n: given[n].numpy() for n in names})
        powers = np.exp(logits - logits.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    return answer

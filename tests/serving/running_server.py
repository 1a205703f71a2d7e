"""A server in a thread, and a model whose calls a test controls."""

import contextlib
import http.client
import json
import socket
import threading
import time

import numpy as np
import tensorflow as tf

from albert_tf.config import ServingConfig, UserError
from albert_tf.interchange.export.exported_model import (
    ExportedModel,
    ExportedSignature,
)
from albert_tf.serving.application import make_server


class StubModel(ExportedModel):
    """Returns lengths of texts; "wait" waits, "bad" is refused.

    Attributes:
        batches: the texts of each call.
        started: set when a call waits.
        go: lets it go on.
    """

    def __init__(self):
        self.name, self.version, self.labels = "stub", 3, []
        text = tf.TensorSpec([None], tf.string, "text")
        outputs = {
            "length": tf.TensorSpec([None], tf.int32, "length"),
            "words": tf.TensorSpec([None, None], tf.string, "words"),
        }
        choices = tf.TensorSpec([None, None], tf.string, "choices")
        examples = tf.TensorSpec([None], tf.string, "examples")
        ids = tf.TensorSpec([None, None, None], tf.int32, "input_ids")
        self.signatures = {
            name: ExportedSignature(
                inputs or {"text": text}, {output: outputs[output]}, None
            )
            for name, inputs, output in (
                ("serving_default", {}, "length"),
                ("words", {}, "words"),
                ("choices", {"choices": choices, "text": text}, "length"),
                ("examples", {"examples": examples}, "words"),
                ("tokens", {"input_ids": ids}, "length"),
            )
        }
        self.batches = []
        self.started, self.go = threading.Event(), threading.Event()

    def call(self, signature, inputs):
        if signature == "tokens":
            return {"length": np.array([len(c) for c in inputs["input_ids"]])}
        given = "examples" if signature == "examples" else "text"
        texts = [text.decode() for text in inputs[given]]
        self.batches.append(texts)
        if "wait" in texts:
            self.started.set()
            assert self.go.wait(30)
        if "bad" in texts:
            raise UserError("bad is refused.")
        if "bug" in texts:
            raise RuntimeError("a bug")
        if signature in ("words", "examples"):
            words = [text.split() for text in texts]
            width = max(map(len, words))
            padded = [row + [""] * (width - len(row)) for row in words]
            return {"words": np.char.encode(padded).astype(object)}
        return {"length": np.array([len(text) for text in texts], np.int32)}


class Client:
    """Requests to a server, each over a connection of its own."""

    def __init__(self, name, port):
        self.name, self.port = name, port

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def ask(self, method, path, body=None, headers=()):
        """Returns status, headers and the JSON, or else text, of an answer."""
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            content = response.read().decode()
            is_json = response.headers["Content-Type"] == "application/json"
            if is_json and method != "HEAD":
                content = json.loads(content)
            return response.status, response.headers, content

    def predict(self, body, path=":predict"):
        """Returns status and JSON of an answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, _, content = self.ask(
            "POST", f"/v1/models/{self.name}{path}", data
        )
        return status, content

    def in_thread(self, body):
        """Returns a thread that asks for a prediction; `answer()` joins it."""
        found = []
        thread = threading.Thread(
            target=lambda: found.append(self.predict(body))
        )
        thread.start()

        def answer():
            thread.join(30)
            return found[0]

        return answer

    def wait_for_metric(self, line, value):
        """Returns when a metric has a value."""
        end = time.monotonic() + 30
        while self.metric(line) != value:
            assert time.monotonic() < end, f"{line} is {self.metric(line)}"

    def metric(self, line):
        """Returns the value of a metric, 0 where there is none."""
        _, _, text = self.ask("GET", "/metrics")
        values = [
            row.rpartition(" ")[2]
            for row in text.splitlines()
            if row.startswith(f"{line} ")
        ]
        return float(values[0]) if values else 0.0


@contextlib.contextmanager
def serving(model, index=None, hosts=("*",), **settings):
    """Yields a client of a server, which ends afterwards."""
    listener = socket.create_server(("127.0.0.1", 0))
    name = model.name if model else ""
    server = make_server(model, name, ServingConfig(**settings), index, hosts)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield Client(name, listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()

"""Warm-up requests for TensorFlow Serving."""

import dataclasses
import os

import numpy as np
import pytest
import tensorflow as tf
from export_samples import FEATURES
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet
from tensorflow.core.framework.tensor_pb2 import TensorProto

from albert_tf.interchange.export import saved_model
from albert_tf.interchange.export.serving_module import ServingModule
from albert_tf.interchange.model_files import TaskRecord
from albert_tf.records.tfrecord import read_records


def fields(message):
    """Returns the numbers and values of a serialized message's fields."""
    found = UnknownFieldSet(Empty.FromString(message))
    return [(field.field_number, field.data) for field in found]


def requests_in(records):
    """Yields model, signature and inputs of serialized PredictionLogs."""
    for record in records:
        # PredictionLog.predict_log.request
        request = fields(dict(fields(dict(fields(record))[6]))[1])
        spec = dict(fields(dict(request)[1]))
        entries = [dict(fields(value)) for n, value in request if n == 2]
        inputs = {
            entry[1].decode(): tf.make_ndarray(TensorProto.FromString(entry[2]))
            for entry in entries
        }
        yield spec[1].decode(), spec[3].decode(), inputs


def test_the_warm_up_file_has_a_request_for_each_signature(exported):
    path = os.path.join(exported, "assets.extra/tf_serving_warmup_requests")
    models, names, _ = zip(*requests_in(read_records(path)), strict=True)
    assert set(models) == {"mood"}
    assert names == (
        *("serving_default", "text", "text_pair", "embed", "tokens"),
        "examples",
    )


def test_warm_up_requests_reach_each_group_of_lengths(load):
    features = dataclasses.replace(FEATURES, max_seq_length=150)
    task = TaskRecord("mood", features, False)
    loaded = dataclasses.replace(load("classification"), task=task)
    lengths = {}
    records = saved_model.warm_up_requests(ServingModule(loaded), "albert")
    for _, signature, inputs in requests_in(records):
        texts = [
            loaded.tokenizer.encode(text.decode())
            for name, values in inputs.items()
            if name.startswith("text")
            for text in values
        ]
        tokens = sum(map(len, texts)) + len(texts) + 1
        lengths.setdefault(signature, []).append(tokens)
    for signature in ("text", "text_pair", "embed"):
        groups = np.searchsorted([32, 64, 128, 150], lengths[signature])
        assert groups.tolist() == [0, 1, 2, 3], (signature, lengths)
    assert len(lengths["tokens"]) == len(lengths["examples"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    # The other heads have no other inputs.
    "head",
    ["pretraining", "classification", "multiple_choice", "answerable_span"],
)
def test_warm_up_requests_are_answered(module, serve, head):
    records = saved_model.warm_up_requests(module(head), head)
    requests = list(requests_in(records))
    assert {name for _, name, _ in requests} >= {"tokens", "examples"}
    for _, signature, inputs in requests:
        answers = serve(head, signature, **inputs)
        assert {value.shape[0] for value in answers.values()} == {1}

"""The server under load, beyond what it accepts."""

import asyncio
import json

import numpy as np
import pytest
from load_clients import load
from running_server import serving

from albert_tf.interchange.saved_model import ExportedModel
from albert_tf.serving.application import warm_up


@pytest.mark.slow
def test_no_request_is_lost_under_load(export_dir):
    """40 clients where 16 requests may be pending."""
    model = ExportedModel(export_dir)
    warm_up(model)
    texts = [f"The bada of gule {n} " * (1 + n % 5) for n in range(40)]
    want = model.call("text", {"text": texts})["probabilities"]

    def is_answer(index, content):
        (row,) = content["predictions"]
        return np.allclose(row["probabilities"], want[index], atol=1e-5)

    with serving(model, max_pending_requests=16) as client:
        tally = asyncio.run(
            load(
                client.port,
                "/v1/models/mood:predict",
                bodies=[json.dumps({"instances": [t]}).encode() for t in texts],
                is_answer=is_answer,
                clients=40,
                seconds=4,
            )
        )
        assert client.metric("albert_pending_requests") == 0
        assert client.metric("albert_waiting_requests") == 0
        assert client.predict({"instances": texts[:1]})[0] == 200
    assert tally.lost == []
    assert tally.wrong == []
    statuses = {status for _, status in tally.statuses}
    assert {200, 400, 503} <= statuses <= {200, 400, 503, 504, None}

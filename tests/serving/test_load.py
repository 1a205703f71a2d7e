"""The server under load, beyond what it accepts."""

import asyncio
import json
import random
import time

import numpy as np
import pytest
from running_server import serving

from albert_tf.interchange.export.exported_model import ExportedModel

# Manners of clients and how often each is drawn.
MANNERS = {
    "patient": 70,
    "slow": 10,  # reads its answer in small parts
    "cut": 10,  # closes after its request
    "half": 5,  # closes within its request
    "malformed": 5,
}


async def ask(port, body, manner):
    """Returns status and JSON of an answer, None where it is not read."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, limit=1024
    )
    try:
        head = (
            "POST /v1/models/mood:predict HTTP/1.0\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        part = len(body) // 2 if manner == "half" else len(body)
        writer.write(head.encode() + body[:part])
        await writer.drain()
        if manner in ("cut", "half"):
            return None
        answer = b""
        # With HTTP/1.0 the server closes the connection after its answer.
        while part := await reader.read(512):
            answer += part
            if manner == "slow":
                await asyncio.sleep(0.01)
        head, _, content = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(content)
    finally:
        writer.close()


@pytest.mark.slow
def test_no_request_is_lost_under_load(export_dir):
    """40 clients where 16 requests may be pending."""
    model = ExportedModel(export_dir)
    texts = [f"The bada of gule {n} " * (1 + n % 5) for n in range(40)]
    for rows in (texts[:1], texts):  # The first call of each takes long.
        want = model.call("serving_default", {"text": rows})["probabilities"]
    end, statuses = time.monotonic() + 2, set()

    async def client(port, number):
        rng = random.Random(number)
        while time.monotonic() < end:
            manner = rng.choices([*MANNERS], [*MANNERS.values()])[0]
            row = rng.randrange(len(texts))
            body = json.dumps({"instances": [texts[row]]}).encode()
            if manner == "malformed":
                body = body[:-1]
            try:
                found = await ask(port, body, manner)
            except OSError:
                assert manner in ("cut", "half")
                continue
            if not found:
                continue
            status, answer = found
            statuses.add(status)
            if status == 200:
                (of_row,) = answer["predictions"]
                got = of_row["probabilities"]
                np.testing.assert_allclose(got, want[row], atol=1e-5)
            else:
                assert answer.keys() == {"error"}

    async def clients(port):
        await asyncio.gather(*(client(port, n) for n in range(40)))

    with serving(model, max_pending_requests=16) as server:
        asyncio.run(clients(server.port))
        assert server.metric("albert_pending_requests") == 0
        assert server.metric("albert_waiting_requests") == 0
        assert server.predict({"instances": texts[:1]})[0] == 200
    assert {200, 400, 503} <= statuses <= {200, 400, 503, 504}

"""Many clients at a time: patient ones, slow readers, and cut connections."""

import asyncio
import collections
import dataclasses
import json
import random
import time

# Manners of clients and how often each is drawn.
MANNERS = {
    "patient": 70,
    "slow": 10,  # reads its answer in small parts
    "cut": 10,  # closes after its request
    "half": 5,  # closes within its request
    "malformed": 5,
}


@dataclasses.dataclass
class Tally:
    """What became of the requests.

    Attributes:
        statuses: of the answers, by manner.
        lost: errors of connections that the client did not cut.
        wrong: answers to another request.
    """

    statuses: collections.Counter = dataclasses.field(
        default_factory=collections.Counter
    )
    lost: list = dataclasses.field(default_factory=list)
    wrong: list = dataclasses.field(default_factory=list)


async def load(port, path, *, bodies, is_answer, clients, seconds):
    """Returns the tally of clients that ask again and again.

    Args:
        port: of the server on this machine.
        path: of the requests.
        bodies: requests that can be answered.
        is_answer: of a number in `bodies` and the answer, whether it is right.
        clients: their number.
        seconds: after which no further request is sent.
    """
    tally, end = Tally(), time.monotonic() + seconds

    async def client(number):
        rng = random.Random(number)
        while time.monotonic() < end:
            manner = rng.choices([*MANNERS], [*MANNERS.values()])[0]
            index = rng.randrange(len(bodies))
            body = bodies[index] if manner != "malformed" else b'{"inputs": '
            try:
                answer = await _ask(port, path, body, manner)
            except (OSError, EOFError, ValueError) as error:
                if manner not in ("cut", "half"):
                    tally.lost.append(f"{manner}: {error!r}")
                continue
            if not answer:
                tally.statuses[manner, None] += 1
                continue
            status, content = answer
            tally.statuses[manner, status] += 1
            right = (
                is_answer(index, content)
                if status == 200
                else (content.keys() == {"error"})
            )
            if not right:
                tally.wrong.append((status, content))

    await asyncio.gather(*map(client, range(clients)))
    return tally


async def _ask(port, path, body, manner):
    """Returns status and JSON of an answer, None where it is not read."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, limit=1024
    )
    try:
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}"
        part = len(body) // 2 if manner == "half" else len(body)
        writer.write(f"{head}\r\n\r\n".encode() + body[:part])
        await writer.drain()
        if manner in ("cut", "half"):
            return None
        found = await reader.readuntil(b"\r\n\r\n")
        lines = found.decode().lower().splitlines()
        (length,) = [
            int(line.partition(":")[2])
            for line in lines
            if line.startswith("content-length:")
        ]
        content = b""
        while len(content) < length:
            if manner == "slow":
                await asyncio.sleep(0.01)
            part = await reader.read(min(512, length - len(content)))
            if not part:
                raise EOFError(f"{len(content)} of {length} bytes")
            content += part
        return int(lines[0].split()[1]), json.loads(content)
    finally:
        writer.close()

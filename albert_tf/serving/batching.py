"""Dynamic batching: waiting requests are run as one batch in a thread."""

import asyncio
import concurrent.futures
import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import prometheus_client
import tensorflow as tf

from albert_tf.config import ServingConfig, UserError, require
from albert_tf.interchange.export.exported_model import ExportedModel

Arrays = dict[str, np.ndarray]
# Requests can be concatenated that have the signature and these shapes; one
# that is to be alone has itself there too.
_Group = tuple[object, ...]


@dataclasses.dataclass(eq=False)
class _Waiting:
    arrays: Arrays
    rows: int
    deadline: float
    outputs: asyncio.Future


class Batcher:
    """Runs a model on requests of an event loop, several at a time.

    `batch_rows` counts the rows of each signature's batches.
    """

    def __init__(
        self,
        model: ExportedModel,
        config: ServingConfig,
        batch_rows: prometheus_client.Histogram,
    ) -> None:
        self._model = model
        self._config = config
        self._batch_rows = batch_rows
        self._groups: dict[_Group, list[_Waiting]] = {}
        self._arrived = asyncio.Event()

    async def outputs(self, signature: str, arrays: Arrays) -> Arrays:
        """Returns the signature's outputs for `ExportedModel.checked_inputs`.

        A caller that is cancelled leaves the queue.

        Raises:
            UserError: when there are no rows or too many, or the model
                refuses them.
        """
        # Every choice is a row.
        sizes = [
            a.size if a.dtype == object else math.prod(a.shape[:-1])
            for a in arrays.values()
        ]
        rows = max(sizes) if all(sizes) else 0
        limit = self._config.max_batch_size
        require(
            0 < rows <= limit,
            f"Expected 1 to max_batch_size={limit} rows in a request (each "
            f"choice is one), got {rows}.",
        )
        loop = asyncio.get_running_loop()
        # The lengths of examples, and so the columns of their outputs, are
        # not known before the model parses them.
        specs = self._model.signatures[signature].outputs
        alone = "examples" in arrays and bool(_variable(specs))
        timeout = 0 if alone else self._config.batch_timeout_micros / 1e6
        waiting = _Waiting(
            arrays, rows, loop.time() + timeout, loop.create_future()
        )
        group: _Group = (signature, *(a.shape[1:] for a in arrays.values()))
        if alone:
            group = (*group, waiting)
        self._groups.setdefault(group, []).append(waiting)
        self._arrived.set()
        try:
            return await waiting.outputs
        finally:
            self._remove(group, [waiting])

    def waiting(self) -> int:
        """Returns the number of requests that wait for a batch."""
        return sum(map(len, self._groups.values()))

    async def run(self) -> None:
        """Runs batches until it is cancelled."""
        loop = asyncio.get_running_loop()
        with concurrent.futures.ThreadPoolExecutor(1, "model") as thread:
            while True:
                group = await self._next()
                if not (batch := self._take(group)):
                    continue
                signature = str(group[0])
                rows = sum(waiting.rows for waiting in batch)
                self._batch_rows.labels(signature).observe(rows)
                try:
                    results = await loop.run_in_executor(
                        thread,
                        self._compute,
                        signature,
                        [waiting.arrays for waiting in batch],
                    )
                except Exception as error:
                    results = [error] * len(batch)
                for waiting, result in zip(batch, results, strict=True):
                    if waiting.outputs.done():
                        continue
                    if isinstance(result, Exception):
                        waiting.outputs.set_exception(result)
                    else:
                        waiting.outputs.set_result(result)

    async def _arrival(self) -> None:
        self._arrived.clear()
        await self._arrived.wait()

    async def _next(self) -> _Group:
        """Returns the group of the first deadline, at that time or once full.

        It is empty where its clients have gone meanwhile.
        """
        while True:
            while not self._groups:
                await self._arrival()
            # Again after each arrival, whose deadline may be an earlier one.
            group, requests = min(
                self._groups.items(), key=lambda item: item[1][0].deadline
            )
            if sum(w.rows for w in requests) >= self._config.max_batch_size:
                return group
            try:
                async with asyncio.timeout_at(requests[0].deadline):
                    await self._arrival()
            except TimeoutError:
                return group

    def _take(self, group: _Group) -> list[_Waiting]:
        """Removes the group's first requests that fit in a batch."""
        batch: list[_Waiting] = []
        room = self._config.max_batch_size
        for waiting in self._groups.get(group, ()):
            room -= waiting.rows
            if room < 0:
                break
            batch.append(waiting)
        self._remove(group, batch)
        return batch

    def _remove(self, group: _Group, requests: list[_Waiting]) -> None:
        left = [w for w in self._groups.pop(group, ()) if w not in requests]
        if left:
            self._groups[group] = left

    def _compute(
        self, signature: str, requests: list[Arrays]
    ) -> list[Arrays | Exception]:
        """Returns outputs, or a UserError, for each request of a batch."""
        merged = {
            name: np.concatenate([arrays[name] for arrays in requests])
            for name in requests[0]
        }
        try:
            outputs = self._model.call(signature, merged)
        except UserError as error:
            if len(requests) == 1:
                return [error]
            # A request that the model refuses must not fail the others.
            half = len(requests) // 2
            return [
                result
                for part in (requests[:half], requests[half:])
                for result in self._compute(signature, part)
            ]
        if len(requests) == 1:
            return [outputs]
        ends = np.cumsum([len(next(iter(a.values()))) for a in requests])
        return [
            _without_padding(
                {name: v[begin:end] for name, v in outputs.items()},
                self._model.signatures[signature].outputs,
            )
            for begin, end in zip([0, *ends], ends, strict=False)
        ]


def _variable(specs: Mapping[str, tf.TensorSpec]) -> list[str]:
    """Returns the outputs whose number of columns depends on the texts."""
    return [
        name
        for name, spec in specs.items()
        if spec.shape.rank > 1 and spec.shape[1] is None
    ]


def _without_padding(
    outputs: Arrays, specs: Mapping[str, tf.TensorSpec]
) -> Arrays:
    """Removes columns that only other requests of the batch have filled.

    Among outputs whose number of columns depends on the texts there are
    strings, which are "" in padding only.
    """
    variable = _variable(specs)
    filled = [
        np.flatnonzero((value != b"").any(axis=(0, *range(2, value.ndim))))
        for value in (outputs[name] for name in variable)
        if value.dtype == object
    ]
    if not filled:
        return outputs
    end = 1 + max(int(columns.max(initial=-1)) for columns in filled)
    return {
        name: value[:, :end] if name in variable else value
        for name, value in outputs.items()
    }

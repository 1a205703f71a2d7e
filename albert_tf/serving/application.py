"""The server and its ASGI application: routes, limits, metrics."""

import asyncio
import base64
import contextlib
import hashlib
import html
import importlib.resources
import itertools
import re
import time
from collections.abc import AsyncIterator, Awaitable, Iterator

import numpy as np
import prometheus_client
import uvicorn
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from albert_tf.config import ServingConfig, UserError
from albert_tf.interchange.export.exported_model import ExportedModel
from albert_tf.serving.batching import Batcher
from albert_tf.serving.rest_json import (
    model_metadata,
    model_status,
    read_request,
    write_response,
)

# The status of clients that have gone, for the metrics: nobody receives it.
_CLIENT_GONE = 499
_RETRY = {"Retry-After": "1"}


def warm_up(model: ExportedModel) -> None:
    """Calls every signature with one row and with two.

    The first call of each takes the longest.
    """
    for (name, signature), rows in itertools.product(
        model.signatures.items(), (1, 2)
    ):
        inputs = {
            name: np.full(
                [rows] + [1] * (spec.shape.rank - 1),
                b"a" if spec.dtype.name == "string" else 0,
                spec.dtype.as_numpy_dtype,
            )
            for name, spec in signature.inputs.items()
        }
        # These values need not be a valid input.
        with contextlib.suppress(UserError):
            model.call(name, inputs)


class _Metrics:
    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.requests = prometheus_client.Counter(
            "albert_requests",
            "Prediction requests by signature and HTTP status.",
            ["signature", "code"],
            registry=self.registry,
        )
        self.seconds = prometheus_client.Histogram(
            "albert_request_seconds",
            "Time from a request's header to its response.",
            ["signature"],
            registry=self.registry,
        )
        self.pending = prometheus_client.Gauge(
            "albert_pending_requests",
            "Requests that are read, wait or run.",
            registry=self.registry,
        )
        self.waiting = prometheus_client.Gauge(
            "albert_waiting_requests",
            "Requests that wait for a batch.",
            registry=self.registry,
        )
        self.batch_rows = prometheus_client.Histogram(
            "albert_batch_rows",
            "Rows of the batches that were run.",
            ["signature"],
            buckets=[2**n for n in range(11)],
            registry=self.registry,
        )


class _Predictions:
    """Answers prediction requests within the limits."""

    def __init__(
        self, model: ExportedModel, config: ServingConfig, metrics: _Metrics
    ) -> None:
        self._model = model
        self._config = config
        self._metrics = metrics
        self._pending = 0
        self.batcher = Batcher(model, config, metrics.batch_rows)
        metrics.pending.set_function(lambda: self._pending)
        metrics.waiting.set_function(self.batcher.waiting)

    @property
    def is_full(self) -> bool:
        return self._pending >= self._config.max_pending_requests

    async def respond(self, request: Request) -> Response:
        """Returns the response to a request, or raises HTTPException."""
        if self.is_full:
            self._metrics.requests.labels("", 503).inc()
            raise HTTPException(
                503,
                f"{self._pending} requests are pending, the maximum "
                "(max_pending_requests); try again later.",
                _RETRY,
            )
        begin, code = time.perf_counter(), 500
        request.state.signature = ""  # not known yet
        self._pending += 1
        try:
            response = await self._within_time(request)
            code = response.status_code
            return response
        except HTTPException as error:
            code = error.status_code
            raise
        finally:
            self._pending -= 1
            signature = request.state.signature
            self._metrics.requests.labels(signature, code).inc()
            self._metrics.seconds.labels(signature).observe(
                time.perf_counter() - begin
            )

    async def _within_time(self, request: Request) -> Response:
        late, seconds = 408, self._config.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                body = await self._body(request)
                late = 504
                return await _unless_gone(request, self._predict(request, body))
        except TimeoutError:
            raise HTTPException(
                late, f"No answer within timeout_seconds={seconds:g}."
            ) from None
        except UserError as error:
            raise HTTPException(400, str(error)) from None
        except ClientDisconnect:
            return Response(status_code=_CLIENT_GONE)

    async def _body(self, request: Request) -> bytes:
        limit, body = self._config.max_request_bytes, bytearray()
        async for part in request.stream():
            body += part
            if len(body) > limit:
                raise HTTPException(
                    413, f"The request has more than {limit} bytes."
                )
        return bytes(body)

    async def _predict(self, request: Request, body: bytes) -> Response:
        signature, inputs, by_row = await asyncio.to_thread(
            read_request, body, self._model
        )
        request.state.signature = signature
        outputs = await self.batcher.outputs(signature, inputs)
        content = await asyncio.to_thread(write_response, outputs, by_row)
        return Response(content, media_type="application/json")


async def _unless_gone(
    request: Request, response: Awaitable[Response]
) -> Response:
    """Returns the response; cancels it when the client has gone."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks = asyncio.ensure_future(response), asyncio.ensure_future(gone())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()


def _page(name: str) -> HTMLResponse:
    """Returns the page for browsers, which loads no other resources."""
    files = importlib.resources.files("albert_tf.serving")
    text = files.joinpath("page.html").read_text(encoding="utf-8")

    def hashes(tag: str) -> str:
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = hashlib.sha256(content.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"

    policy = (
        f"default-src 'none'; connect-src 'self'; script-src "
        f"{hashes('script')}; style-src {hashes('style')}; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
    return HTMLResponse(
        text.replace("MODEL_NAME", html.escape(name)),
        headers={
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        },
    )


async def _error(request: Request, error: Exception) -> Response:
    """Returns an error as TensorFlow Serving does, {"error": message}."""
    if not isinstance(error, HTTPException):
        return JSONResponse({"error": "The server has failed."}, 500)
    status, message = error.status_code, error.detail
    if status == 405 or message == "Not Found":
        path = request.url.path
        message = f"Malformed request: {request.method} {path}"
        if allowed := (error.headers or {}).get("Allow"):
            message += f"; this path takes {allowed}."
        elif path.startswith("/v1/"):
            status = 400
    return JSONResponse({"error": message}, status, error.headers)


def make_application(
    model: ExportedModel, name: str, config: ServingConfig
) -> Starlette:
    """Returns an ASGI application that serves `/v1/models/<name>`."""
    metrics = _Metrics()
    predictions = _Predictions(model, config, metrics)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        batches = asyncio.create_task(predictions.batcher.run())
        yield
        batches.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await batches

    return Starlette(
        routes=[
            *_model_routes(model, name, predictions),
            *_state_routes(predictions, metrics),
            Route("/", _page(name), methods=["GET"]),
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: _error, Exception: _error},
    )


def _model_routes(
    model: ExportedModel, name: str, predictions: _Predictions
) -> Iterator[Route]:
    """Yields the paths of TensorFlow Serving's REST interface."""

    class OfModel(HTTPEndpoint):
        async def dispatch(self) -> None:
            # Before the method: what is not there has none.
            _check_model(Request(self.scope), name, str(model.version))
            await super().dispatch()

    class Predict(OfModel):
        async def post(self, request: Request) -> Response:
            return await predictions.respond(request)

    class Status(OfModel):
        async def get(self, request: Request) -> Response:
            return JSONResponse(model_status(model))

    class Metadata(OfModel):
        async def get(self, request: Request) -> Response:
            return JSONResponse(model_metadata(model, name))

    for path in ("/v1/models/{name}", "/v1/models/{name}/versions/{version}"):
        yield Route(f"{path}:predict", Predict)
        yield Route(f"{path}/metadata", Metadata)
        yield Route(path, Status)


def _check_model(request: Request, name: str, version: str) -> None:
    """Raises HTTPException where a path names another model or version."""
    asked = request.path_params["name"]
    asked_version = request.path_params.get("version")
    if (asked, asked_version or version) == (name, version):
        return
    which = f"Latest({asked})"
    if asked_version:
        which = f"Specific({asked}, {asked_version})"
    raise HTTPException(
        404,
        f"Servable not found for request: {which}; this server has {name}, "
        f"version {version}.",
    )


def _state_routes(
    predictions: _Predictions, metrics: _Metrics
) -> Iterator[Route]:
    """Yields the paths of health checks and metrics."""

    async def live(request: Request) -> Response:
        return JSONResponse({"live": True, "ready": not predictions.is_full})

    async def ready(request: Request) -> Response:
        full = predictions.is_full
        return JSONResponse({"ready": not full}, 503 if full else 200)

    async def exposition(request: Request) -> Response:
        return Response(
            prometheus_client.generate_latest(metrics.registry),
            media_type=prometheus_client.CONTENT_TYPE_LATEST,
        )

    yield Route("/healthz", live)
    yield Route("/healthz/ready", ready)
    yield Route("/metrics", exposition)


def make_server(
    model: ExportedModel, name: str, config: ServingConfig
) -> uvicorn.Server:
    """Returns a server; its `run` takes the sockets to listen at.

    On SIGTERM it answers the requests that it has before it ends.
    """
    return uvicorn.Server(
        uvicorn.Config(
            make_application(model, name, config),
            http="h11",
            ws="none",
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_level="warning",
            # It counts the connection that is refused too.
            limit_concurrency=config.max_connections + 1,
            # Every request has ended by then; its client may not read.
            timeout_graceful_shutdown=int(config.timeout_seconds) + 2,
        )
    )

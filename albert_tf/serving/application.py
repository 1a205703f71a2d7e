"""The server and its ASGI application: routes, limits, metrics."""

import asyncio
import base64
import concurrent.futures
import contextlib
import hashlib
import html
import importlib.resources
import itertools
import re
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Sequence,
)

import numpy as np
import prometheus_client
import uvicorn
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from albert_tf.config import ServingConfig, UserError
from albert_tf.interchange.export.exported_model import ExportedModel
from albert_tf.search.index import DEFAULT_RANKING, Index
from albert_tf.serving.batching import Batcher
from albert_tf.serving.rest_json import (
    model_metadata,
    model_status,
    read_request,
    write_response,
)
from albert_tf.serving.search_json import search_response

# The status of clients that have gone, for the metrics: nobody receives it.
_CLIENT_GONE = 499
# Searches that are computed at the same time.
_SEARCH_THREADS = 4
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
            "Requests by signature, or search, and HTTP status.",
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


# Returns the JSON of the answer to a request's body.
_Answer = Callable[[Request, bytes], Awaitable[bytes]]


class _Limits:
    """Answers requests within the limits of their number, size and time."""

    def __init__(self, config: ServingConfig, metrics: _Metrics) -> None:
        self._config = config
        self._metrics = metrics
        self._pending = 0
        metrics.pending.set_function(lambda: self._pending)

    @property
    def is_full(self) -> bool:
        return self._pending >= self._config.max_pending_requests

    async def respond(self, request: Request, answer: _Answer) -> Response:
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
            response = await self._within_time(request, answer)
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

    async def _within_time(self, request: Request, answer: _Answer) -> Response:
        late, seconds = 408, self._config.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                body = await self._body(request)
                late = 504
                content = await _unless_gone(request, answer(request, body))
                return Response(content, media_type="application/json")
        except TimeoutError:
            raise HTTPException(
                late, f"No answer within timeout_seconds={seconds:g}."
            ) from None
        except UserError as error:
            raise HTTPException(400, str(error)) from None
        except ClientDisconnect:
            return Response(status_code=_CLIENT_GONE)

    async def _body(self, request: Request) -> bytes:
        coding = request.headers.get("content-encoding", "identity")
        if coding.lower() != "identity":
            raise HTTPException(
                415,
                f"Content-Encoding: {coding[:50]} is not read; send the body "
                "as it is.",
            )
        limit, body = self._config.max_request_bytes, bytearray()
        async for part in request.stream():
            body += part
            if len(body) > limit:
                raise HTTPException(
                    413, f"The request has more than {limit} bytes."
                )
        return bytes(body)


class _Predictions:
    """Answers prediction requests."""

    def __init__(
        self, model: ExportedModel, config: ServingConfig, metrics: _Metrics
    ) -> None:
        self._model = model
        self.batcher = Batcher(model, config, metrics.batch_rows)
        metrics.waiting.set_function(self.batcher.waiting)

    async def answer(self, request: Request, body: bytes) -> bytes:
        signature, inputs, by_row = await asyncio.to_thread(
            read_request, body, self._model
        )
        request.state.signature = signature
        outputs = await self.batcher.outputs(signature, inputs)
        return await asyncio.to_thread(write_response, outputs, by_row)


class _Searches:
    """Answers searches, in threads of their own: predictions need the others.

    One that is cancelled while it waits for a thread takes none.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._threads = concurrent.futures.ThreadPoolExecutor(
            _SEARCH_THREADS, "search"
        )

    async def answer(self, request: Request, body: bytes) -> bytes:
        request.state.signature = "search"
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, search_response, body, self._index
        )


async def _unless_gone(request: Request, answer: Awaitable[bytes]) -> bytes:
    """Returns the answer; cancels it when the client has gone."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks = asyncio.ensure_future(answer), asyncio.ensure_future(gone())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()


def _page(model_name: str, index: Index | None) -> HTMLResponse:
    """Returns the page for browsers, which loads no other resources.

    It shows its part on the model, and that on the index, where there is one.
    """
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
    index_name = index.name if index else ""
    options = (
        f"<option{' selected' * (name == DEFAULT_RANKING)}>{name}</option>"
        for name in (index.rankings if index else ())
    )
    values = {
        "PAGE_TITLE": html.escape(model_name or index_name),
        "MODEL_NAME": html.escape(model_name),
        "INDEX_NAME": html.escape(index_name),
        "RANKING_OPTIONS": "".join(options),
    }
    return HTMLResponse(
        re.sub("|".join(values), lambda name: values[name[0]], text),
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
    model: ExportedModel | None,
    name: str,
    config: ServingConfig,
    index: Index | None = None,
    allowed_hosts: Sequence[str] = ("*",),
) -> Starlette:
    """Returns an ASGI application.

    It serves a model at `/v1/models/<name>`, an index at `/v1/search`, or
    both. Requests with another `Host` than `allowed_hosts` are refused.
    """
    metrics = _Metrics()
    limits = _Limits(config, metrics)
    routes = [*_state_routes(limits, metrics)]
    predictions = None
    if model:
        predictions = _Predictions(model, config, metrics)
        routes += _model_routes(model, name, predictions, limits)
    if index:
        searches = _Searches(index)
        routes.append(_search_route(searches, limits))
    page = _page(name if model else "", index)
    routes.append(Route("/", page, methods=["GET"]))

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if not predictions:
            yield
            return
        batches = asyncio.create_task(predictions.batcher.run())
        yield
        batches.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await batches

    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts, www_redirect=False)
        ],
        exception_handlers={HTTPException: _error, Exception: _error},
    )


def _model_routes(
    model: ExportedModel, name: str, predictions: _Predictions, limits: _Limits
) -> Iterator[Route]:
    """Yields the paths of TensorFlow Serving's REST interface."""

    class OfModel(HTTPEndpoint):
        async def dispatch(self) -> None:
            # The model is checked before the method: what is not there has
            # none.
            _check_model(Request(self.scope), name, str(model.version))
            await super().dispatch()

    class Predict(OfModel):
        async def post(self, request: Request) -> Response:
            return await limits.respond(request, predictions.answer)

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


def _search_route(searches: _Searches, limits: _Limits) -> Route:
    """Returns the path of searches."""

    async def search(request: Request) -> Response:
        return await limits.respond(request, searches.answer)

    return Route("/v1/search", search, methods=["POST"])


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


def _state_routes(limits: _Limits, metrics: _Metrics) -> Iterator[Route]:
    """Yields the paths of health checks and metrics."""

    async def live(request: Request) -> Response:
        return JSONResponse({"live": True, "ready": not limits.is_full})

    async def ready(request: Request) -> Response:
        full = limits.is_full
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
    model: ExportedModel | None,
    name: str,
    config: ServingConfig,
    index: Index | None = None,
    allowed_hosts: Sequence[str] = ("*",),
) -> uvicorn.Server:
    """Returns a server; its `run` takes the sockets to listen at.

    On SIGTERM it answers the requests that it has before it ends.
    """
    return uvicorn.Server(
        uvicorn.Config(
            make_application(model, name, config, index, allowed_hosts),
            http="h11",
            ws="none",
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_level="warning",
            # While so many are open it refuses every request.
            limit_concurrency=config.max_connections + 1,
            # Every request has ended by then; its client may not read.
            timeout_graceful_shutdown=int(config.timeout_seconds) + 2,
        )
    )

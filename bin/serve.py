"""A small HTTP server for an export or an index, and a page to try it.

python -m bin.serve --export_dir=export/mytask
python -m bin.serve --index_dir=index

Its paths are those of TensorFlow Serving's REST interface. It is for trying a
model and for small internal use: it has no TLS and no authentication. On the
internet or under much load use TensorFlow Serving.
"""

import contextlib
import ipaddress
import signal
import socket
import sys
from collections.abc import Iterator

from absl import flags

from albert_tf.config import ServingConfig, UserError, require
from albert_tf.search.index import Index
from bin import command_line, own_rows

FLAGS = flags.FLAGS

# Linux closes connections whose other side has taken nothing for so long.
_UNREAD_MILLISECONDS = 30_000
# After so long without a byte Linux asks whether the other side is there.
_IDLE_SECONDS = 60


def define_flags() -> None:
    own_rows.define_flag()
    flags.DEFINE_string(
        "export_dir", None, "<export_dir> of bin.export, or <export_dir>/<n>."
    )
    flags.DEFINE_string(
        "model_name", None, "Name in paths. Default: that of the directory."
    )
    flags.DEFINE_string(
        "index_dir",
        None,
        "Index that bin.search has written, to search in; with --export_dir "
        "or without.",
    )
    flags.DEFINE_string(
        "model_dir",
        None,
        "The model that --index_dir was written with, for the rankings that "
        "compare vectors. Without it passages are ranked by words. "
        f"{command_line.MODEL_HELP}",
    )
    flags.DEFINE_string(
        "host",
        "127.0.0.1",
        "Address to listen at. Whoever reaches it can use the model: 0.0.0.0 "
        "is every network of this machine.",
    )
    flags.DEFINE_integer(
        "port",
        8501,
        "Port; 0: one that is free, which is printed.",
        lower_bound=0,
        upper_bound=65535,
    )
    command_line.define_settings(ServingConfig())


def main() -> None:
    """Serves until SIGTERM or SIGINT, then answers the waiting requests."""
    try:
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"{error.name} is missing: pip install -r requirements-serve.txt."
        ) from None

    config = command_line.with_flags(ServingConfig())
    require(
        "/" not in (FLAGS.model_name or ""),
        f"model_name={FLAGS.model_name}: expected a part of a path, without /.",
    )
    require(
        bool(FLAGS.export_dir or FLAGS.index_dir),
        "Give what is to be served: --export_dir, --index_dir, or both.",
    )
    require(
        bool(FLAGS.index_dir) or not FLAGS.model_dir,
        f"--model_dir={FLAGS.model_dir} is for --index_dir; a model is served "
        "from its --export_dir.",
    )
    listener = _bound()
    sources = filter(None, [FLAGS.export_dir, FLAGS.index_dir])
    print(f"Loading {' and '.join(sources)} ...", file=sys.stderr, flush=True)
    command_line.load_tensorflow()
    from albert_tf.interchange.export.exported_model import ExportedModel
    from albert_tf.serving.application import make_server, warm_up

    index = _index() if FLAGS.index_dir else None
    model: ExportedModel | None = None
    served: list[str] = []
    name = ""
    if FLAGS.export_dir:
        model = ExportedModel(FLAGS.export_dir)
        name = FLAGS.model_name or model.name
        warm_up(model)
        served.append(
            f"{name}, version {model.version}: POST /v1/models/{name}:predict"
        )
    if index:
        served.append(f"{index.name}: POST /v1/search")
    hosts = _allowed_hosts(listener)
    server = make_server(model, name, config, index, hosts)
    with _refused_address():
        # Another program may have taken it while the model was loaded.
        listener.listen()
    # uvicorn raises the signal again when it has ended.
    signal.signal(signal.SIGTERM, lambda *_: None)
    url = f"http://{_host(listener)}:{listener.getsockname()[1]}/"
    command_line.log(f"Serving {url} in a browser; {'; '.join(served)}.")
    server.run([listener])


def _index() -> Index:
    """Returns the index, with its model if one is given."""
    if not FLAGS.model_dir:
        return Index.open(FLAGS.index_dir)
    from albert_tf.search.embedder import Embedder

    embedder = Embedder(FLAGS.model_dir)
    index = Index.open(FLAGS.index_dir, embedder.description, embedder.embed)
    # The first call takes the longest.
    embedder.embed(["a"])
    return index


def _host(listener: socket.socket) -> str:
    """Returns the listener's address as URLs have it."""
    host = str(listener.getsockname()[0])
    return f"[{host}]" if ":" in host else host


def _allowed_hosts(listener: socket.socket) -> list[str]:
    """Returns the values of `Host` that are answered; `*` is any.

    At a loopback address these are this machine's: a page elsewhere whose name
    is made to resolve to that address (DNS rebinding) has its own.
    """
    if not ipaddress.ip_address(listener.getsockname()[0]).is_loopback:
        return ["*"]
    known = "localhost", "127.0.0.1", "[::1]", FLAGS.host, _host(listener)
    return list(dict.fromkeys(known))


def _bound() -> socket.socket:
    """Returns a socket bound to the address, before the model is loaded."""
    host, port = FLAGS.host, FLAGS.port
    require(bool(host), "host is empty; 127.0.0.1 is this machine alone.")
    with _refused_address():
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit these.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            listener.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_SECONDS
            )
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listener.setsockopt(
                socket.IPPROTO_TCP,
                socket.TCP_USER_TIMEOUT,
                _UNREAD_MILLISECONDS,
            )
        listener.bind(address)
    return listener


@contextlib.contextmanager
def _refused_address() -> Iterator[None]:
    """Turns errors of the address into a UserError."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise UserError(
            f"host={FLAGS.host}, port={FLAGS.port}: "
            f"{getattr(error, 'strerror', error)}; name another one, or "
            "--port=0 for any that is free."
        ) from None


if __name__ == "__main__":
    command_line.run(define_flags, main)

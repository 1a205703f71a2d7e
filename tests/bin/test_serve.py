"""The server as a program: its address, its end, its messages."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest
from program_runner import run_program

from albert_tf.config import UserError
from albert_tf.search.index_writer import write_index
from albert_tf.serving import application
from bin import serve
from data_prep.passages import Passage


@contextlib.contextmanager
def started(*arguments):
    """Yields a process of bin.serve and the URL that it prints."""
    with subprocess.Popen(
        [sys.executable, "-m", "bin.serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            line = process.stdout.readline()
            yield process, re.search(r"http://\S+:[1-9]\d*", line)[0]
        finally:
            process.kill()


def written_index(tmp_path):
    passages = [Passage("a.txt", 1, "The sea."), Passage("b.txt", 1, "Air.")]
    path = str(tmp_path / "index")
    write_index(path, passages, lambda t: np.ones([len(t), 2]), model={})
    return path


@pytest.mark.slow
def test_sigterm_ends_it_when_what_waits_is_answered(export_dir, tmp_path):
    index_dir = written_index(tmp_path)
    with started(
        f"--export_dir={export_dir}",
        f"--index_dir={index_dir}",
        "--port=0",
        "--batch_timeout_micros=1000000",
    ) as (process, url):
        host, port = url.removeprefix("http://").rsplit(":", 1)
        assert host == "127.0.0.1"
        with urllib.request.urlopen(f"{url}/v1/models/mood") as response:
            assert json.load(response)["model_version_status"]
        search = urllib.request.Request(
            f"{url}/v1/search", b'{"query": "sea"}', method="POST"
        )
        with urllib.request.urlopen(search) as response:
            assert len(json.load(response)["passages"]) == 1
        body = b'{"instances": ["a"]}'
        with socket.create_connection((host, int(port)), 30) as connection:
            connection.sendall(
                b"POST /v1/models/mood:predict HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body) + body
            )
            end = time.monotonic() + 30
            while (
                b"waiting_requests 1"
                not in urllib.request.urlopen(f"{url}/metrics").read()
            ):
                assert time.monotonic() < end
            process.send_signal(signal.SIGTERM)
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 200")
        assert b'"predictions"' in answer
        assert process.wait(30) == 0
        loading = f"Loading {export_dir} and {index_dir} ...\n"
        assert process.stderr.read() == loading


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("127.0.0.2", ["localhost", "127.0.0.1", "[::1]", "127.0.0.2"]),
        ("0.0.0.0", ["*"]),
    ],
)
def test_pages_elsewhere_do_not_reach_a_loopback_address(
    tmp_path, monkeypatch, address, hosts
):
    def refuse(*arguments):
        raise UserError(f"allowed: {arguments[-1]}")

    monkeypatch.setattr(application, "make_server", refuse)
    index = f"--index_dir={written_index(tmp_path)}"
    done = run_program("serve", index, f"--host={address}", "--port=0")
    assert done.error == f"serve: allowed: {hosts}"


def test_connections_of_vanished_clients_end():
    def main():
        with serve._bound() as listener:
            for level, option in (
                (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            ):
                print(listener.getsockopt(level, option))

    assert run_program("serve", "--port=0", main=main).stdout == "1\n60\n"


@pytest.mark.parametrize("early", [True, False])
def test_a_port_in_use_is_one_line(export_dir, monkeypatch, early):
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        if early:
            other.listen()
        # Else while the model is loaded.
        monkeypatch.setattr(application, "warm_up", lambda _: other.listen())
        port = other.getsockname()[1]
        done = run_program(
            "serve", f"--export_dir={export_dir}", f"--port={port}"
        )
    assert f"port={port}: Address already in use; name another" in done.error
    assert done.stderr.startswith(f"Loading {export_dir} ...\n") != early


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--host=127..1", "host=127..1, port=8501: encoding with 'idna'"),
        ("--model_name=a/b", "model_name=a/b: expected a part of a path"),
    ],
)
def test_names_that_are_none(tmp_path, flag, message):
    done = run_program("serve", f"--export_dir={tmp_path}", flag)
    assert message in done.error


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "Give what is to be served: --export_dir, --index_dir, or both."),
        (
            ["--export_dir=a", "--model_dir=b"],
            "--model_dir=b is for --index_dir; a model is served from its",
        ),
    ],
)
def test_what_is_served_has_to_be_told(flags, message):
    assert message in run_program("serve", *flags).error


def test_a_missing_package_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette", None)
    done = run_program("serve", f"--export_dir={tmp_path}")
    assert done.error == (
        "serve: starlette is missing: pip install -r requirements-serve.txt."
    )

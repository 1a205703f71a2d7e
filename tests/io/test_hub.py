"""The Hugging Face hub, of which a local server is the stand-in."""

import os
import socket
import subprocess
import sys

import pytest
from hub_server import client_of

from albert_tf.config import UserError
from albert_tf.io import hub

NAME = "someone/small"
FILES = {
    "config.json": b"{}",
    "model.safetensors": b"weights" * 100,
    "pytorch_model.bin": b"a pickle",
}


@pytest.fixture(autouse=True)
def repository(server):
    return server.add(NAME, files=FILES)


def download(path=f"hf://{NAME}"):
    return hub.download(path, ["config.json", "model.safetensors"])


def read(directory, name="model.safetensors"):
    with open(os.path.join(directory, name), "rb") as file:
        return file.read()


def test_parse():
    assert hub.parse("hf://a/b") == hub.HubModel("a/b")
    assert hub.parse("hf://a/b/") == hub.HubModel("a/b")
    assert hub.parse("hf://a/b@v1.0") == hub.HubModel("a/b", "v1.0")
    assert hub.parse("hf://a/b@refs/pr/1").revision == "refs/pr/1"


@pytest.mark.parametrize(
    "path", ["hf://", "hf://albert-base-v2", "hf://a/b/c", "hf://a/b@"]
)
def test_what_is_no_name_is_refused(path):
    with pytest.raises(UserError, match="expected hf://owner/name or"):
        hub.parse(path)


def test_hint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "given as hf://albert/albert-base-v2." in hub.hint(
        "albert/albert-base-v2"
    )
    assert "hf://albert/albert-large-v1." in hub.hint("albert-large-v1")
    (tmp_path / "runs").mkdir()
    for path in ("runs/tiny", "/albert/base", "a/b/c", "base", "gs://a/b"):
        assert hub.hint(path) == ""


@pytest.mark.parametrize("end", ["", "/", "/tree/main"])
def test_the_address_of_a_page_is_no_name(end):
    page = f"https://huggingface.co/albert/albert-base-v2{end}"
    message = f"^{page} is the address of a page; the model is given as hf://a"
    with pytest.raises(UserError, match=message):
        hub.is_on_hub(page)


def test_only_the_files_asked_for_are_downloaded(server):
    directory = download()
    assert sorted(os.listdir(directory)) == ["config.json", "model.safetensors"]
    assert read(directory) == FILES["model.safetensors"]
    assert server.downloads() == ["config.json", "model.safetensors"]


def test_a_second_download_reads_the_cache(server):
    first = download()
    server.requests.clear()
    assert download() == first
    assert server.downloads() == []


def test_revisions(repository):
    old = repository.refs["main"]
    new = repository.commit(FILES | {"model.safetensors": b"newer"})
    repository.refs["refs/pr/1"] = repository.refs["v1"] = old
    assert read(download()) == b"newer"
    for revision in ("v1", "refs/pr/1", old):
        directory = download(f"hf://{NAME}@{revision}")
        assert os.path.basename(directory) == old
        assert read(directory) == FILES["model.safetensors"]
    assert os.path.basename(download(f"hf://{NAME}@{new}")) == new


def test_the_cache_serves_where_the_hub_does_not_answer(server, tmp_path):
    directory = download()
    with client_of(server.url, tmp_path / "cache", offline=True):
        assert download() == directory
    server.failing = 500
    assert download() == directory
    with client_of("http://127.0.0.1:9", tmp_path / "cache"):
        assert download() == directory


def test_a_token_opens_what_is_private(server, monkeypatch):
    server.token = "hf_right"
    server.add("me/mine", files=FILES, private=True)
    with pytest.raises(UserError, match="has no such model, or it is private"):
        download("hf://me/mine")
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert read(download("hf://me/mine")) == FILES["model.safetensors"]


def test_a_missing_model(server):
    with pytest.raises(UserError) as caught:
        download("hf://someone/other")
    assert str(caught.value) == (
        f"hf://someone/other: {server.url} has no such model, or it is "
        "private. Check the name; for a private one set HF_TOKEN to a token "
        "that may read it."
    )


def test_a_missing_revision(server):
    with pytest.raises(UserError, match="no branch, tag or commit v9 in http"):
        download(f"hf://{NAME}@v9")
    commit = "0" * 40
    with pytest.raises(UserError, match=f"branch, tag or commit {commit} in"):
        download(f"hf://{NAME}@{commit}")


def test_a_gated_model(server, repository):
    server.token = "hf_right"
    repository.gated = True
    with pytest.raises(
        UserError, match=f"ask for access at .*/{NAME}, and set"
    ):
        download()


def test_a_hub_that_is_out_of_order(server):
    server.failing = 500
    with pytest.raises(UserError, match=r"status 500 \(out of order\); try"):
        download()


def test_no_network(server, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        client_of(f"http://127.0.0.1:{port}", tmp_path / "cache"),
        pytest.raises(
            UserError, match="cannot be reached.*is not in the cache"
        ),
    ):
        download()


def test_offline_without_the_model(server, tmp_path):
    with (
        client_of(server.url, tmp_path / "empty", offline=True),
        pytest.raises(UserError, match="HF_HUB_OFFLINE=1 forbids") as caught,
    ):
        download()
    assert str(tmp_path / "empty") in str(caught.value)
    assert server.requests == []


def test_offline_with_a_part_of_the_model(server, tmp_path):
    hub.download(f"hf://{NAME}", ["config.json"])
    with (
        client_of(server.url, tmp_path / "cache", offline=True),
        pytest.raises(UserError, match="not, or not all of it, in the cache"),
    ):
        download()


def test_a_connection_that_breaks_is_taken_up(server):
    server.cuts = 2
    assert read(download()) == FILES["model.safetensors"]


def test_a_connection_that_keeps_breaking(server):
    server.cuts = 100
    with pytest.raises(UserError, match="the connection broke .* continues"):
        download()
    server.cuts = 0
    assert read(download()) == FILES["model.safetensors"]


def test_a_full_disk_keeps_its_error(server, monkeypatch):
    import huggingface_hub

    def full(*_, **__):
        raise OSError(28, "No space left on device", "blob")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", full)
    with pytest.raises(OSError, match="No space left"):
        download()


def test_a_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError) as caught:
        download()
    assert str(caught.value) == (
        "hf://someone/small needs the package huggingface_hub: pip install "
        "huggingface_hub (requirements-hub.txt)."
    )


def test_the_environment_of_huggingface_hub(server, tmp_path):
    program = (
        "from albert_tf.io import hub; "
        f"print(hub.download('hf://{NAME}', ['config.json']))"
    )

    def run(**variables):
        variables |= {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | variables,
            capture_output=True,
            text=True,
        )
        # No progress bars in logs.
        assert done.stderr == ""
        return done.stdout.strip()

    server.token = "hf_right"
    server.repositories[NAME].private = True
    directory = run(HF_TOKEN="hf_right")
    assert directory.startswith(str(tmp_path / "hub"))
    assert read(directory, "config.json") == FILES["config.json"]
    server.requests.clear()
    assert run(HF_HUB_OFFLINE="1") == directory
    assert server.requests == []

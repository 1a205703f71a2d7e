"""A local server that speaks the protocol of the Hugging Face hub.

As much of it as huggingface_hub needs to download and upload models. Large
files are redirected to another path, as the hub does to its storage.
"""

import base64
import contextlib
import hashlib
import json
import re
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock

import pytest

# Files of these endings are large ones, whatever their size.
_LARGE = (".safetensors", ".model", ".bin", ".onnx", ".tflite")
_REPOSITORY = r"(?P<repo>[\w.-]+/[\w.-]+)"
_ROUTES = [
    ("GET", rf"/api/models/{_REPOSITORY}(?:/revision/(?P<rev>[^/]+))?", "info"),
    (
        "GET",
        rf"/api/models/{_REPOSITORY}/tree/(?P<rev>[^/]+)(?P<path>/.+)?",
        "tree",
    ),
    ("*", rf"/{_REPOSITORY}/resolve/(?P<rev>[^/]+)/(?P<name>.+)", "resolve"),
    ("*", r"/storage/(?P<oid>\w+)", "storage"),
    ("POST", r"/api/repos/create", "create"),
    ("POST", r"/api/validate-yaml", "validate"),
    (
        "POST",
        rf"/api/models/{_REPOSITORY}/preupload/(?P<rev>[^/]+)",
        "preupload",
    ),
    ("POST", rf"/{_REPOSITORY}\.git/info/lfs/objects/batch", "batch"),
    ("POST", rf"/api/models/{_REPOSITORY}/commit/(?P<rev>[^/]+)", "commit"),
]


class Repository:
    """The commits of a repository: by hash, the content of each file."""

    def __init__(self, files, private=False):
        self.private = private
        self.gated = False
        self.commits = {}
        self.refs = {}
        self.messages = []
        self.commit(files)

    def commit(self, files, message="initial", revision="main"):
        """Adds a commit; returns its hash."""
        text = f"{len(self.commits)} {sorted(files)}"
        commit = hashlib.sha1(text.encode()).hexdigest()
        self.commits[commit] = dict(files)
        self.refs[revision] = commit
        self.messages.append(message)
        return commit

    def files(self, revision="main"):
        """Returns the files of a revision by name."""
        return self.commits[self.refs.get(revision, revision)]


class Hub:
    """The state of the server, which tests change and look at.

    Attributes:
        repositories: by `owner/name`.
        requests: every request as (method, path).
        tokens: those that were sent.
        url: its address.
        token: if given, what private repositories and uploads need.
        failing: the status of every answer, unless it is 0.
        cuts: number of downloads that will end in the middle.
    """

    def __init__(self):
        self.repositories = {}
        self.requests = []
        self.tokens = set()
        self.url = self.token = ""
        self.failing = 0
        self.cuts = 0
        self.stored = {}

    def add(self, name, directory=None, files=None, **options):
        """Adds a repository with the files of a directory."""
        found = dict(files or {})
        if directory:
            paths = [p for p in directory.iterdir() if p.is_file()]
            found |= {path.name: path.read_bytes() for path in paths}
        repository = Repository(found, **options)
        self.repositories[name] = repository
        return repository

    def downloads(self):
        """Returns the names of the files that were downloaded, sorted."""
        found = [re.search(r"/resolve/[^/]+/(.+)", p) for _, p in self.requests]
        return sorted({match[1] for match in found if match})


class _Refusal(Exception):
    """An answer that is an error: status, code and message of the hub."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def _handle(self):
        hub = self.server.hub
        # A slash in a revision is quoted.
        path = self.path.partition("?")[0]
        hub.requests.append((self.command, path))
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.token = token
        if token:
            hub.tokens.add(token)
        try:
            if hub.failing:
                raise _Refusal(hub.failing, "", "out of order")
            for method, pattern, action in _ROUTES:
                found = re.fullmatch(pattern, path)
                if found and method in ("*", self.command):
                    parts = {
                        name: value and urllib.parse.unquote(value)
                        for name, value in found.groupdict().items()
                    }
                    getattr(self, f"_{action}")(**parts)
                    return
            raise _Refusal(404, "", f"no route {path}")
        except _Refusal as refusal:
            status, code, message = refusal.args
            headers = {"X-Error-Code": code, "X-Error-Message": message}
            self._send(status, b"{}", {k: v for k, v in headers.items() if v})

    do_GET = do_HEAD = do_POST = do_PUT = _handle

    def _send(self, status, content=b"", headers=(), size=None):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(size or len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _json(self, value):
        content = json.dumps(value).encode()
        self._send(200, content, {"Content-Type": "application/json"})

    def _repository(self, repo, write=False):
        hub = self.server.hub
        allowed = not hub.token or self.token == hub.token
        found = hub.repositories.get(repo)
        if found is None or (found.private and not allowed):
            raise _Refusal(404, "RepoNotFound", "Repository not found")
        if found.gated and not allowed:
            raise _Refusal(403, "GatedRepo", "Access is restricted")
        if write and not allowed:
            raise _Refusal(403, "", "Forbidden")
        return found

    def _commit_of(self, repository, revision):
        revision = revision or "main"
        commit = repository.refs.get(revision, revision)
        if commit not in repository.commits:
            raise _Refusal(404, "RevisionNotFound", "Invalid rev id")
        return commit

    def _info(self, repo, rev=None):
        repository = self._repository(repo)
        commit = self._commit_of(repository, rev)
        names = sorted(repository.commits[commit])
        self._json(
            {
                "id": repo,
                "modelId": repo,
                "sha": commit,
                "private": repository.private,
                "siblings": [{"rfilename": name} for name in names],
                "tags": [],
            }
        )

    def _tree(self, repo, rev, path):
        repository = self._repository(repo)
        if path:
            raise _Refusal(404, "EntryNotFound", f"{path} does not exist")
        files = repository.commits[self._commit_of(repository, rev)]
        entries = []
        for name, content in sorted(files.items()):
            entry = {"type": "file", "path": name, "size": len(content)}
            entry["oid"] = hashlib.sha1(content).hexdigest()
            if name.endswith(_LARGE):
                oid = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"oid": oid, "size": len(content)}
                entry["lfs"]["pointerSize"] = 130
            entries.append(entry)
        self._json(entries)

    def _resolve(self, repo, rev, name):
        repository = self._repository(repo)
        commit = self._commit_of(repository, rev)
        headers = {"X-Repo-Commit": commit}
        content = repository.commits[commit].get(name)
        if content is None:
            raise _Refusal(404, "EntryNotFound", "Entry not found")
        if name.endswith(_LARGE):
            oid = hashlib.sha256(content).hexdigest()
            self.server.hub.stored[oid] = content
            headers |= {
                "Location": f"{self.server.storage}/storage/{oid}",
                "X-Linked-Etag": f'"{oid}"',
                "X-Linked-Size": str(len(content)),
            }
            self._send(302, b"", headers)
            return
        headers["ETag"] = f'"{hashlib.sha1(content).hexdigest()}"'
        self._send(200, content, headers)

    def _storage(self, oid):
        hub = self.server.hub
        assert not self.token
        if self.command == "PUT":
            assert hashlib.sha256(self.body).hexdigest() == oid
            hub.stored[oid] = self.body
            self._send(200)
            return
        content, begin = hub.stored[oid], 0
        if found := re.match(r"bytes=(\d+)-", self.headers.get("Range", "")):
            begin = int(found[1])
        part = content[begin:]
        if self.command == "GET" and hub.cuts:
            hub.cuts -= 1
            self._send(200, part[: len(part) // 2], size=len(part))
            self.close_connection = True
            return
        size = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        self._send(206 if begin else 200, part, {"Content-Range": size})

    def _create(self):
        asked, hub = json.loads(self.body), self.server.hub
        if hub.token and self.token != hub.token:
            raise _Refusal(401, "", "Invalid username or password.")
        name = f"{asked['organization']}/{asked['name']}"
        if name in hub.repositories:
            answer = {"error": "exists", "url": f"{self.server.url}/{name}"}
            self._send(409, json.dumps(answer).encode())
            return
        private = asked.get("visibility") == "private"
        hub.add(name, files={".gitattributes": b""}, private=private)
        self._json({"url": f"{self.server.url}/{name}", "name": name})

    def _validate(self):
        self._json({"warnings": [], "errors": []})

    def _preupload(self, repo, rev):
        self._commit_of(self._repository(repo, write=True), rev)
        names = [file["path"] for file in json.loads(self.body)["files"]]
        self._json(
            {
                "files": [
                    {
                        "path": name,
                        "uploadMode": "lfs"
                        if name.endswith(_LARGE)
                        else "regular",
                        "shouldIgnore": False,
                    }
                    for name in names
                ]
            }
        )

    def _batch(self, repo):
        self._repository(repo, write=True)
        objects = [
            {
                "oid": asked["oid"],
                "size": asked["size"],
                "actions": {
                    "upload": {
                        "href": (
                            f"{self.server.storage}/storage/{asked['oid']}"
                        )
                    }
                },
            }
            for asked in json.loads(self.body)["objects"]
        ]
        self._json({"transfer": "basic", "objects": objects})

    def _commit(self, repo, rev):
        repository = self._repository(repo, write=True)
        parent = self._commit_of(repository, rev)
        files = dict(repository.commits[parent])
        header, *lines = map(json.loads, self.body.splitlines())
        if header["value"].get("parentCommit", parent) != parent:
            raise _Refusal(412, "", "A commit has happened since")
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.hub.stored[value["oid"]]
            else:
                del files[value["path"]]
        message = header["value"]["summary"]
        commit = repository.commit(files, message, rev)
        url = f"{self.server.url}/{repo}/commit/{commit}"
        self._json({"commitUrl": url, "commitOid": commit})


@contextlib.contextmanager
def serving():
    """Yields a Hub and its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.hub = Hub()
    server.url = f"http://127.0.0.1:{server.server_port}"
    # Another host, as for the client, which must not send it the token.
    server.storage = f"http://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.hub, server.url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def client_of(url, cache, *, offline=False):
    """Lets huggingface_hub, which reads its environment once, use a server."""
    values = {
        "ENDPOINT": url,
        "HUGGINGFACE_CO_URL_TEMPLATE": (
            f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        ),
        "HF_HUB_CACHE": str(cache),
        "HF_HUB_OFFLINE": offline,
        "HF_HUB_DISABLE_XET": True,
    }
    with mock.patch.multiple("huggingface_hub.constants", **values):
        yield


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A Hub, empty and with its address, which huggingface_hub talks to."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    # The pauses before further tries.
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with serving() as (hub, url), client_of(url, tmp_path / "cache"):
        hub.url = url
        yield hub

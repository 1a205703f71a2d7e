"""The server over HTTP, with an export and with a model under control."""

import base64
import contextlib
import gzip
import json
import re
import shutil
import socket
import subprocess
import threading
from unittest import mock

import numpy as np
import pytest
from running_server import StubModel, serving

from albert_tf.config import UserError
from albert_tf.interchange.export import exported_model
from albert_tf.interchange.export.exported_model import ExportedModel
from albert_tf.search.index import Index
from albert_tf.search.index_writer import write_index
from albert_tf.serving import rest_json
from albert_tf.serving.search_json import search_response
from data_prep.passages import Passage


@pytest.fixture(scope="module")
def model(export_dir):
    return ExportedModel(export_dir)


@pytest.fixture(scope="module")
def client(model):
    with serving(model, max_request_bytes=100_000) as client:
        yield client


@pytest.fixture
def stub():
    model = StubModel()
    yield model
    model.go.set()


@pytest.fixture
def index(tmp_path):
    passages = [
        Passage("a.txt", 1, "The sea is deep."),
        Passage("b.txt#2", 3, "Mountains are high."),
    ]
    path = str(tmp_path / "index & all")
    write_index(
        path, passages, lambda texts: np.ones([len(texts), 2]), model={}
    )
    return Index.open(path)


TEXTS = ["The bada of gule.", "ÉLÈVE à l'École"]


def test_rows_and_columns_answer_as_the_model(client, model):
    want = model.call("text", {"text": TEXTS})
    labels = [label.decode() for label in want["label"]]
    status, columns = client.predict(
        {"signature_name": "text", "inputs": {"text": TEXTS}}
    )
    assert status == 200
    assert columns["outputs"]["label"] == labels
    np.testing.assert_allclose(
        columns["outputs"]["probabilities"], want["probabilities"], rtol=1e-4
    )
    # The default is `text`; one input needs no name.
    _, rows = client.predict({"instances": TEXTS})
    assert [row["label"] for row in rows["predictions"]] == labels
    _, named = client.predict(
        {"instances": [{"text": text} for text in TEXTS]},
        "/versions/1:predict",
    )
    assert named == rows


def test_values_that_fit_are_not_formatted(model, monkeypatch):
    shown = mock.Mock(return_value="")
    for module in (rest_json, exported_model):
        monkeypatch.setattr(module, "shown", shown)
    ids = {name: [1] for name in model.signatures["tokens"].inputs}
    for body in (
        {"instances": ["A text."]},
        {"instances": [ids], "signature_name": "tokens"},
    ):
        rest_json.read_request(json.dumps(body).encode(), model)
    values = [call.args[0] for call in shown.call_args_list]
    assert "A text." not in values
    assert {type(value) for value in values} <= {str}


def test_base64_is_the_bytes_of_a_string(client):
    coded = {"b64": base64.b64encode(TEXTS[1].encode()).decode()}
    for fields in ({"instances": [coded]}, {"inputs": {"text": [coded]}}):
        status, answer = client.predict(fields)
        assert status == 200
    _, plain = client.predict({"inputs": [TEXTS[1]]})
    assert answer == plain


def test_status_and_metadata_are_those_of_tensorflow_serving(client):
    _, _, status = client.ask("GET", "/v1/models/mood/versions/1")
    assert status["model_version_status"][0]["state"] == "AVAILABLE"
    _, _, metadata = client.ask("GET", "/v1/models/mood/metadata")
    assert metadata["model_spec"] == {
        "name": "mood",
        "signature_name": "",
        "version": "1",
    }
    signatures = metadata["metadata"]["signature_def"]["signature_def"]
    text = signatures["text"]["inputs"]["text"]
    assert text["dtype"] == "DT_STRING"
    assert text["tensor_shape"]["dim"] == [{"size": "-1", "name": ""}]


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/v1/models/other", 404, "Servable not found for request: Latest(oth"),
        ("/v1/models/mood/versions/7", 404, "Specific(mood, 7)"),
        ("/v1/models/mood/labels/a", 400, "Malformed request: GET /v1/models"),
        ("/none", 404, "Malformed request: GET /none"),
    ],
)
def test_an_unknown_path_is_an_error_in_json(client, path, status, message):
    got, _, answer = client.ask("GET", path)
    assert got == status
    assert message in answer["error"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["", "/versions/1"])
def test_predictions_take_post_alone(client, method, path):
    path = f"/v1/models/mood{path}:predict"
    status, headers, answer = client.ask(method, path)
    assert (status, headers["Allow"]) == (405, "POST")
    message = f"Malformed request: {method} {path}; this path takes POST."
    assert answer == ("" if method == "HEAD" else {"error": message})


@pytest.mark.parametrize("path", ["", "/versions/1", "/metadata"])
def test_what_a_model_is_cannot_be_written(client, path):
    status, headers, answer = client.ask("POST", f"/v1/models/mood{path}", "{}")
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert "takes GET, HEAD." in answer["error"]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("action", ["mood:classify", "other:predict"])
def test_a_path_that_is_not_there_has_no_method(client, method, action):
    status, _, answer = client.ask(method, f"/v1/models/{action}", "{}")
    assert status == 404
    assert "Servable not found for request: Latest(" in answer["error"]


def test_an_example_at_fault_is_named_by_its_row(client):
    records = [{"b64": base64.b64encode(b"junk").decode()}]
    fields = {"signature_name": "examples", "instances": records}
    assert client.predict(fields) == (
        400,
        {
            "error": "The model refuses its input: Expected a serialized "
            "tf.Example with 1 to max_position_embeddings=24 input_ids but row "
            "0 has 0."
        },
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not valid JSON"),
        (
            b'{"instances": ' + b"[" * 20 + b"]" * 20 + b"}",
            "more than 16 level",
        ),
        ({}, "either 'instances' (rows) or 'inputs' (columns)"),
        ({"instances": ["a"], "signature": "text"}, "got 'signature'"),
        ({"instances": ["a"], "signature_name": 3}, "a string as signature"),
        ({"instances": ["a"], "signature_name": 0}, "a string as signature"),
        ({"instances": ["a"], "signature_name": []}, "a string as signature"),
        ({"instances": "a"}, "at least one row as instances, got 'a'"),
        (
            {"instances": [{"txt": "a"}]},
            "instances[0]: expected the inputs tex",
        ),
        ({"instances": [{"b64": "é"}]}, "Expected Base64 as b64, got 'é'"),
        ({"inputs": {"text": []}}, "Expected 1 to max_batch_size=32 rows"),
        ({"instances": ["a"] * 33}, "(each choice is one), got 33."),
        (
            {"instances": ["a"], "signature_name": "text_pair"},
            "an object with the inputs text, text_pair, got 'a'",
        ),
    ],
)
def test_a_malformed_request_is_an_error_in_json(client, body, message):
    status, answer = client.predict(body)
    assert (status, list(answer)) == (400, ["error"])
    assert message in answer["error"]
    assert "\n" not in answer["error"]


def test_a_request_above_the_limit_gets_413(client):
    status, answer = client.predict({"instances": ["a" * 100_000]})
    assert status == 413
    assert "more than 100000 bytes" in answer["error"]


def test_a_compressed_request_gets_415(client):
    body = gzip.compress(b'{"instances": ["a"]}')
    status, _, answer = client.ask(
        "POST",
        f"/v1/models/{client.name}:predict",
        body,
        [("Content-Encoding", "gzip")],
    )
    message = "Content-Encoding: gzip is not read; send the body as it is."
    assert (status, answer) == (415, {"error": message})


def test_a_bug_is_an_error_without_its_text(stub):
    with serving(stub) as client:
        assert client.predict({"instances": ["bug"]}) == (
            500,
            {"error": "The server has failed."},
        )
        assert client.predict({"instances": ["a"]})[0] == 200


def test_a_bug_leaves_room_for_the_next_request(stub):
    with serving(stub, max_pending_requests=1) as client:
        assert client.predict({"instances": ["bug"]})[0] == 500
        assert client.predict({"instances": ["a"]})[0] == 200


def test_refused_requests_are_counted_by_their_status(stub):
    with serving(stub) as client:
        client.predict({"instances": ["bad"]})
        labels = '{code="400",signature="serving_default"}'
        assert client.metric(f"albert_requests_total{labels}") == 1


def waiting_with(client, stub, *bodies):
    """Returns answers of requests that waited for the same call."""
    first = client.in_thread({"instances": ["wait"]})
    assert stub.started.wait(30)
    others = [client.in_thread(body) for body in bodies]
    client.wait_for_metric("albert_waiting_requests", len(bodies))
    stub.go.set()
    assert first() == (200, {"predictions": [4]})
    return [other() for other in others]


def test_waiting_requests_are_one_batch(stub):
    with serving(stub, max_batch_size=3) as client:
        bodies = [{"instances": ["a" * n]} for n in range(1, 5)]
        answers = waiting_with(client, stub, *bodies)
        assert answers == [(200, {"predictions": [n]}) for n in range(1, 5)]
        assert [len(batch) for batch in stub.batches] == [1, 3, 1]
        signature = 'signature="serving_default"}'
        for name in ("batch_rows_sum{", 'requests_total{code="200",'):
            assert client.metric(f"albert_{name}{signature}") == 5


def test_a_refused_request_does_not_fail_its_batch(stub):
    with serving(stub) as client:
        texts = ["a", "bad", "aaa", "aa"]
        answers = waiting_with(
            client, stub, *({"instances": [text]} for text in texts)
        )
    assert answers[1] == (400, {"error": "bad is refused."})
    assert [answers[n] for n in (0, 2, 3)] == [
        (200, {"predictions": [n]}) for n in (1, 3, 2)
    ]
    assert sorted(stub.batches[1]) == sorted(texts)


def test_padding_for_other_requests_is_removed(stub):
    with serving(stub) as client:
        fields = {"signature_name": "words"}
        answers = waiting_with(
            client,
            stub,
            fields | {"instances": ["a b c d"]},
            fields | {"instances": ["a", "a b"]},
        )
    assert len(stub.batches) == 2
    assert answers[0][1] == {"predictions": [["a", "b", "c", "d"]]}
    assert answers[1][1] == {"predictions": [["a", ""], ["a", "b"]]}


def test_examples_of_unknown_length_do_not_share_a_batch(stub):
    with serving(stub) as client:
        answers = waiting_with(
            client,
            stub,
            {"signature_name": "examples", "instances": ["a b c d"]},
            {"signature_name": "examples", "instances": ["a", "a b"]},
        )
    assert len(stub.batches) == 3
    assert answers[0][1] == {"predictions": [["a", "b", "c", "d"]]}
    assert answers[1][1] == {"predictions": [["a", ""], ["a", "b"]]}


def test_examples_of_unknown_length_wait_for_no_others(stub):
    with serving(stub, batch_timeout_micros=2_000_000) as client:
        other = client.in_thread({"instances": ["a"]})
        client.wait_for_metric("albert_waiting_requests", 1)
        client.predict({"signature_name": "examples", "instances": ["b c"]})
        assert stub.batches == [["b c"]]
        assert other() == (200, {"predictions": [1]})


def test_every_choice_of_ids_counts_as_a_row(stub):
    with serving(stub, max_batch_size=3) as client:
        for number, status in ((3, 200), (4, 400)):
            inputs = {"input_ids": [[[1, 2, 3, 4, 5]] * number]}
            body = {"signature_name": "tokens", "inputs": inputs}
            assert client.predict(body)[0] == status


def test_every_choice_counts_as_a_row(stub):
    with serving(stub, max_batch_size=3) as client:
        for number, status in ((3, 200), (4, 400), (0, 400)):
            inputs = {"text": ["a"], "choices": [["b"] * number]}
            got, answer = client.predict(
                {"signature_name": "choices", "inputs": inputs}
            )
            assert got == status
    assert "Expected 1 to max_batch_size=3 rows" in answer["error"]


def test_more_connections_than_allowed_get_503(stub):
    with (
        serving(stub, max_connections=1) as client,
        contextlib.closing(client.connect()) as connection,
    ):
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        assert client.ask("GET", "/healthz")[0] == 503


def test_a_full_server_answers_503_and_is_not_ready(stub):
    with serving(stub, max_pending_requests=1) as client:
        assert client.ask("GET", "/healthz/ready")[0] == 200
        first = client.in_thread({"instances": ["wait"]})
        assert stub.started.wait(30)
        path = "/v1/models/stub:predict"
        status, headers, answer = client.ask("POST", path, '{"inputs": ["a"]}')
        assert (status, headers["Retry-After"]) == (503, "1")
        assert "max_pending_requests" in answer["error"]
        assert client.ask("GET", "/healthz/ready")[0] == 503
        status, _, answer = client.ask("GET", "/healthz")
        assert (status, answer) == (200, {"live": True, "ready": False})
        stub.go.set()
        assert first()[0] == 200


def test_a_request_that_waits_too_long_gets_504(stub):
    with serving(stub, timeout_seconds=0.2) as client:
        first = client.in_thread({"instances": ["wait"]})
        assert stub.started.wait(30)
        status, answer = client.predict({"instances": ["late"]})
        assert (status, first()[0]) == (504, 504)
        assert answer["error"] == "No answer within timeout_seconds=0.2."
        stub.go.set()
        assert client.predict({"instances": ["a"]})[0] == 200
    # The late one did not cost a batch.
    assert stub.batches == [["wait"], ["a"]]


def send(client, head, body=b""):
    """Returns a socket with a part of a request sent."""
    connection = socket.create_connection(("127.0.0.1", client.port), 30)
    connection.sendall(
        b"POST /v1/models/stub:predict HTTP/1.1\r\nHost: a\r\n"
        + head
        + b"\r\n\r\n"
        + body
    )
    return connection


def test_a_body_that_does_not_come_gets_408(stub):
    with serving(stub, timeout_seconds=0.2) as client:
        with send(client, b"Content-Length: 20", b'{"ins') as connection:
            assert connection.recv(20).startswith(b"HTTP/1.1 408")
        assert client.metric("albert_pending_requests") == 0


def test_a_client_that_has_gone_costs_no_batch(stub):
    with serving(stub) as client:
        first = client.in_thread({"instances": ["wait"]})
        assert stub.started.wait(30)
        body = json.dumps({"instances": ["gone"]}).encode()
        connection = send(client, b"Content-Length: %d" % len(body), body)
        client.wait_for_metric("albert_waiting_requests", 1)
        connection.close()
        client.wait_for_metric("albert_waiting_requests", 0)
        stub.go.set()
        assert first()[0] == 200
        assert client.predict({"instances": ["a"]})[0] == 200
        assert client.metric(
            'albert_requests_total{code="499",signature="serving_default"}'
        )
    assert stub.batches == [["wait"], ["a"]]


def test_the_page_loads_nothing_from_elsewhere(client):
    status, headers, page = client.ask("GET", "/")
    assert status == 200
    assert '<h1 id="model">mood</h1>' in page
    assert headers["Content-Security-Policy"].startswith("default-src 'none';")
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert not re.findall(r"https?://|innerHTML|document\.write|\bsrc=", page)


def test_other_hosts_than_allowed_are_refused(stub):
    hosts = "localhost", "[::1]"
    with serving(stub, hosts=hosts) as client:
        for host, status in (
            ("localhost:8501", 200),
            ("[::1]:8501", 200),
            ("rebound.example:8501", 400),
        ):
            with contextlib.closing(client.connect()) as connection:
                connection.request("GET", "/", headers={"Host": host})
                assert connection.getresponse().status == status


def evaluated(client, code):
    """Returns the output of code in the scope of the page's script."""
    # No other part of the project needs node, and pip does not install it.
    if not (node := shutil.which("node")):
        pytest.skip("the page's script needs node")
    (script,) = re.findall(
        "<script>(.*)</script>", client.ask("GET", "/")[2], re.DOTALL
    )
    # A page without parts.
    empty = '() => ({ textContent: "" })'
    script = f"const document = {{ getElementById: {empty} }};{script}{code}"
    return subprocess.check_output([node, "-"], input=script, text=True)


def test_the_page_rounds_fractions_alone(client):
    code = "console.log(shown([12345, 0.123456]))"
    assert evaluated(client, code) == "12345, 0.1235\n"


def test_the_page_asks_again_when_it_has_an_answer(client):
    code = """
const button = { disabled: false };
let submit, fail;
const form = { addEventListener: (_, listener) => { submit = listener; } };
const parts = { button, form, "[role=alert]": {} };
show(
  { querySelector: (name) => parts[name] },
  () => new Promise((_, reject) => { fail = reject; }),
);
submit({ preventDefault() {} });
console.log(button.disabled);
fail(new Error("no answer"));
setTimeout(() => console.log(button.disabled));
"""
    assert evaluated(client, code) == "true\nfalse\n"


def test_the_page_escapes_the_name_of_the_model(stub):
    stub.name = "<script>a"
    with serving(stub) as client:
        assert "<h1 id=\"model\">&lt;script&gt;a</h1>" in client.ask(
            "GET", "/"
        )[2]  # fmt: skip


def test_a_question_gets_the_passages_that_have_its_words(index):
    with serving(None, index) as client:
        asked = json.dumps({"query": "How high?", "top_k": 1})
        status, _, answer = client.ask("POST", "/v1/search", asked)
        assert client.metric(
            'albert_requests_total{code="200",signature="search"}'
        )
    assert (status, answer["query"]) == (200, "How high?")
    (passage,) = answer["passages"]
    assert passage.pop("score") > 0
    assert passage == {
        "document": "b.txt#2",
        "place": 3,
        "text": "Mountains are high.",
    }


def test_long_searches_leave_threads_to_predictions(tmp_path, stub):
    go = threading.Event()

    def embed(texts):
        assert go.wait(30)
        return np.ones([len(texts), 2])

    path = str(tmp_path / "index")
    write_index(
        path, [Passage("a", 1, "a")], lambda _: np.ones([1, 2]), model={}
    )
    asked = json.dumps({"query": "a", "ranking": "embedding"})
    with serving(stub, Index.open(path, {}, embed)) as client:
        # More than asyncio has threads.
        searches = [
            threading.Thread(
                target=client.ask, args=("POST", "/v1/search", asked)
            )
            for _ in range(40)
        ]
        for search in searches:
            search.start()
        client.wait_for_metric("albert_pending_requests", 40)
        try:
            assert client.predict({"instances": ["a"]})[0] == 200
        finally:
            go.set()
        for search in searches:
            search.join(30)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"query": " "}, "Expected a question as query, got ' '."),
        ({"query": 10_001 * "a"}, "at most 10000 characters as query, got "),
        ({"query": "a", "top_k": 0}, "from 1 to 100 as top_k, got 0."),
        ({"query": "a", "k": 1}, "the keys query, top_k, ranking; got 'k'."),
        # It needs the index's model.
        ({"query": "a", "ranking": "hybrid"}, "is not one of tfidf, bm25."),
    ],
)
def test_what_is_no_search_is_an_error_in_json(index, asked, message):
    with pytest.raises(UserError, match=re.escape(message)):
        search_response(json.dumps(asked).encode(), index)


def test_the_longest_question_is_answered(index):
    asked = json.dumps({"query": 10_000 * "a"}).encode()
    assert json.loads(search_response(asked, index))["passages"] == []


def test_the_page_has_the_parts_of_what_is_served(index, stub):
    with serving(stub, index) as client:
        _, _, page = client.ask("GET", "/")
    assert '<h1 id="model">stub</h1>' in page
    assert '<span id="index">index &amp; all</span>' in page
    assert "<option selected>tfidf</option><option>bm25</option>" in page
    with serving(stub) as client:
        assert '<span id="index"></span>' in client.ask("GET", "/")[2]

"""JSON of searches in an index: requests and responses."""

import json

from albert_tf.config import require, shown
from albert_tf.search.index import DEFAULT_RANKING, DEFAULT_TOP_K, Index, answer
from albert_tf.serving.rest_json import request_fields

# The most passages in a response.
_MAX_TOP_K = 100
# A model reads the whole question, so that a longer one would take seconds.
_MAX_QUERY_CHARACTERS = 10_000


def search_response(body: bytes, index: Index) -> bytes:
    """Returns the JSON of the best passages for a request's question.

    Raises:
        UserError: for what is no request for the index.
    """
    fields = request_fields(body, "query", "top_k", "ranking")
    query = fields.get("query", "")
    require(
        isinstance(query, str) and bool(query.strip()),
        f"Expected a question as query, got {shown(query)}.",
    )
    require(
        len(query) <= _MAX_QUERY_CHARACTERS,
        f"Expected at most {_MAX_QUERY_CHARACTERS} characters as query, got "
        f"{len(query)}.",
    )
    top_k = fields.get("top_k", DEFAULT_TOP_K)
    require(
        type(top_k) is int and 1 <= top_k <= _MAX_TOP_K,
        f"Expected a whole number from 1 to {_MAX_TOP_K} as top_k, got "
        f"{shown(top_k)}.",
    )
    ranking = fields.get("ranking", DEFAULT_RANKING)
    (hits,) = index.search([query], top_k, ranking)
    return json.dumps(answer(query, hits)).encode()

"""JSON of TensorFlow Serving's REST interface: requests and responses."""

import base64
import binascii
import json
from typing import Any

import numpy as np
from google.protobuf import json_format

from albert_tf.config import UserError, lookup, require, shown
from albert_tf.interchange.export.exported_model import ExportedModel
from albert_tf.io.json_files import parse_json

# Axes of an input and the objects around it; the interpreter's stack allows
# more.
_MAX_DEPTH = 16


def request_fields(body: bytes, *known: str) -> dict[str, Any]:
    """Returns the object in a request; raises UserError for other keys."""
    fields = parse_json(body, "The request")
    unknown = ", ".join(shown(name) for name in fields if name not in known)
    require(
        not unknown, f"Expected the keys {', '.join(known)}; got {unknown}."
    )
    return fields


def read_request(
    body: bytes, model: ExportedModel
) -> tuple[str, dict[str, np.ndarray], bool]:
    """Returns the signature, its checked inputs, and whether rows are returned.

    Raises:
        UserError: for what is no request for the model.
    """
    fields = request_fields(body, "signature_name", "instances", "inputs")
    by_row = "instances" in fields
    require(
        by_row != ("inputs" in fields),
        "Expected either 'instances' (rows) or 'inputs' (columns).",
    )
    signature = fields.get("signature_name")
    if signature in (None, ""):
        signature = "serving_default"
    require(
        isinstance(signature, str),
        f"Expected a string as signature_name, got {shown(signature)}.",
    )
    names = list(lookup(model.signatures, signature, "signature_name").inputs)
    if by_row:
        inputs = _columns(_decoded(fields["instances"]), names)
    else:
        inputs = _decoded(fields["inputs"])
        if not isinstance(inputs, dict):
            inputs = _single(names, inputs)
    return signature, model.checked_inputs(signature, inputs), by_row


def _single(names: list[str], value: Any) -> dict[str, Any]:
    # shown() formats the whole value: only where it is wrong.
    if len(names) != 1:
        raise UserError(
            f"Expected an object with the inputs {', '.join(names)}, got "
            f"{shown(value)}."
        )
    return {names[0]: value}


def _columns(instances: Any, names: list[str]) -> dict[str, list]:
    """Returns the values of each input in a list of rows."""
    if not (isinstance(instances, list) and instances):
        raise UserError(
            "Expected a list of at least one row as instances, got "
            f"{shown(instances)}."
        )
    rows = [
        row if isinstance(row, dict) else _single(names, row)
        for row in instances
    ]
    for number, row in enumerate(rows):
        require(
            row.keys() == set(names),
            f"instances[{number}]: expected the inputs {', '.join(names)}, "
            f"got {shown(', '.join(row) or 'none')}.",
        )
    return {name: [row[name] for row in rows] for name in names}


def _decoded(value: Any, depth: int = 0) -> Any:
    """Returns a value with {"b64": ...} replaced by the decoded bytes."""
    require(
        depth < _MAX_DEPTH,
        f"The request is nested in more than {_MAX_DEPTH} levels.",
    )
    if isinstance(value, list):
        return [_decoded(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != {"b64"}:
        return {n: _decoded(item, depth + 1) for n, item in value.items()}
    try:
        return base64.b64decode(value["b64"], validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise UserError(
            f"Expected Base64 as b64, got {shown(value['b64'])}."
        ) from None


def write_response(outputs: dict[str, np.ndarray], by_row: bool) -> bytes:
    """Returns the JSON of the outputs, as predictions by row or as columns."""
    columns = {
        name: _encoded(value.tolist(), name) for name, value in outputs.items()
    }
    found: Any = columns
    if len(columns) == 1:
        # A single output is not named.
        (found,) = columns.values()
    elif by_row:
        rows = zip(*columns.values(), strict=True)
        found = [dict(zip(columns, row, strict=True)) for row in rows]
    response = {"predictions" if by_row else "outputs": found}
    return json.dumps(response, ensure_ascii=False).encode()


def _encoded(value: Any, name: str) -> Any:
    if isinstance(value, list):
        return [_encoded(item, name) for item in value]
    if not isinstance(value, bytes):
        return value
    # TensorFlow Serving too knows by the name that an output is no text.
    if name.endswith("_bytes"):
        return {"b64": base64.b64encode(value).decode()}
    return value.decode(errors="replace")


def model_status(model: ExportedModel) -> dict[str, Any]:
    """Returns the response to GET /v1/models/<name>."""
    return {
        "model_version_status": [
            {
                "version": str(model.version),
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }


def model_metadata(model: ExportedModel, name: str) -> dict[str, Any]:
    """Returns the response to GET /v1/models/<name>/metadata."""
    definitions = {
        signature: json_format.MessageToDict(
            described.definition,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )
        for signature, described in model.signatures.items()
    }
    return {
        "model_spec": {
            "name": name,
            "signature_name": "",
            "version": str(model.version),
        },
        "metadata": {"signature_def": {"signature_def": definitions}},
    }

"""Inspection of SavedModels."""

import os

from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.framework import op_def_registry


def operations(directory):
    """Returns the operations of a SavedModel."""
    saved = SavedModel()
    with open(os.path.join(directory, "saved_model.pb"), "rb") as file:
        saved.ParseFromString(file.read())
    graph = saved.meta_graphs[0].graph_def
    found = {node.op for node in graph.node}
    for function in graph.library.function:
        found |= {node.op for node in function.node_def}
    return found - {f.signature.name for f in graph.library.function}


def foreign_operations(directory):
    """Returns the operations of a SavedModel that are not TensorFlow's own."""
    # TensorFlow Text registers operations too once it is imported.
    return {
        name
        for name in operations(directory)
        if op_def_registry.get(name) is None
        or ">" in name
        or name.startswith(("Sentencepiece", "Wordpiece", "NormalizeUTF8"))
    }

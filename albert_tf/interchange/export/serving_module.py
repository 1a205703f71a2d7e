"""ServingModule: a model with its tokenizer, and all its signatures.

Beside those of its heads for raw strings every model has `tokens`, `examples`
and `embed`.
"""

import tensorflow as tf

from albert_tf.interchange.export.exported_weights import (
    FloatWeights,
    Int8Weights,
)
from albert_tf.interchange.export.length_groups import MICRO_BATCH_TOKENS
from albert_tf.interchange.export.signatures import Signature
from albert_tf.interchange.export.text_signatures import TextSignatures
from albert_tf.interchange.export.token_signatures import TokenSignatures
from albert_tf.interchange.model_directory import LoadedModel


def _signatures(graph: TextSignatures) -> dict[str, Signature]:
    """Returns the model's signatures by name, `serving_default` first."""
    task, of_task = graph.loaded.task, None
    found: dict[str, Signature] = {}
    for head in graph.loaded.model.heads.values():
        signatures = head.signatures(graph)
        if signatures and not head.is_pretrained:
            of_task = of_task or head
        found |= signatures
    default = next(iter(found)) if of_task else "embed"
    found["embed"] = graph.vectors()
    if task and task.pairs and "text_pair" in found:
        default = "text_pair"
    found |= TokenSignatures(graph, of_task).signatures()
    return {"serving_default": found[default], **found}


class ServingModule(tf.Module):
    """A model with its tokenizer in the graph.

    Attributes:
        graph: the parts that the signatures are made of.
        described: the signatures by name, `serving_default` first.
        functions: their functions.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        weights: type[FloatWeights] | type[Int8Weights] = FloatWeights,
        micro_batch_tokens: int | None = MICRO_BATCH_TOKENS,
    ) -> None:
        super().__init__(name="albert")
        self.weights = weights(loaded.model.weights)
        self.graph = TextSignatures(loaded, self.weights, micro_batch_tokens)
        self.tokenizer = self.graph.tokenizer
        self.described = _signatures(self.graph)
        self.functions = {
            name: signature.function
            for name, signature in self.described.items()
        }

"""KerasHub presets: an encoder as `keras_hub.models.AlbertBackbone`.

keras_hub is optional and imported when asked for. Presets are read by
`modeling.weights.keras_hub_preset`, without it.
"""

import operator
import os
from collections.abc import Iterator

import keras
import numpy as np

from albert_tf.config import ModelConfig, UserError, require, shown
from albert_tf.interchange.google_tf1 import check_values
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.io import files
from albert_tf.modeling.models import AlbertModel
from albert_tf.modeling.weights.names import file_blocks, file_groups
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer

# The files that `save_preset` writes.
FILES = frozenset(
    (
        "README.md",
        "assets",
        "config.json",
        "metadata.json",
        "model.weights.h5",
        "preprocessor.json",
        "tokenizer.json",
    )
)

_README = """\
---
library_name: keras-hub
---

# An ALBERT encoder for KerasHub

`keras_hub.models.AlbertBackbone.from_preset(DIRECTORY)` opens it.

{}
"""

# (layer or variable of our encoder, of theirs), from the models down.
_TRUNK = (
    ("embeddings.word_embeddings", "token_embedding/embeddings"),
    ("embeddings.position_embeddings", "position_embedding/embeddings"),
    ("embeddings.token_type_embeddings", "segment_embedding/embeddings"),
    ("embeddings.layer_norm", "embeddings_layer_norm"),
    ("projection", "embedding_projection"),
    ("pooler", "pooled_dense"),
)
_BLOCK = (
    ("attention.query", "self_attention_layer/query"),
    ("attention.key", "self_attention_layer/key"),
    ("attention.value", "self_attention_layer/value"),
    ("attention.output_dense", "self_attention_layer/attention_output"),
    ("attention.layer_norm", "self_attention_layer_norm"),
    ("feed_forward.intermediate", "feedforward_intermediate_dense"),
    ("feed_forward.output_dense", "feedforward_output_dense"),
    ("feed_forward.layer_norm", "feedforward_layer_norm"),
)
# The only values that its AlbertBackbone has.
_THEIR_VALUES = {"hidden_act": ("gelu",), "layer_norm_eps": (1e-12,)}


def not_stored(loaded: LoadedModel) -> Iterator[str]:
    """Yields a line for each property that KerasHub lacks."""
    config, settings = loaded.model.config, loaded.tokenizer.settings
    dropout = config.attention_probs_dropout_prob
    if dropout != config.hidden_dropout_prob:
        yield (
            f"Not stored: attention_probs_dropout_prob={dropout}; KerasHub "
            "has one dropout rate, here hidden_dropout_prob="
            f"{config.hidden_dropout_prob}."
        )
    steps = [
        *["lower-case it"] * settings["do_lower_case"],
        *["strip its accents"] * (not settings["keep_accents"]),
    ]
    if steps:
        yield (
            f"KerasHub's tokenizer does not clean text: {' and '.join(steps)} "
            "before it, or letters become unknown pieces."
        )
    added = getattr(loaded.tokenizer, "added", None)
    if added is not None and added.texts:
        yield (
            "KerasHub's tokenizer finds added tokens as words alone: put a "
            f"space before and after {shown([*added.texts.values()])}."
        )
    yield (
        "KerasHub's tokenizer keeps a comma with the digit before it in one "
        "piece; the model was trained with two."
    )


def save_preset(directory: str, loaded: LoadedModel) -> None:
    """Writes the encoder and its tokenizer as a preset of AlbertBackbone.

    Raises:
        UserError: for settings that KerasHub's classes lack.
    """
    import keras_hub

    tokenizer = loaded.tokenizer
    require(
        isinstance(tokenizer, SentencePieceTokenizer),
        "KerasHub's ALBERT reads SentencePiece vocabularies only; this model "
        "has a WordPiece vocabulary.",
    )
    config = loaded.model.config
    check_values(vars(config), _THEIR_VALUES, "KerasHub's ALBERT")
    backbone = _backbone(loaded.model)
    try:
        backbone.save_to_preset(directory)
    except (OSError, RuntimeError) as error:
        # HDF5's errors for a full disk.
        raise UserError(f"The preset could not be written: {error}.") from None
    # This preprocessor lets the classifier truncate text where the model does,
    # and not at 512 tokens.
    keras_hub.models.AlbertTextClassifierPreprocessor(
        keras_hub.models.AlbertTokenizer(
            proto=tokenizer.model_bytes  # type: ignore[attr-defined]
        ),
        sequence_length=loaded.max_seq_length,
    ).save_to_preset(directory)
    lines = "\n".join(f"- {line}" for line in not_stored(loaded))
    path = os.path.join(directory, "README.md")
    files.write(path, _README.format(lines).encode())


def make_backbone(config: ModelConfig, dtype: str) -> keras.Model:
    """Returns KerasHub's encoder of the same architecture."""
    import keras_hub

    return keras_hub.models.AlbertBackbone(
        vocabulary_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        embedding_dim=config.embedding_size,
        hidden_dim=config.hidden_size,
        intermediate_dim=config.intermediate_size,
        num_groups=file_groups(config, "keras_hub"),
        num_inner_repetitions=config.inner_group_num,
        dropout=config.hidden_dropout_prob,
        max_sequence_length=config.max_position_embeddings,
        num_segments=config.type_vocab_size,
        dtype=dtype,
    )


def _backbone(model: AlbertModel) -> keras.Model:
    """Returns KerasHub's encoder with the weights of ours."""
    import keras_hub

    backbone = make_backbone(model.config, "float32")
    values = dict(_values(model))
    paths = [variable.path for variable in backbone.weights]
    require(
        sorted(paths) == sorted(values),
        f"keras_hub {keras_hub.__version__} has other names of weights than "
        f"0.32, which is supported: {sorted(set(paths) ^ set(values))[:1]}.",
    )
    for variable in backbone.weights:
        # Theirs have an axis for the attention heads.
        variable.assign(values[variable.path].reshape(variable.shape))
    return backbone


def _values(model: AlbertModel) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the encoder's weights by KerasHub's paths."""
    encoder = model.encoder
    for ours, theirs in _TRUNK:
        yield from _named(encoder, ours, theirs)
    if not encoder.projection:
        # KerasHub projects E to H even where they are equal.
        width = model.config.hidden_size
        yield "embedding_projection/kernel", np.eye(width, dtype=np.float32)
        yield "embedding_projection/bias", np.zeros(width, np.float32)
    for group, inner, block in file_blocks(model, "keras_hub"):
        for ours, theirs in _BLOCK:
            prefix = f"group_{group}_inner_layer_{inner}/{theirs}"
            yield from _named(block, ours, prefix)


def _named(
    root: keras.layers.Layer, ours: str, theirs: str
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields a variable, or those of a layer, by KerasHub's paths."""
    part = operator.attrgetter(ours)(root)
    if isinstance(part, keras.layers.Layer):
        for variable in part.weights:
            name = variable.path.rsplit("/", 1)[-1]
            yield f"{theirs}/{name}", keras.ops.convert_to_numpy(variable)
    elif part is not None:
        yield theirs, keras.ops.convert_to_numpy(part)

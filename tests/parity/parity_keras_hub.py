"""Our encoders in KerasHub, over random architectures."""

import pathlib
import tempfile

import hypothesis
import keras_hub
import numpy as np
from hypothesis import strategies as st

from albert_tf.config import ModelConfig, override
from albert_tf.interchange.keras_hub import save_preset
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.modeling.models import AlbertModel

# Relative to the largest entry, as for transformers.
BOUND = 1e-5


@st.composite
def architectures(draw, vocab_size):
    """Those that KerasHub has: tanh GELU, an epsilon of 1e-12."""
    heads = draw(st.sampled_from([1, 2, 3]))
    hidden_size = heads * draw(st.sampled_from([4, 6]))
    layers = draw(st.integers(1, 4))
    changes = {
        "vocab_size": vocab_size,
        "embedding_size": draw(st.sampled_from([4, 7, hidden_size])),
        "hidden_size": hidden_size,
        "num_hidden_layers": layers,
        "num_hidden_groups": draw(st.integers(1, layers)),
        "inner_group_num": draw(st.integers(1, 2)),
        "num_attention_heads": heads,
        "intermediate_size": draw(st.integers(3, 20)),
        "max_position_embeddings": draw(st.integers(4, 12)),
        "type_vocab_size": draw(st.integers(2, 3)),
        "sharing": draw(st.sampled_from(["all", "attention", "ffn", "none"])),
        "always_project_embeddings": draw(st.booleans()),
    }
    return override(ModelConfig(), changes)


def random_batch(config, rng):
    """Every text has a token; masks may have gaps."""
    shape = (3, config.max_position_embeddings)
    mask = rng.random(shape) < 0.7
    mask[:, rng.integers(0, shape[1])] = True
    ids = rng.integers(0, config.vocab_size, shape)
    segments = rng.integers(0, config.type_vocab_size, shape)
    return ids, mask.astype("int64"), segments


@hypothesis.settings(
    max_examples=15,
    deadline=None,
    phases=[hypothesis.Phase.generate],
    derandomize=True,
    database=None,
    suppress_health_check=[
        hypothesis.HealthCheck.function_scoped_fixture,
        hypothesis.HealthCheck.too_slow,
    ],
)
@hypothesis.given(data=st.data(), seed=st.integers(0, 2**31))
def test_a_preset_of_ours_gives_the_same_outputs(
    tiny_tokenizer, record_difference, data, seed
):
    config = data.draw(architectures(tiny_tokenizer.vocab_size))
    rng = np.random.default_rng(seed)
    ours = AlbertModel(config)
    for variable in ours.trainable_variables:
        size = 0.1 if len(variable.shape) == 1 else variable.shape[1] ** -0.5
        value = rng.normal(size=variable.shape) * size
        variable.assign(value + ("gamma" in variable.path))
    with tempfile.TemporaryDirectory() as directory:
        place = str(pathlib.Path(directory, "preset"))
        length = config.max_position_embeddings
        save_preset(place, LoadedModel(ours, tiny_tokenizer, length))
        theirs = keras_hub.models.AlbertBackbone.from_preset(place)
    ids, mask, segments = random_batch(config, rng)
    expected = theirs(
        {"token_ids": ids, "padding_mask": mask, "segment_ids": segments}
    )
    outputs = ours(
        {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    )
    assert set(expected) == set(outputs)
    for name, value in expected.items():
        value, mine = np.asarray(value), np.asarray(outputs[name])
        assert value.shape == mine.shape
        difference = np.abs(value - mine).max() / np.abs(value).max()
        record_difference("KerasHub AlbertBackbone", name, difference, BOUND)

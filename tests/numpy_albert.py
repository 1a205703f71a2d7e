"""ALBERT in NumPy, in double precision: what tests of models compare with.

Also a small architecture, random weights and random batches.
"""

import math

import numpy as np

from albert_tf.config import ModelConfig, override

SMALL = override(
    ModelConfig(),
    {
        "vocab_size": 23,
        "embedding_size": 6,
        "hidden_size": 8,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 16,
        "classifier_dropout_prob": 0.0,
    },
)
DROPOUT = {
    "hidden_dropout_prob": 0.3,
    "attention_probs_dropout_prob": 0.2,
    "classifier_dropout_prob": 0.4,
}

_MASK = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9


def mix(value):
    """Returns the 32-bit finaliser of integers, in Python's integers."""
    value = np.asarray(value).astype(object) & _MASK
    value = value ^ (value >> 16)
    value = (value * 0x7FEB352D) & _MASK
    value = value ^ (value >> 15)
    value = (value * 0x846CA68B) & _MASK
    return value ^ (value >> 16)


def numpy_keys(seed, step, numbers):
    step_key = mix(int(mix(seed)) + step)
    return mix(step_key ^ mix(np.asarray(numbers, object) * _GOLDEN))


def numpy_dropout(keys):
    """Returns drop(x, rate, sites): `sites` lead from the model inwards."""

    def drop(x, rate, *sites, longest=0):
        mine = keys
        for site in sites:
            mine = mix(mine + (site + 1) * _GOLDEN)
        # Rows are 2^16 elements apart; those of attention are numbered as if
        # the sequences were of the largest length.
        rows = np.arange(x[0].size // x.shape[-1])
        if longest:
            rows = rows // x.shape[2] * longest + rows % x.shape[2]
        counters = rows[:, None] * 2**16 + np.arange(x.shape[-1])
        counters = (counters.ravel().astype(object) * _GOLDEN) & _MASK
        bits = mix(mine[:, None] ^ counters[None])
        keep = (bits >= int(rate * 2**32)).astype(bool).reshape(x.shape)
        return np.where(keep, x / (1 - rate), 0)

    return drop


def no_dropout(x, rate, *sites, longest=0):
    return x


def activation(name, x):
    if name == "relu":
        return np.maximum(x, 0)
    if name == "gelu_exact":
        return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return x * 0.5 * (1 + np.tanh(inner))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_softmax(x):
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


class NumpyAlbert:
    """The forward pass from a model's variables, found by their paths."""

    def __init__(self, model, drop=no_dropout):
        self.config, self.drop = model.config, drop
        self.values = {
            variable.path: np.asarray(variable, "float64")
            for variable in model.trainable_variables
        }

    def weight(self, suffix):
        (path,) = [p for p in self.values if p.endswith("/" + suffix)]
        return self.values[path]

    def dense(self, x, name):
        return x @ self.weight(name + "/kernel") + self.weight(name + "/bias")

    def norm(self, x, name):
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        normal = (x - mean) / np.sqrt(variance + self.config.layer_norm_eps)
        name += "/layer_norm"
        return normal * self.weight(name + "/gamma") + self.weight(
            name + "/beta"
        )

    def names(self):
        """Yields (attention, feed-forward) names of every application."""
        config = self.config
        numbers = ({}, {})
        for layer in range(config.num_hidden_layers):
            group = layer * config.num_hidden_groups // config.num_hidden_layers
            own = {
                "all": (group, group),
                "attention": (group, layer),
                "ffn": (layer, group),
                "none": (layer, layer),
            }[config.sharing]
            for inner in range(config.inner_group_num):
                pair = []
                for seen, key, base in zip(
                    numbers, own, ("attention", "feed_forward"), strict=True
                ):
                    number = seen.setdefault((key, inner), len(seen))
                    pair.append(f"{base}_{number}" if number else base)
                yield pair

    def attention(self, x, mask, name, site):
        config = self.config
        heads = config.num_attention_heads
        width = config.hidden_size // heads
        q, k, v = (
            self.dense(x, f"{name}/{part}")
            for part in ("query", "key", "value")
        )
        probs = np.zeros((len(x), heads, x.shape[1], x.shape[1]))
        for head in range(heads):
            cut = slice(head * width, (head + 1) * width)
            logits = q[..., cut] @ np.swapaxes(k[..., cut], 1, 2)
            logits = logits / math.sqrt(width)
            logits += (1 - mask[:, None, :]) * -10000.0
            probs[:, head] = softmax(logits)
        self.attentions.append(probs)
        rate = config.attention_probs_dropout_prob
        longest = config.max_position_embeddings
        probs = self.drop(probs, rate, site, 0, 0, longest=longest)
        context = np.concatenate(
            [
                probs[:, head] @ v[..., head * width : (head + 1) * width]
                for head in range(heads)
            ],
            -1,
        )
        output = self.dense(context, name + "/output")
        output = self.drop(output, config.hidden_dropout_prob, site, 0, 1)
        return self.norm(x + output, name)

    def feed_forward(self, x, name, site):
        inner = self.dense(x, name + "/intermediate")
        inner = activation(self.config.hidden_act, inner)
        output = self.dense(inner, name + "/output")
        output = self.drop(output, self.config.hidden_dropout_prob, site, 1)
        return self.norm(x + output, name)

    def __call__(self, features):
        config = self.config
        ids, segments = features["input_ids"], features["segment_ids"]
        x = (
            self.weight("word_embeddings")[ids]
            + self.weight("token_type_embeddings")[segments]
            + self.weight("position_embeddings")[: ids.shape[1]]
        )
        x = self.norm(x, "embeddings")
        x = self.drop(x, config.hidden_dropout_prob, 0)
        if (
            config.embedding_size != config.hidden_size
            or config.always_project_embeddings
        ):
            x = self.dense(x, "projection")
        mask = features["input_mask"].astype("float64")
        # Arrays of every block, from the last call.
        self.hidden_states, self.attentions = [x], []
        for site, (attention, feed_forward) in enumerate(self.names(), 1):
            x = self.attention(x, mask, attention, site)
            x = self.feed_forward(x, feed_forward, site)
            self.hidden_states.append(x)
        pooled = np.tanh(self.dense(x[:, 0], "pooler"))
        return {"sequence_output": x, "pooled_output": pooled}

    def masked_lm(self, encoded, features):
        rows = np.arange(len(features["input_ids"]))[:, None]
        x = encoded["sequence_output"][rows, features["masked_lm_positions"]]
        x = self.dense(x, "masked_lm/transform")
        x = self.norm(activation(self.config.hidden_act, x), "masked_lm")
        logits = x @ self.weight("word_embeddings").T
        return {"masked_lm_logits": logits + self.weight("output_bias")}

    def sentence_order(self, encoded, features):
        pooled = encoded["pooled_output"]
        logits = self.dense(pooled, "sentence_order/classifier")
        return {"sentence_order_logits": logits}

    def pretraining(self, features):
        encoded = self(features)
        return {
            **encoded,
            **self.masked_lm(encoded, features),
            **self.sentence_order(encoded, features),
        }


def randomise(model, seed=0):
    """Gives every weight, biases and normalisations too, a random value."""
    rng = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        value = rng.normal(size=variable.shape) * 0.4
        variable.assign(value + ("gamma" in variable.path))
    return model


def random_features(config, batch=3, length=7, seed=1):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, length + 1, size=(batch, 1))
    lengths[0] = length
    return {
        "input_ids": rng.integers(0, config.vocab_size, (batch, length)),
        "input_mask": (np.arange(length) < lengths).astype("int64"),
        "segment_ids": rng.integers(0, config.type_vocab_size, (batch, length)),
        "masked_lm_positions": rng.integers(0, lengths, (batch, 4)),
    }


def assert_equal(ours, theirs, tolerance=1e-5):
    assert set(ours) == set(theirs)
    for name, reference in theirs.items():
        value = np.asarray(ours[name], "float64")
        assert value.shape == reference.shape, name
        error = np.abs(value - reference).max() / np.abs(reference).max()
        assert error < tolerance, name


def values_of(part):
    """Returns the weights of a model or its encoder by path."""
    return {
        variable.path.split("/", 1)[1]: np.array(variable)
        for variable in part.trainable_variables
    }


def assert_same(ours, theirs):
    """Compares arrays by name, to the bit."""
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        found, wanted = np.asarray(ours[name]), np.asarray(value)
        assert found.shape == wanted.shape, name
        assert found.tobytes() == wanted.tobytes(), name


def hashed(bits):
    """Lowbias32 (Wellons, 2018) of uint32."""
    bits = bits ^ (bits >> np.uint32(16))
    bits = bits * np.uint32(0x7FEB352D)
    bits = bits ^ (bits >> np.uint32(15))
    bits = bits * np.uint32(0x846CA68B)
    return bits ^ (bits >> np.uint32(16))

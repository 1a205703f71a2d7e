"""convert_weights between sharing modes, depths and lengths."""

import functools

import numpy as np
import pytest

from albert_tf.config import ModelConfig, UserError, override
from albert_tf.modeling.models import AlbertForPretraining, AlbertModel
from albert_tf.modeling.weights.conversion import convert_weights

TINY = ModelConfig(
    vocab_size=20,
    embedding_size=4,
    hidden_size=8,
    num_hidden_layers=4,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=8,
)

# By name: the settings, and by hand which attention (capital letters) and
# which feed-forward each of the four blocks that are applied has.
SHAPES = {
    "all": ({}, "AAAAaaaa"),
    "all, 3 groups": ({"num_hidden_groups": 3}, "AABCaabc"),
    "attention": ({"sharing": "attention"}, "AAAAabcd"),
    "ffn": ({"sharing": "ffn"}, "ABCDaaaa"),
    "ffn, 2 groups": ({"sharing": "ffn", "num_hidden_groups": 2}, "ABCDaabb"),
    "none": ({"sharing": "none"}, "ABCDabcd"),
    "inner": ({"num_hidden_layers": 2, "inner_group_num": 2}, "ABABabab"),
    "inner, none": (
        {"num_hidden_layers": 2, "inner_group_num": 2, "sharing": "none"},
        "ABCDabcd",
    ),
}


@functools.cache
def built(kind=AlbertForPretraining, **changes):
    return kind(override(TINY, changes))


def randomized(model, seed):
    rng = np.random.default_rng(seed)
    for variable in model.weights:
        variable.assign(rng.normal(size=variable.shape).astype("float32"))
    return model


def numbers(model):
    """Returns every weight's value by its path."""
    return {v.path: np.array(v) for v in model.weights}


def assert_equal(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].tobytes() == value.tobytes(), name


def unrolled(model):
    """Returns the weights of each attention that is applied, then of each
    feed-forward.
    """
    blocks = [
        model.encoder.blocks[number] for number in model.encoder.applications
    ]
    parts = [block.attention for block in blocks]
    parts += [block.feed_forward for block in blocks]
    return [[np.array(weight) for weight in part.weights] for part in parts]


def assert_same_parts(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def outputs(model, length=6):
    rng = np.random.default_rng(5)
    mask = np.ones((2, length), "int32")
    mask[1, 4:] = 0
    found = model(
        {
            "input_ids": rng.integers(0, 20, (2, length)).astype("int32"),
            "input_mask": mask,
            "segment_ids": rng.integers(0, 2, (2, length)).astype("int32"),
            "masked_lm_positions": np.array([[1, 2], [3, 0]], "int32"),
        }
    )
    return {name: np.array(value) for name, value in found.items()}


def assert_close(found, wanted):
    assert len(found) >= 4
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, atol=1e-6, err_msg=name)


def mean(parts):
    return [
        np.mean(np.float64(weights), axis=0).astype("float32")
        for weights in zip(*parts, strict=True)
    ]


def merged(parts, letters, merge):
    """The oracle: what each application has where equal letters are one."""
    groups = {letter: [] for letter in letters}
    for part, letter in zip(parts, letters, strict=True):
        groups[letter].append(part)
    how = {"first": lambda group: group[0], "mean": mean}[merge]
    return [how(groups[letter]) for letter in letters]


def refines(fine, coarse):
    """Whether what is one in `fine` is one in `coarse` as well."""
    return len(set(zip(fine, coarse, strict=True))) == len(set(fine))


@pytest.mark.parametrize("old", SHAPES)
def test_every_mode_becomes_every_other(old):
    settings, letters = SHAPES[old]
    source = randomized(built(**settings), seed=1)
    before, wanted = numbers(source), outputs(source)
    parts = unrolled(source)
    for new_settings, new_letters in SHAPES.values():
        target = randomized(built(**new_settings), seed=2)
        if target is source:
            randomized(source, seed=1)
            continue
        fresh = numbers(target)
        if refines(new_letters, letters):
            convert_weights(source, target)
            assert_close(outputs(target), wanted)
            # And back again.
            randomized(source, seed=3)
            convert_weights(target, source)
            assert_equal(numbers(source), before)
            continue
        with pytest.raises(UserError, match="to be one differ: encoder/block"):
            convert_weights(source, target)
        assert_equal(numbers(target), fresh)
        for merge in ("first", "mean"):
            lines = convert_weights(source, target, merge)
            assert any(f"the {merge} of encoder/" in line for line in lines)
            assert_same_parts(
                unrolled(target), merged(parts, new_letters, merge)
            )
    assert_equal(numbers(source), before)


def test_all_weights_are_taken_over_into_a_model_of_the_same_shape():
    source = randomized(built(), seed=1)
    target = AlbertForPretraining(TINY, name="other")
    assert convert_weights(source, target) == []
    for ours, theirs in zip(source.weights, target.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=ours.path)


def test_copies_and_merges_are_reported():
    shared, own = built(), built(sharing="ffn")
    lines = convert_weights(shared, own)
    assert lines == [
        "encoder/block/attention is copied to encoder/block/attention, "
        "encoder/block_1/attention_1, encoder/block_2/attention_2, "
        "encoder/block_3/attention_3."
    ]
    (line,) = convert_weights(own, shared)
    assert line.startswith("encoder/block/attention: equal encoder/block/att")
    assert line.endswith("/attention_2, encoder/block_3/attention_3.")


def test_the_mean_of_equal_weights_is_that_weight():
    own = randomized(built(sharing="none"), seed=1)
    shared = randomized(built(), seed=4)
    shared.encoder.blocks[0].attention.query.bias.assign(
        np.float32([0.1, -0.0, 0.0, 1e-45, 3e38, -3e38, 1 / 3, -1e-30])
    )
    wanted = numbers(shared)
    convert_weights(shared, own)
    randomized(shared, seed=5)
    convert_weights(own, shared, "mean")
    assert_equal(numbers(shared), wanted)


def test_a_repeated_layer_becomes_any_depth():
    source = randomized(built(), seed=1)
    deep = randomized(built(num_hidden_layers=6, sharing="none"), seed=2)
    lines = convert_weights(source, deep)
    assert lines[0] == "4 blocks were applied and 6 are: the outputs change."
    attention, feed_forward = unrolled(source)[0], unrolled(source)[-1]
    assert_same_parts(unrolled(deep), [attention] * 6 + [feed_forward] * 6)
    # As often as before it computes the same: the heads travel with it.
    wanted = outputs(source)
    shallow = randomized(built(num_hidden_layers=1), seed=4)
    again = randomized(built(sharing="ffn"), seed=3)
    convert_weights(source, shallow)
    convert_weights(shallow, again)
    assert_close(outputs(again), wanted)


def test_repeated_inner_blocks_keep_their_order_at_any_depth():
    source = randomized(built(**SHAPES["inner"][0]), seed=1)
    target = built(num_hidden_layers=3, inner_group_num=2, sharing="none")
    convert_weights(source, target)
    parts = unrolled(source)
    assert_same_parts(unrolled(target), parts[:2] * 3 + parts[4:6] * 3)


def test_layers_of_any_number_are_merged_into_repeated_ones():
    source = randomized(
        built(num_hidden_layers=3, inner_group_num=2, sharing="none"), seed=1
    )
    attentions, feed_forwards = unrolled(source)[:6], unrolled(source)[6:]
    pair = built(num_hidden_layers=1, inner_group_num=2)
    convert_weights(source, pair, "mean")
    assert_same_parts(
        unrolled(pair),
        [
            mean(parts[first::2])
            for parts in (attentions, feed_forwards)
            for first in (0, 1)
        ],
    )
    single = built(num_hidden_layers=1)
    convert_weights(source, single, "mean")
    assert_same_parts(unrolled(single), [mean(attentions), mean(feed_forwards)])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"sharing": "none"}, {"num_hidden_layers": 3, "sharing": "none"}),
        ({"sharing": "attention"}, {"num_hidden_layers": 3, "sharing": "ffn"}),
        (
            {"num_hidden_groups": 2},
            {"num_hidden_layers": 6, "num_hidden_groups": 2},
        ),
        (
            {"num_hidden_layers": 2, "inner_group_num": 2},
            {"num_hidden_layers": 3, "sharing": "none"},
        ),
        ({"sharing": "none"}, {"num_hidden_layers": 3, "inner_group_num": 2}),
    ],
)
def test_depths_that_do_not_match_are_refused(old, new):
    target = randomized(built(**new), seed=2)
    before = numbers(target)
    with pytest.raises(UserError, match="The 4 blocks .* cannot become [36]"):
        convert_weights(built(**old), target, "first")
    assert_equal(numbers(target), before)


def test_a_table_of_positions_is_repeated_or_cut():
    source = randomized(built(), seed=1)
    shorter = built(max_position_embeddings=6)
    assert convert_weights(source, shorter) == [
        "encoder/embeddings/position_embeddings: the first 6 of 8 rows."
    ]
    assert_close(outputs(shorter), outputs(source))
    longer = built(max_position_embeddings=20)
    assert convert_weights(source, longer) == [
        "encoder/embeddings/position_embeddings: 8 rows, repeated until "
        "there are 20."
    ]
    old = np.array(source.encoder.embeddings.position_embeddings)
    np.testing.assert_array_equal(
        longer.encoder.embeddings.position_embeddings,
        np.concatenate([old, old, old[:4]]),
    )
    assert_close(outputs(longer), outputs(source))
    outputs(longer, length=20)


def test_settings_without_weights_may_differ():
    source = randomized(built(), seed=1)
    target = built(
        hidden_dropout_prob=0.1, hidden_act="relu", layer_norm_eps=1e-6
    )
    assert convert_weights(source, target) == [
        "hidden_act was gelu and is relu: the outputs change.",
        "layer_norm_eps was 1e-12 and is 1e-06: the outputs change.",
    ]
    assert_equal(numbers(target), numbers(source))


def test_a_pooler_in_one_model_only():
    with_pooler = built(AlbertModel)
    without = AlbertModel(TINY, pooler=False)
    assert convert_weights(with_pooler, without) == [
        "Not needed: encoder/pooler/kernel, encoder/pooler/bias."
    ]
    with pytest.raises(
        UserError, match="has no encoder/pooler/kernel, encoder/pooler/bias,"
    ):
        convert_weights(without, with_pooler)


def test_every_misshapen_weight_is_named():
    target = randomized(built(vocab_size=30, intermediate_size=10), seed=2)
    before = numbers(target)
    with pytest.raises(UserError) as raised:
        convert_weights(built(), target)
    text = str(raised.value)
    assert "\n" not in text
    for part in (
        "word_embeddings has shape [20, 4] and the other model needs [30, 4]",
        "masked_lm/output_bias has shape [20] and the other model needs [30]",
        "feed_forward/intermediate/kernel has shape [8, 12]",
        "feed_forward/intermediate/bias has shape [12]",
        "feed_forward/output/kernel has shape [12, 8]",
    ):
        assert part in text
    assert text.count("has shape") == 5
    assert_equal(numbers(target), before)


def test_wider_positions_are_not_taken_for_more_of_them():
    wide = built(embedding_size=6, max_position_embeddings=12)
    with pytest.raises(
        UserError, match=r"position_embeddings has shape \[8, 4\]"
    ):
        convert_weights(built(), wide)


def test_weights_that_differ_are_named():
    source, target = built(sharing="none"), built()
    convert_weights(randomized(target, seed=1), source)
    bias = source.encoder.blocks[2].feed_forward.output_dense.bias
    value = np.array(bias)
    bias.assign(np.nextafter(value, np.float32(np.inf)))
    with pytest.raises(UserError) as raised:
        convert_weights(source, target)
    assert str(raised.value) == (
        "Weights that are to be one differ: "
        "encoder/block/feed_forward/output/bias differs from "
        "encoder/block_2/feed_forward_2/output/bias. Say how they are "
        "merged: mean or first."
    )
    # Zero and minus zero are equal numbers and other bits.
    bias.assign(value * 0)
    others = [b.feed_forward.output_dense.bias for b in source.encoder.blocks]
    for other in others:
        other.assign(value * 0)
    convert_weights(source, target)
    bias.assign(np.full_like(value, -0.0))
    with pytest.raises(UserError, match="output/bias differs from"):
        convert_weights(source, target)


@pytest.mark.parametrize(
    ("kind", "heads", "merge", "message"),
    [
        (AlbertModel, 2, "equal", "AlbertForPretraining and AlbertModel are d"),
        (AlbertForPretraining, 2, "sum", "merge='sum' is not one of equal, m"),
        # Though the shapes fit.
        (AlbertForPretraining, 4, "equal", "num_attention_heads=4 .* model, 2"),
    ],
)
def test_other_classes_merges_and_heads_are_refused(
    kind, heads, merge, message
):
    with pytest.raises(UserError, match=message):
        convert_weights(built(), built(kind, num_attention_heads=heads), merge)

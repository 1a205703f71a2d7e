"""convert_weights between sharing modes, depths and lengths."""

import functools

import numpy as np
import pytest
from numpy_albert import SMALL, assert_same, randomise, values_of

from albert_tf.config import UserError, override
from albert_tf.modeling.models import AlbertForPretraining, AlbertModel
from albert_tf.modeling.weights.conversion import convert_weights

CONFIG = override(SMALL, {"num_hidden_layers": 4})

# Settings by name, and by hand which attention (capital letters) and which
# feed-forward each of the four blocks that are applied has.
SHAPES = {
    "all": ({}, "AAAAaaaa"),
    "all, 3 groups": ({"num_hidden_groups": 3}, "AABCaabc"),
    "attention": ({"sharing": "attention"}, "AAAAabcd"),
    "ffn, 2 groups": ({"sharing": "ffn", "num_hidden_groups": 2}, "ABCDaabb"),
    "none": ({"sharing": "none"}, "ABCDabcd"),
    "inner": ({"num_hidden_layers": 2, "inner_group_num": 2}, "ABABabab"),
}


@functools.cache
def built(kind=AlbertForPretraining, **changes):
    return kind(override(CONFIG, changes))


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


@pytest.mark.slow
@pytest.mark.parametrize("old", SHAPES)
def test_every_mode_becomes_every_other(old):
    settings, letters = SHAPES[old]
    source = randomise(built(**settings), seed=1)
    before, parts = values_of(source), unrolled(source)
    for new_settings, new_letters in SHAPES.values():
        target = randomise(built(**new_settings), seed=2)
        if target is source:
            randomise(source, seed=1)
            continue
        fresh = values_of(target)
        if refines(new_letters, letters):
            convert_weights(source, target)
            assert_same_parts(unrolled(target), parts)
            # And back again, with the weights outside of blocks.
            randomise(source, seed=3)
            convert_weights(target, source)
            assert_same(values_of(source), before)
            continue
        with pytest.raises(UserError, match="to be one differ: encoder/block"):
            convert_weights(source, target)
        assert_same(values_of(target), fresh)
        for merge in ("first", "mean"):
            lines = convert_weights(source, target, merge)
            assert any(f"the {merge} of encoder/" in line for line in lines)
            assert_same_parts(
                unrolled(target), merged(parts, new_letters, merge)
            )
    assert_same(values_of(source), before)


def test_copies_and_merges_are_reported():
    shared, own = built(), built(sharing="ffn")
    assert convert_weights(shared, AlbertForPretraining(CONFIG, name="b")) == []
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
    own = randomise(built(sharing="none"), seed=1)
    shared = randomise(built(), seed=4)
    shared.encoder.blocks[0].attention.query.bias.assign(
        np.float32([0.1, -0.0, 0.0, 1e-45, 3e38, -3e38, 1 / 3, -1e-30])
    )
    wanted = values_of(shared)
    convert_weights(shared, own)
    randomise(shared, seed=5)
    convert_weights(own, shared, "mean")
    assert_same(values_of(shared), wanted)


def test_a_repeated_layer_becomes_any_depth():
    source = randomise(built(), seed=1)
    deep = randomise(built(num_hidden_layers=6, sharing="none"), seed=2)
    lines = convert_weights(source, deep)
    assert lines[0] == "4 blocks were applied and 6 are: the outputs change."
    attention, feed_forward = unrolled(source)[0], unrolled(source)[-1]
    assert_same_parts(unrolled(deep), [attention] * 6 + [feed_forward] * 6)


def test_layers_of_any_number_are_merged_into_repeated_ones():
    source = randomise(
        built(num_hidden_layers=3, inner_group_num=2, sharing="none"), seed=1
    )
    attentions, feed_forwards = unrolled(source)[:6], unrolled(source)[6:]
    pair = built(num_hidden_layers=1, inner_group_num=2)
    convert_weights(source, pair, "mean")
    merged_parts = [
        mean(parts[first::2])
        for parts in (attentions, feed_forwards)
        for first in (0, 1)
    ]
    assert_same_parts(unrolled(pair), merged_parts)
    # And back: the inner blocks keep their order.
    convert_weights(pair, source)
    wanted = merged_parts[:2] * 3 + merged_parts[2:] * 3
    assert_same_parts(unrolled(source), wanted)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"sharing": "none"}, {"num_hidden_layers": 3, "sharing": "none"}),
        (
            {"num_hidden_layers": 2, "inner_group_num": 2},
            {"num_hidden_layers": 3, "sharing": "none"},
        ),
        ({"sharing": "none"}, {"num_hidden_layers": 3, "inner_group_num": 2}),
    ],
)
def test_depths_that_do_not_match_are_refused(old, new):
    target = randomise(built(**new), seed=2)
    before = values_of(target)
    with pytest.raises(UserError, match="The 4 blocks .* cannot become [36]"):
        convert_weights(built(**old), target, "first")
    assert_same(values_of(target), before)


def test_a_table_of_positions_is_repeated_or_cut():
    source = randomise(built(), seed=1)
    table = np.array(source.encoder.embeddings.position_embeddings)
    longer = np.concatenate([table, table, table[:8]])
    for rows, line, wanted in (
        (6, "the first 6 of 16 rows.", table[:6]),
        (40, "16 rows, repeated until there are 40.", longer),
    ):
        target = built(max_position_embeddings=rows)
        assert convert_weights(source, target) == [
            f"encoder/embeddings/position_embeddings: {line}"
        ]
        found = target.encoder.embeddings.position_embeddings
        np.testing.assert_array_equal(found, wanted)


def test_settings_without_weights_may_differ():
    source = randomise(built(), seed=1)
    target = built(
        hidden_dropout_prob=0.1, hidden_act="relu", layer_norm_eps=1e-6
    )
    assert convert_weights(source, target) == [
        "hidden_act was gelu and is relu: the outputs change.",
        "layer_norm_eps was 1e-12 and is 1e-06: the outputs change.",
    ]
    assert_same(values_of(target), values_of(source))


def test_a_pooler_in_one_model_only():
    with_pooler = built(AlbertModel)
    without = AlbertModel(CONFIG, pooler=False)
    assert convert_weights(with_pooler, without) == [
        "Not needed: encoder/pooler/kernel, encoder/pooler/bias."
    ]
    with pytest.raises(UserError, match="no encoder/pooler/kernel, encoder/p"):
        convert_weights(without, with_pooler)


def test_every_misshapen_weight_is_named():
    changes = {"vocab_size": 30, "embedding_size": 7, "intermediate_size": 10}
    # Positions that are wider are not taken for more of them.
    target = built(**changes, max_position_embeddings=20)
    randomise(target, seed=2)
    before = values_of(target)
    with pytest.raises(UserError) as raised:
        convert_weights(built(), target)
    text = str(raised.value)
    part = "word_embeddings has shape [23, 6] and the other model needs [30, 7]"
    assert part in text
    assert "position_embeddings has shape [16, 6]" in text
    assert text.count("has shape") == 14
    assert_same(values_of(target), before)


def test_weights_that_differ_are_named():
    source, target = built(sharing="none"), built()
    convert_weights(randomise(target, seed=1), source)
    bias = source.encoder.blocks[2].feed_forward.output_dense.bias
    value = np.array(bias)
    bias.assign(np.nextafter(value, np.float32(np.inf)))
    with pytest.raises(UserError, match="_2/feed_forward_2/output/bias"):
        convert_weights(source, target)
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

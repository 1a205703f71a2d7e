"""Parameter counts: all presets, the paper's tables, or one model.

python -m bin.count_parameters
python -m bin.count_parameters --preset=base --sharing=none --heads=span
"""

from absl import flags

from albert_tf.config import (
    PRESETS,
    SHARING,
    ModelConfig,
    PretrainConfig,
    lookup,
    override,
    preset,
)
from albert_tf.modeling.accounting import (
    PAPER_TABLES,
    PRETRAINING_HEADS,
    ParameterCount,
    parameter_count,
    pretraining_head_weights,
    with_pretraining_heads,
)
from bin import command_line, own_rows

FLAGS = flags.FLAGS


def define_flags() -> None:
    own_rows.define_flag()
    flags.DEFINE_enum(
        "preset", None, list(PRESETS), "Model size to count, part by part."
    )
    flags.DEFINE_list(
        "heads",
        list(PRETRAINING_HEADS),
        "Heads of that model, by the names of their classes' head_name.",
    )
    flags.DEFINE_integer(
        "num_labels", 2, "Labels of a head that classifies.", lower_bound=1
    )
    command_line.define_settings(ModelConfig())


def _model(name: str, **changes: str) -> ModelConfig:
    return override(PretrainConfig(), preset(name) | changes).model


def presets_table() -> str:
    """Returns the sizes of all presets; those of one size share a row."""
    names: dict[tuple[int, int], list[str]] = {}
    for name in PRESETS:
        count = with_pretraining_heads(_model(name))
        names.setdefault((count.encoder, count.total), []).append(name)
    rows = [
        [", ".join(same), f"{encoder:,}", f"{total - encoder:,}", f"{total:,}"]
        for (encoder, total), same in names.items()
    ]
    return command_line.format_table(
        rows, ["preset", "encoder", "pretraining heads", "in all"]
    )


def sharing_table() -> str:
    rows = [
        [
            name,
            *(
                f"{parameter_count(_model(name, sharing=mode)).encoder:,}"
                for mode in SHARING
            ),
        ]
        for name in ("base", "large", "xlarge", "xxlarge")
    ]
    return command_line.format_table(rows, ["encoder, sharing:", *SHARING])


def paper_table(title: str) -> str:
    rows = [
        [
            row.name,
            f"{row.millions}M",
            f"{row.count.encoder:,}",
            f"{row.count.pooler:,}",
            row.reading
            or f"{row.millions * 10**6 / row.count.encoder - 1:.1%} more",
        ]
        for row in PAPER_TABLES[title]
    ]
    return command_line.format_table(
        rows,
        [f"paper, {title}", "published", "encoder", "pooler", "published is"],
    )


def heads_of(config: ModelConfig) -> dict[str, int]:
    """Returns the weights of the heads of --heads, by name."""
    weights = pretraining_head_weights(config)
    if not weights.keys() >= set(FLAGS.heads):
        # The others are layers, which count themselves.
        command_line.load_tensorflow()
        from albert_tf.modeling.heads import HEADS

        for name in FLAGS.heads:
            kind = lookup(HEADS, name, "head", extensible=True)
            weights[name] = kind.count_weights(config, FLAGS.num_labels)
    return {name: weights[name] for name in FLAGS.heads}


def parts_table(count: ParameterCount) -> str:
    parts = {
        "embeddings": count.embeddings,
        "projection": count.projection,
        "attention": count.attention,
        "feed-forward": count.feed_forward,
        "pooler": count.pooler,
        **{f"head {name}": weights for name, weights in count.heads.items()},
        "in all": count.total,
    }
    rows = [
        [name, f"{weights:,}", f"{weights / count.total:.1%}"]
        for name, weights in parts.items()
    ]
    return command_line.format_table(rows, ["part", "weights", "share"])


def main() -> None:
    settings = command_line.given_settings(ModelConfig())
    named = (FLAGS[name].present for name in ("preset", "heads", "num_labels"))
    if settings or any(named):
        changes = preset(FLAGS.preset) if FLAGS.preset else {}
        config = override(PretrainConfig(), changes | settings).model
        print(parts_table(parameter_count(config, heads_of(config))))
        return
    tables = [presets_table(), sharing_table(), *map(paper_table, PAPER_TABLES)]
    print("\n\n".join(tables))


if __name__ == "__main__":
    command_line.run(define_flags, main)

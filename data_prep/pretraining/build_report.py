"""Says what a build has made of a corpus: counts, and shares made of them."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from albert_tf.config import PretrainingDataConfig
from data_prep.pretraining.build_plan import BuildPlan


def statistics(plan: BuildPlan, counts: Counter[str]) -> dict[str, Any]:
    """Returns the statistics of a build, of the corpus and by split."""
    corpus = plan.report.counts | {
        name: count for name, count in counts.items() if "/" not in name
    }
    return {
        "corpus": dict(sorted(corpus.items())),
        **{
            split: _of_split(
                {
                    name.removeprefix(f"{split}/"): count
                    for name, count in sorted(counts.items())
                    if name.startswith(f"{split}/")
                },
                plan.config,
            )
            for split in sorted(plan.record_bytes)
        },
    }


def _of_split(
    counts: Mapping[str, int], config: PretrainingDataConfig
) -> dict[str, Any]:
    """Returns a split's counts and the shares one wants to know of it."""
    count = Counter(counts)
    instances, tokens = count["instances"], count["tokens"]
    shares = {
        "unknown_share": (count["unknown_tokens"], tokens),
        # Of the text, in all copies, what no instance holds.
        "lost_share": (count["skipped/tokens"], tokens),
        "padding_share": (
            instances * config.max_seq_length - count["instance_tokens"],
            instances * config.max_seq_length,
        ),
        "label_1_share": (count["label_1"], instances),
    }
    if config.record_kind == "static":
        masked = count["masked_tokens"]
        shares["masked_share"] = (masked, count["instance_tokens"])
        for name in ("as_mask", "as_is", "as_random"):
            part = f"masked_tokens/{name}"
            shares[f"{part}_share"] = (count[part], masked)
    return dict(counts) | {
        name: round(part / max(1, whole), 6)
        for name, (part, whole) in shares.items()
    }

"""metadata.json of a finished build: shards, counts and shares of them."""

import dataclasses
from collections import Counter
from typing import Any

from albert_tf.config import PretrainingDataConfig, UserError
from albert_tf.records.shards import FORMAT_VERSION, describe_tokenizer
from albert_tf.text.tokenizer import Tokenizer
from data_prep.pretraining.build_directory import BuildResult
from data_prep.pretraining.build_estimate import text_shares
from data_prep.pretraining.build_plan import BuildPlan
from data_prep.pretraining.record_maker import num_slots


def check_splits(plan: BuildPlan, result: BuildResult) -> None:
    """Raises UserError if a split that was asked for has no record."""
    config, counts = plan.config, result.counts
    for split in sorted(plan.record_bytes, reverse=True):
        if any(shard.num_records for shard in result.of_split(split)):
            continue
        documents = counts[f"{split}/documents"]
        single = counts[f"{split}/skipped/single_sentence_documents"]
        raise UserError(
            f"The split {split} has no records: {documents} documents, "
            f"{single} of them of one sentence, which has no order to judge. "
            f"Check the input, document_separator={config.document_separator}"
            f", sentence_splitter={config.sentence_splitter}, eval_fraction="
            f"{config.eval_fraction}."
        )


def make_metadata(
    plan: BuildPlan, tokenizer: Tokenizer, result: BuildResult
) -> dict[str, Any]:
    """Returns the metadata.json of a finished build."""
    config = plan.config
    splits = {s: result.of_split(s) for s in sorted(plan.record_bytes)}
    return {
        "format_version": FORMAT_VERSION,
        "record_kind": config.record_kind,
        "sentence_objective": config.sentence_objective,
        "max_seq_length": config.max_seq_length,
        "num_slots": num_slots(config, plan.masking),
        "random_seed": config.random_seed,
        "tokenizer": describe_tokenizer(tokenizer),
        "splits": {
            split: {
                "num_records": sum(shard.num_records for shard in shards),
                "shards": [dataclasses.asdict(shard) for shard in shards],
            }
            for split, shards in splits.items()
        },
        "statistics": _statistics(plan, result.counts),
        "settings": plan.settings,
    }


def _statistics(plan: BuildPlan, counts: Counter[str]) -> dict[str, Any]:
    """Returns the statistics of the corpus and of each split."""
    corpus = plan.report.counts | {
        name: count for name, count in counts.items() if "/" not in name
    }
    of_splits = {split: Counter[str]() for split in sorted(plan.record_bytes)}
    for name, count in sorted(counts.items()):
        split, _, rest = name.partition("/")
        if rest:
            of_splits[split][rest] = count
    return {
        "corpus": dict(sorted(corpus.items())),
        **{
            split: of_split | _shares(of_split, plan.config)
            for split, of_split in of_splits.items()
        },
    }


def _shares(
    count: Counter[str], config: PretrainingDataConfig
) -> dict[str, float]:
    shares = text_shares(count, config.max_seq_length)
    shares["label_1_share"] = count["label_1"] / max(1, count["instances"])
    if config.record_kind == "static":
        masked = count["masked_tokens"]
        shares["masked_share"] = masked / max(1, count["instance_tokens"])
        for name in ("as_mask", "as_is", "as_random"):
            part = f"masked_tokens/{name}"
            shares[f"{part}_share"] = count[part] / max(1, masked)
    return {name: round(share, 6) for name, share in shares.items()}

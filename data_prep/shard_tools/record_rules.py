"""The form of a directory's pretraining records: `RecordRules`."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import MaskingConfig, UserError, from_dict, lookup
from albert_tf.records.schemas import RECORD_SPECS, Namer, parse_batch
from albert_tf.records.sentence_objectives import (
    SENTENCE_OBJECTIVES,
    SentenceObjective,
)
from albert_tf.records.shards import METADATA_NAME, TOKENIZER_DIRECTORY
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer

DYNAMIC, STATIC = RECORD_SPECS


@dataclasses.dataclass(frozen=True)
class RecordRules:
    """The form of a directory's records."""

    kind: str  # a row of RECORD_SPECS
    objective: SentenceObjective | None  # None: not known, sop or nsp
    max_seq_length: int
    num_slots: int  # masked positions of a static record
    masking: MaskingConfig | None  # None: not known how they were masked
    tokenizer: Tokenizer

    def parse(
        self, records: Sequence[bytes], namer: Namer
    ) -> dict[str, np.ndarray]:
        """Returns the features of records, see `schemas.parse_batch`."""
        return parse_batch(
            self.kind,
            records,
            max_seq_length=self.max_seq_length,
            num_slots=self.num_slots,
            namer=namer,
        )


def read_rules(
    directory: str,
    metadata: Mapping[str, Any],
    tokenizer_dir: str | os.PathLike[str] | None = None,
) -> RecordRules:
    """Returns the rules of a shard directory by its metadata.json.

    `tokenizer_dir` has a vocabulary in place of the one beside the shards.

    Raises:
        UserError: when metadata.json lacks an entry, or the tokenizer cannot
            be read.
    """
    path = os.path.join(directory, METADATA_NAME)
    try:
        kind = metadata["record_kind"]
        lookup(RECORD_SPECS, kind, f"{path}: record_kind")
        objective = lookup(
            SENTENCE_OBJECTIVES,
            metadata["sentence_objective"],
            f"{path}: sentence_objective",
        )
        lengths = metadata["max_seq_length"], metadata["num_slots"]
    except KeyError as missing:
        raise UserError(
            f"{path} has no {missing}; build the shards again."
        ) from None
    masking = metadata.get("settings", {}).get("masking")
    return RecordRules(
        kind,
        objective,
        *lengths,
        masking and from_dict(MaskingConfig, masking, path),
        load_tokenizer(
            tokenizer_dir or os.path.join(directory, TOKENIZER_DIRECTORY)
        ),
    )

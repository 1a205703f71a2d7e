"""Single texts and pairs as sequences of tokens."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from albert_tf.config import FeatureConfig
from albert_tf.tasks.examples import Example
from albert_tf.tasks.features import Features, flat
from albert_tf.tasks.kinds.base import CallSignature, Kind
from albert_tf.text.sequences import joined_texts
from albert_tf.text.tokenizer_base import Tokenizer


def sequence_features(
    token_ids: Sequence[Sequence[Sequence[int]]],
    tokenizer: Tokenizer,
    max_seq_length: int,
    scalars: Mapping[str, np.ndarray],
) -> Features:
    """Returns a row for each text or pair, truncated at the end.

    [CLS] text [SEP], or [CLS] first [SEP] second [SEP] with segment 1 from
    the second text on. `token_ids` are of each example's texts, `scalars`
    `[examples]` by name.
    """
    joined = joined_texts(
        token_ids,
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        max_seq_length=max_seq_length,
    )
    ids, offsets = flat(joined.ids)
    lengths = np.diff(offsets)
    positions = np.arange(len(ids)) - np.repeat(offsets[:-1], lengths)
    in_second = positions >= np.repeat(joined.second_starts, lengths)
    return Features(
        sequences={"input_ids": ids, "segment_ids": in_second.astype(np.int32)},
        offsets=offsets,
        scalars=scalars,
        padding={"input_ids": tokenizer.pad_id},
        example_numbers=np.arange(len(joined.ids)),
        truncated=joined.truncated,
    )


def text_fields(texts: Sequence[str]) -> dict[str, object]:
    """Returns `text`, or `texts` of a pair, for a line of JSON."""
    return {"text": texts[0]} if len(texts) == 1 else {"texts": list(texts)}


class TextKind(Kind):
    """What classification and regression share.

    `label_type` is that of `label_ids` among the features.
    """

    example_type: ClassVar[type] = Example
    text_counts = range(1, 3)
    text_format = "a string, or two (on a line, with a tab between them)"
    label_type: type[np.generic]

    def example(self, texts: tuple[str, ...], number: int) -> Any:
        """Returns the unlabelled example of a text or pair."""
        return Example(texts, None, f"text {number}")

    def check_labels(
        self, examples: Sequence[Any], labels: Sequence[str]
    ) -> None:
        """Raises UserError for labels that are not the model's, or numbers."""
        self.label_ids(examples, labels)

    def features(
        self,
        examples: Sequence[Any],
        tokenizer: Tokenizer,
        config: FeatureConfig,
        *,
        labels: Sequence[str],
        training: bool,
    ) -> Features:
        """Returns a row for each example, with `label_ids`."""
        label_ids = self.label_ids(examples, labels).astype(self.label_type)
        texts = [text for example in examples for text in example.texts]
        ids = iter(tokenizer.encode_batch(texts))
        token_ids = [[next(ids) for _ in example.texts] for example in examples]
        scalars = {"label_ids": label_ids}
        return sequence_features(
            token_ids, tokenizer, config.max_seq_length, scalars
        )

    def exported_rows(
        self, call: CallSignature, examples: Sequence[Any]
    ) -> list[Mapping[str, Any]]:
        """Returns an exported model's outputs for each text or pair."""
        found: dict[int, Mapping[str, Any]] = {}
        for count, signature in ((1, "text"), (2, "text_pair")):
            rows = [n for n, e in enumerate(examples) if len(e.texts) == count]
            if rows:
                columns = zip(*(examples[n].texts for n in rows), strict=True)
                names = ("text", "text_pair")[:count]
                outputs = call(
                    signature, **dict(zip(names, columns, strict=True))
                )
                for place, row in enumerate(rows):
                    found[row] = {n: v[place] for n, v in outputs.items()}
        return [found[number] for number in range(len(examples))]

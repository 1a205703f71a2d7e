"""Two sentences on their way through a pretrained model, step by step.

python examples/worked_sentence.py demo/pretrained/model

The model is bin/demo's; docs/architecture.md shows what this prints.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from albert_tf import MaskingConfig, load_model_directory
from albert_tf.records import counter_rng
from albert_tf.records.masking import MaskingIds, mask_batch

FIRST = "Returns the number of elements in the array."
SECOND = "If the axis is given, the elements along that axis are counted."


def main(directory: str) -> None:
    loaded = load_model_directory(directory)
    model, tokenizer = loaded.model, loaded.tokenizer

    print("text      ", FIRST, "|", SECOND)
    columns = pair(tokenizer, FIRST, SECOND)
    (ids,) = columns["input_ids"]
    print("pieces    ", *tokenizer.pieces(ids))
    print("ids       ", *ids)
    print("segments  ", *columns["segment_ids"][0])

    masked = mask_batch(
        columns | {"word_starts": tokenizer.word_start[columns["input_ids"]]},
        np.array([counter_rng.key("worked sentence")]),
        config=MaskingConfig(),
        num_slots=MaskingConfig().prediction_slots(len(ids)),
        ids=MaskingIds.from_tokenizer(tokenizer),
    )
    print("masked    ", *tokenizer.pieces(masked.input_ids[0]))

    outputs = model(columns | masked.features, training=False)
    print("\nposition  label          the five likeliest pieces")
    for slot in np.flatnonzero(masked.masked_lm_weights[0]):
        shares = softmax(outputs["masked_lm_logits"][0, slot])
        best = np.argsort(-shares)[:5]
        (label,) = tokenizer.pieces([masked.masked_lm_ids[0, slot]])
        pieces = zip(tokenizer.pieces(best), shares[best])
        print(
            f"{masked.masked_lm_positions[0, slot]:8}  {label:13} ",
            "  ".join(f"{piece} {share:.3f}" for piece, share in pieces),
        )
    print()
    for first, second in ((FIRST, SECOND), (SECOND, FIRST)):
        features = masked.features | pair(tokenizer, first, second)
        logits = model(features, training=False)["sentence_order_logits"]
        print(f"in order {softmax(logits[0])[0]:.3f}:  {first} | {second}")


def pair(tokenizer, first: str, second: str) -> dict[str, np.ndarray]:
    """Returns `[CLS] first [SEP] second [SEP]` as a batch of one."""
    begin = [tokenizer.cls_id, *tokenizer.encode(first), tokenizer.sep_id]
    end = [*tokenizer.encode(second), tokenizer.sep_id]
    segments = [0] * len(begin) + [1] * len(end)
    return {
        "input_ids": np.array([begin + end], np.int32),
        "input_mask": np.ones((1, len(segments)), np.int32),
        "segment_ids": np.array([segments], np.int32),
    }


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - np.max(logits))
    return powers / powers.sum()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Sample predictions for masked sentences."""

import numpy as np

from albert_tf.report.sample_predictions import (
    masked_samples,
    masked_sentences,
)


class Letters:
    """A tokenizer's pieces, one sign each; capital letters begin a word."""

    alphabet = "_abcDEfgh|<*"
    special_ids = (99,)

    def pieces(self, ids):
        return ["[MASK]" if i == 99 else self.alphabet[int(i)] for i in ids]

    def decode(self, ids):
        pieces = [p for p in self.pieces(ids) if p != "[MASK]"]
        return "".join(f" {p}" if p.isupper() else p for p in pieces)


def example():
    batch = {
        "input_ids": np.array([[1, 99, 10, 4, 0, 0], [5, 6, 99, 0, 0, 0]]),
        "input_mask": np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0]]),
        # Out of order, and one slot that is not used.
        "masked_lm_positions": np.array([[3, 1, 0], [2, 0, 0]]),
        "masked_lm_ids": np.array([[4, 2, 0], [11, 0, 0]]),
        "masked_lm_weights": np.array([[1.0, 1, 0], [1.0, 0, 0]]),
    }
    probabilities = np.full((2, 3, 12), 1e-9)
    probabilities[0, 0, [4, 5, 6]] = 0.5, 0.3, 0.2
    probabilities[0, 1, [9, 2, 3]] = 0.9, 0.08, 0.02
    probabilities[1, 0, [1, 2, 11]] = 0.25, 0.6, 0.15
    # A constant added to logits changes nothing; nor must large ones.
    return batch, (np.log(probabilities) + 300).astype(np.float32)


def test_the_whole_text():
    assert masked_sentences(masked_samples(Letters(), *example())) == (
        "> a **&#91;MASK&#93;**¹&lt; **D**²\n"
        "\n"
        "| mask | label | predictions |\n"
        "|---:|---|---|\n"
        "| 1 | b | &#124; 90%, b 8%, c 2% |\n"
        "| 2 | D | D 50%, E 30%, f 20% |\n"
        "\n"
        "> Ef **&#91;MASK&#93;**¹\n"
        "\n"
        "| mask | label | predictions |\n"
        "|---:|---|---|\n"
        "| 1 | &#42; | b 60%, a 25%, &#42; 15% |"
    )


def test_the_beginning_of_a_long_text():
    long = {
        "input_ids": np.full((1, 500), 1),
        "input_mask": np.ones((1, 500), int),
        "masked_lm_positions": np.array([[3, 400]]),
        "masked_lm_ids": np.array([[2, 2]]),
        "masked_lm_weights": np.ones((1, 2)),
    }
    text = masked_sentences(
        masked_samples(Letters(), long, np.zeros((1, 2, 12)))
    )
    assert text.splitlines()[0].endswith("aa …")
    assert len(text.splitlines()[0]) < 300
    assert "| 2 |" not in text

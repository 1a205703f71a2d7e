"""Texts and settings of the exports that tests make."""

from albert_tf.config import FeatureConfig

TEXTS = [
    "The bada of gule.",
    "ÉLÈVE à l'École, BADA",
    "",
    "   ",
    "smile 😀🎉 and 1,000, more",
    "long bada gule " * 40,
    "nul \0 and tab\tand\nline",
]
FEATURES = FeatureConfig(
    max_seq_length=24,
    max_choice_length=9,
    max_query_length=8,
    doc_stride=5,
    max_answer_length=6,
    # Random weights find an answer to some of the questions.
    null_threshold=0.881,
    # Random weights are sure of themselves.
    label_thresholds="0.9,0.5,0.1",
    temperature=1.7,
)
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def decoded(strings):
    return [value.decode() for value in strings]

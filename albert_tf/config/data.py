"""Settings of data: masking, pretraining records, fine-tuning features."""

import dataclasses
from collections.abc import Iterable

from albert_tf.config.fields import Section, setting
from albert_tf.config.model import MAX_TOKENS

# metadata.json, which names every shard, stays below its maximum size.
MAX_SHARDS = 4096


@dataclasses.dataclass(frozen=True)
class MaskingConfig(Section):
    """N-gram masked language modelling (paper, section 4.1)."""

    masked_lm_prob: float = setting(
        0.15,
        "Share of tokens to predict; at least one per sequence.",
        minimum=0.0,
        maximum=0.9,
    )
    max_ngram: int = setting(
        3, "Longest n-gram of words masked together.", minimum=1, maximum=10
    )
    favor_shorter_ngram: bool = setting(
        True, "p(n) proportional to 1/n; off: proportional to n."
    )
    whole_word_masking: bool = setting(
        True, "Whole-word masking; off: each piece counts as a word."
    )
    max_predictions_per_seq: int = setting(
        0,
        "Maximum tokens to predict per sequence; 0: masked_lm_prob of the "
        "longest sequence (the original: 20).",
        minimum=0,
    )

    def prediction_slots(self, max_seq_length: int) -> int:
        """Returns P, the masked positions that a record has room for."""
        if self.max_predictions_per_seq:
            return self.max_predictions_per_seq
        return max(1, round(self.masked_lm_prob * max_seq_length))


@dataclasses.dataclass(frozen=True)
class PretrainingDataConfig(Section):
    """How a corpus becomes pretraining records."""

    document_separator: str = setting(
        "auto",
        "End of a document of plain text: file, blank_line, line, or auto: "
        "blank_line for a single file that is not hard-wrapped and for one "
        "sentence per line, otherwise file. A Markdown file, a JSON line "
        "and a <doc> of WikiExtractor are a document each.",
        choices=("auto", "file", "blank_line", "line"),
    )
    text_column: str = setting(
        "text",
        "Column of JSON lines, Parquet files and saved data sets that has the "
        "text.",
    )
    skip_header_lines: int = setting(
        0, "Lines to skip at the start of each file.", minimum=0
    )
    remove_duplicates: str = setting(
        "none",
        "Remove exact duplicates: of documents, or of paragraphs as well; or "
        "near_documents: nearly equal ones too, by near_duplicate_threshold.",
        choices=("none", "documents", "paragraphs", "near_documents"),
    )
    near_duplicate_threshold: float = setting(
        0.8,
        "near_documents: the share of runs of five words (Jaccard "
        "similarity, estimated) from which a document is a duplicate of an "
        "earlier one. Documents below 20 words are compared exactly.",
        minimum=0.5,
        maximum=1.0,
    )
    sentence_splitter: str = setting(
        "punkt",
        "punkt: NLTK's Punkt trained on the corpus itself, and Unicode's "
        "sentence terminators of other scripts (Chinese, Hindi, Arabic "
        "...); newline: one sentence per line.",
        choices=("punkt", "newline"),
    )
    sentence_objective: str = setting(
        "sop",
        "Sentence objective: sop, sentence order (paper, section 3.1); nsp, "
        "next sentence (BERT); none: single segments.",
    )
    record_kind: str = setting(
        "dynamic",
        "dynamic: masked anew at every reading; static: masked here, in the "
        "schema of google-research/albert.",
        choices=("dynamic", "static"),
    )
    max_seq_length: int = setting(
        512, "Maximum tokens of a record, special ones included.", minimum=8
    )
    short_seq_prob: float = setting(
        0.1,
        "Share of instances with a random shorter length.",
        minimum=0.0,
        maximum=1.0,
    )
    dupe_factor: int = setting(
        1,
        "Passes over the corpus with other segment boundaries and, for "
        "static records, other masks.",
        minimum=1,
    )
    num_shards: int = setting(
        0,
        "Output shards; 0: one per 64 MB of records.",
        minimum=0,
        maximum=MAX_SHARDS,
    )
    eval_fraction: float = setting(
        0.0,
        "Share of the documents held out into a split of its own; at least "
        "one.",
        minimum=0.0,
        maximum=0.5,
    )
    random_seed: int = setting(
        12345, "Random seed.", minimum=0, maximum=2**63 - 1, flag="seed"
    )


def _count(default: int, help: str) -> int:
    return setting(default, help, minimum=1, maximum=MAX_TOKENS)


@dataclasses.dataclass(frozen=True)
class FeatureConfig(Section):
    """How examples become sequences, and scores become answers.

    A fine-tuned model keeps it.
    """

    max_seq_length: int = setting(
        512,
        "Maximum tokens of an example, special ones included; at most the "
        "model's positions.",
        minimum=8,
        maximum=MAX_TOKENS,
    )
    doc_stride: int = _count(
        128,
        "Tokens between the starts of two windows on a paragraph (questions).",
    )
    max_query_length: int = _count(
        64, "Maximum tokens of a question; longer ones are truncated."
    )
    max_answer_length: int = _count(30, "Maximum tokens of a predicted answer.")
    n_best_size: int = _count(20, "Size of the n-best list of a question.")
    max_choice_length: int = _count(
        128,
        "Maximum tokens of a question with one of its choices (multiple "
        "choice); truncation keeps the last.",
    )
    null_threshold: float = setting(
        0.0,
        "SQuAD 2.0: no answer is predicted where the null score exceeds this. "
        "Fine-tuning tunes it on the dev set.",
    )
    word_boundaries: str = setting(
        "blanks",
        "Words of a text that are tagged. blanks: what is between white space; "
        "punctuation: punctuation, symbols and Chinese characters are words "
        "too. Fine-tuning takes that of its examples.",
        choices=("blanks", "punctuation"),
    )
    label_thresholds: str = setting(
        "one",
        "Multi-label classification: the probability above which a text has a "
        "label. one or each: fine-tuning chooses it on the dev set by F1, one "
        "for all labels or one for each; or a number, or as many numbers as "
        "there are labels, comma-separated.",
    )
    temperature: float = setting(
        1.0,
        "Divides the logits of classes before the softmax. Fine-tuning fits "
        "it on the dev set.",
        minimum=0.01,
        maximum=100.0,
    )


# Lengths of parts of a sequence.
PART_LENGTHS = ("max_query_length", "doc_stride", "max_choice_length")


def lengths_within(
    config: FeatureConfig, names: Iterable[str]
) -> dict[str, int]:
    """Returns defaults among lengths, at most half of max_seq_length.

    They leave a paragraph, or a context, room, and its windows overlap.
    """
    half, defaults = config.max_seq_length // 2, FeatureConfig()
    values = {name: getattr(defaults, name) for name in names}
    return {
        name: min(default, half)
        for name, default in values.items()
        if getattr(config, name) == default
    }

"""Estimates sizes and shares of a build from a sample of its corpus.

Main entries: `estimate_build` and `build_warnings`.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from albert_tf.config import PretrainingDataConfig
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.tokenizer_base import MAX_UNKNOWN
from data_prep.corpus.reading import UnitDocument
from data_prep.corpus.sample import CorpusSample
from data_prep.corpus.sentences import SentenceSplitter, has_end
from data_prep.pretraining.record_maker import RecordMaker

# The split whose random draws are taken.
_SPLIT = "train"
# Characters of which records are made to estimate their size.
_SIZE_SAMPLE_CHARS = 300_000
# Minimum bytes of records per character, in one copy.
_MIN_RATIO = 0.01
# Half of the pairs end with another document's segment; their own second one
# begins the next pair. An excerpt alone has no other document.
_LENT = 4 / 3
# A TFRecord's length and its two checksums.
_RECORD_OVERHEAD = 16

# Above these shares the text or the settings are likely wrong.
_MAX_PADDING = 0.3
_MAX_LOST = 0.01
# A sentence above this length without an end mark is none, most likely; the
# user is warned if more than so much of the text is made of them.
_LONG_WITHOUT_END = 200
_MAX_WITHOUT_END = 0.5
# Unknown words in a warning, and characters of each.
_SHOWN_WORDS = 5
_SHOWN_CHARS = 20


class BuildEstimate(NamedTuple):
    """Estimates of a build: bytes of records per character, and shares."""

    bytes_per_character: float  # in one copy
    shares: Mapping[str, float]  # see `text_shares`


def text_shares(
    counts: Mapping[str, float], max_seq_length: int
) -> dict[str, float]:
    """Returns shares of a split's text and records, given its counts.

    Of all tokens `unknown_share` and `lost_share`, those in no record; and of
    the positions in records `padding_share`.
    """
    tokens = max(1, counts["tokens"])
    room = counts["instances"] * max_seq_length
    return {
        "unknown_share": counts["unknown_tokens"] / tokens,
        "lost_share": counts["skipped/tokens"] / tokens,
        "padding_share": (room - counts["instance_tokens"]) / max(1, room),
    }


def estimate_build(
    sample: CorpusSample, maker: RecordMaker, config: PretrainingDataConfig
) -> BuildEstimate:
    """Returns an estimate from records made of sampled documents."""
    num_bytes = num_characters = 0.0
    expected: dict[str, float] = defaultdict(float)
    for weight, document in sample.weighted_documents(_SIZE_SAMPLE_CHARS):
        excerpt = UnitDocument(
            _SPLIT, _SPLIT, document.name, document.paragraphs
        )
        counts: Counter[str] = Counter()
        of_excerpt = sum(
            len(record) + _RECORD_OVERHEAD
            for batch in maker([excerpt], counts)
            for record in batch.serialized
        )
        size = sum(map(len, document.paragraphs))
        num_bytes += weight * of_excerpt / size
        num_characters += weight
        for name, count in counts.items():
            expected[name.removeprefix(f"{_SPLIT}/")] += weight * count / size
        if size < document.num_characters and counts[f"{_SPLIT}/instances"]:
            # The excerpt's end cuts its last instance, about in the middle.
            expected["instances"] -= weight * 0.5 / size
    objective = SENTENCE_OBJECTIVES[config.sentence_objective]
    if objective.needs_other_documents:
        num_bytes *= _LENT
    return BuildEstimate(
        # Other documents may make records where none of the sample does.
        max(num_bytes / max(1.0, num_characters), _MIN_RATIO),
        text_shares(expected, config.max_seq_length),
    )


def build_warnings(
    estimate: BuildEstimate,
    config: PretrainingDataConfig,
    forms: Collection[str],
    sample: CorpusSample,
    tokenizer: Tokenizer,
) -> list[str]:
    """Returns a line for each share that is too large, with a remedy.

    `forms` are those of the corpus' files, see `forms.CorpusFile`.
    """
    separator = splitter = ""
    for form, lines in (("blank_line", "blank lines"), ("line", "line ends")):
        if form in forms:
            separator = (
                f"--document_separator=file if {lines} are between "
                "paragraphs rather than documents"
            )
    if config.sentence_splitter == "newline":
        splitter = "--sentence_splitter=punkt if lines hold several sentences"
    shorter = "a lower --max_seq_length"
    if config.short_seq_prob > _MAX_PADDING:
        shorter = "a lower --short_seq_prob"
    found = []
    if (padding := estimate.shares["padding_share"]) > _MAX_PADDING:
        found.append(
            f"{padding:.0%} of the records will be "
            f"padding at max_seq_length={config.max_seq_length}; consider "
            f"{_alternatives(separator, shorter)}."
        )
    if (lost := estimate.shares["lost_share"]) > _MAX_LOST:
        kept = _alternatives(separator, splitter, "--sentence_objective=none")
        found.append(
            f"{lost:.0%} of the tokens will be in no "
            "record, since a document of one sentence makes no pair of "
            f"segments; consider {kept}."
        )
    if (unknown := estimate.shares["unknown_share"]) > MAX_UNKNOWN:
        words = ", ".join(_unknown_words(sample, tokenizer))
        found.append(
            f"{unknown:.0%} of the tokens will be "
            f"unknown to the tokenizer, most often in {words}; consider "
            "another --tokenizer, such as one trained on this text "
            "(bin.train_vocab), or text without these."
        )
    return [f"Warning: about {line}" for line in found]


def sentence_end_warnings(
    sample: CorpusSample,
    splitter: SentenceSplitter,
    config: PretrainingDataConfig,
) -> Iterator[str]:
    """Yields a warning if most of the text has no recognised sentence ends."""
    if config.sentence_splitter == "newline":
        return
    total = without_end = 0.0
    first = ""
    for weight, document in sample.weighted_documents(_SIZE_SAMPLE_CHARS):
        lengths = [
            len(sentence)
            for paragraph in document.paragraphs
            for sentence in splitter.split(paragraph)
            if len(sentence) > _LONG_WITHOUT_END and not has_end(sentence)
        ]
        total += weight
        share = sum(lengths) / sum(map(len, document.paragraphs))
        without_end += weight * share
        if share > _MAX_WITHOUT_END:
            first = first or document.name
    if first and without_end > _MAX_WITHOUT_END * total:
        yield (
            f"Warning: about {without_end / total:.0%} of the text (such as "
            f"{first}) has no sentence ends in {_LONG_WITHOUT_END} characters "
            "and more, so that segments will begin and end in mid-sentence: "
            "put each sentence on a line and give --sentence_splitter=newline."
        )


def _alternatives(*settings: str) -> str:
    return ", or ".join(filter(None, settings))


def _unknown_words(sample: CorpusSample, tokenizer: Tokenizer) -> list[str]:
    """Returns the most frequent words of a sample with unknown tokens."""
    words = Counter(word for text in sample.texts() for word in text.split())
    ranked = sorted(words, key=lambda word: (-words[word], word))
    unknown = [
        repr(word[:_SHOWN_CHARS])
        for word, ids in zip(
            ranked, tokenizer.encode_batch(ranked), strict=True
        )
        if tokenizer.unk_id in ids
    ]
    return unknown[:_SHOWN_WORDS]

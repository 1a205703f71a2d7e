"""A SentencePiece vocabulary by ALBERT's recipe.

`train_vocabulary` makes a tokenizer directory from lines of text, with the
settings of google-research/albert's README: unigram pieces, the special ones
first, and a few signs that are always pieces of their own.
"""

import io
import os
import random
import re
from collections.abc import Iterable, Iterator
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from albert_tf import files
from albert_tf.config import UserError, differences, read_json, write_json
from albert_tf.text.normalization import normalize, truncate_utf8
from albert_tf.text.tokenizer import SentencePieceTokenizer

SUMMARY_FILE = "vocab_summary.json"
# For people: a piece and its score on each line.
VOCAB_FILE = "spiece.vocab"

CONTROL_SYMBOLS = ["[CLS]", "[SEP]", "[MASK]"]
# A list: today's SentencePiece reads the README's comma-separated text, which
# holds the quote character, as two symbols.
USER_DEFINED_SYMBOLS = ["(", ")", '"', "-", ".", "–", "£", "€"]
FIRST_PIECES = ["<pad>", "<unk>", *CONTROL_SYMBOLS, *USER_DEFINED_SYMBOLS]

# SentencePiece leaves out longer lines, so they are split before.
_MAX_SENTENCE_BYTES = 4192

# The estimates are summed per thread, so that another number of threads
# rounds them differently; a constant gives every machine the same scores.
_NUM_THREADS = 16


def train_vocabulary(
    lines: Iterable[str],
    output_dir: str | os.PathLike[str],
    *,
    vocab_size: int,
    do_lower_case: bool = True,
    keep_accents: bool = False,
    seed: int = 12345,
    input_sentence_size: int = 10_000_000,
    character_coverage: float = 0.99995,
    source: str = "",
) -> dict[str, Any]:
    """Returns the summary of a vocabulary, trained unless it is there already.

    The directory appears when it is complete. The same lines and settings
    give the same bytes.

    Args:
        lines: text, one sentence or paragraph each.
        output_dir: gets the tokenizer's files, `spiece.vocab` and
            `vocab_summary.json`.
        vocab_size: number of pieces, the special ones included.
        do_lower_case: whether text is lower-cased.
        keep_accents: whether accents stay.
        seed: of the sample of lines.
        input_sentence_size: most lines to train on, drawn at random.
        character_coverage: share of the characters that become pieces.
        source: what names the lines; a finished directory with another
            source is refused.

    Raises:
        UserError: when there is no text, when the text does not suit
            `vocab_size`, or when `output_dir` holds something else.
    """
    settings = {
        "vocab_size": vocab_size,
        "do_lower_case": do_lower_case,
        "keep_accents": keep_accents,
        "seed": seed,
        "input_sentence_size": input_sentence_size,
        "character_coverage": character_coverage,
        "source": source,
    }
    output_dir = os.path.abspath(output_dir)
    finished = _finished_summary(output_dir, settings)
    if finished is not None:
        return finished
    with files.new_directory(output_dir) as directory:
        counts = {"lines": 0, "empty_lines": 0, "sentences": 0, "bytes": 0}
        sentences = _sentences(
            lines,
            counts,
            do_lower_case=do_lower_case,
            keep_accents=keep_accents,
        )
        model_bytes = _train(
            _sample(sentences, input_sentence_size, seed),
            vocab_size=vocab_size,
            character_coverage=character_coverage,
        )
        tokenizer = SentencePieceTokenizer(
            model_bytes, do_lower_case=do_lower_case, keep_accents=keep_accents
        )
        _check_recipe(tokenizer)
        summary = {
            "settings": settings,
            "input": counts,
            "fingerprint": tokenizer.fingerprint,
        }
        tokenizer.save(directory)
        _write_pieces(tokenizer, os.path.join(directory, VOCAB_FILE))
        write_json(os.path.join(directory, SUMMARY_FILE), summary)
        os.rename(directory, output_dir)
    return summary


def _finished_summary(
    output_dir: str, settings: dict[str, Any]
) -> dict[str, Any] | None:
    """Returns the summary of an earlier run with the same settings."""
    if not os.path.exists(output_dir):
        return None
    path = os.path.join(output_dir, SUMMARY_FILE)
    if not os.path.exists(path):
        if os.path.isdir(output_dir) and not os.listdir(output_dir):
            return None
        raise UserError(
            f"{output_dir} exists and holds no {SUMMARY_FILE}; choose a new "
            f"directory."
        )
    summary = read_json(path)
    changes = differences(settings, summary.get("settings", {}))
    if changes:
        raise UserError(
            f"{output_dir} holds a vocabulary with other settings "
            f"({'; '.join(changes)}); choose a new directory."
        )
    return summary


def _sentences(
    lines: Iterable[str],
    counts: dict[str, int],
    *,
    do_lower_case: bool,
    keep_accents: bool,
) -> Iterator[str]:
    """Yields clean sentences that SentencePiece takes; adds to `counts`."""
    for line in lines:
        counts["lines"] += 1
        text = normalize(
            line, do_lower_case=do_lower_case, keep_accents=keep_accents
        )
        if not text:
            counts["empty_lines"] += 1
        for sentence in _split_long(text):
            counts["sentences"] += 1
            counts["bytes"] += len(sentence.encode())
            yield sentence


def _split_long(text: str) -> Iterator[str]:
    """Yields `text` in parts that are short enough, split at spaces."""
    start = 0
    while start < len(text):
        part = truncate_utf8(
            text[start : start + _MAX_SENTENCE_BYTES], _MAX_SENTENCE_BYTES
        )
        end = start + len(part)
        space = part.rfind(" ")
        # A word longer than a whole part is cut through.
        if end < len(text) and space > 0:
            part = part[:space]
        yield part.strip()
        start += len(part)


def _sample(sentences: Iterable[str], size: int, seed: int) -> list[str]:
    """Returns all sentences, or `size` of them drawn at random.

    Not left to SentencePiece, whose sample is another one in every process,
    whatever its seed.
    """
    rng = random.Random(seed)
    sample: list[str] = []
    for number, sentence in enumerate(sentences):
        if number < size:
            sample.append(sentence)
        elif (place := rng.randrange(number + 1)) < size:
            sample[place] = sentence
    return sample


def _train(
    sentences: list[str], *, vocab_size: int, character_coverage: float
) -> bytes:
    """Returns a SentencePiece model by the recipe."""
    if not sentences:
        raise UserError("The input holds no text to train a vocabulary on.")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=CONTROL_SYMBOLS,
            user_defined_symbols=USER_DEFINED_SYMBOLS,
            shuffle_input_sentence=False,
            character_coverage=character_coverage,
            max_sentence_length=_MAX_SENTENCE_BYTES,
            num_threads=_NUM_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UserError(_explain(str(error), vocab_size)) from None
    return model.getvalue()


def _explain(error: str, vocab_size: int) -> str:
    """Returns what a message of SentencePiece's trainer means for a user."""
    if match := re.search(r"too high .* value <= (\d+)", error):
        return (
            f"vocab_size={vocab_size} is more than the text has pieces for; "
            f"the largest possible is {match[1]}."
        )
    if match := re.search(r"required_chars\. \d+ vs (\d+)", error):
        return (
            f"vocab_size={vocab_size} is too small for the special pieces and "
            f"the text's characters; the least is {match[1]}, or fewer with a "
            f"lower character_coverage."
        )
    return f"SentencePiece cannot train: {' '.join(error.split())}"


def _check_recipe(tokenizer: SentencePieceTokenizer) -> None:
    """Asserts what google-research/albert's models rely on."""
    first = tokenizer.pieces(range(len(FIRST_PIECES)))
    assert first == FIRST_PIECES, first
    assert FIRST_PIECES.index("(") in tokenizer.encode("(")


def _write_pieces(tokenizer: SentencePieceTokenizer, path: str) -> None:
    pieces = sentencepiece_model_pb2.ModelProto.FromString(
        tokenizer.model_bytes
    ).pieces
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{p.piece}\t{p.score:g}\n" for p in pieces)

"""A SentencePiece vocabulary by ALBERT's recipe.

`train_vocabulary` makes a tokenizer directory from lines of text, with the
settings of google-research/albert's README: unigram pieces, the special ones
first, and a few signs that are always pieces of their own.
"""

import contextlib
import heapq
import io
import json
import operator
import os
import random
import re
import subprocess
import sys
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import IO, Any

from sentencepiece import sentencepiece_model_pb2

from albert_tf.config import Log, UserError, differences, require, silent
from albert_tf.io import directories, files
from albert_tf.io.json_files import read_json, write_json
from albert_tf.text.normalization import COMBINING, normalize, truncate_utf8
from albert_tf.text.tokenizer import SentencePieceTokenizer

SUMMARY_FILE = "vocab_summary.json"

CONTROL_SYMBOLS = ["[CLS]", "[SEP]", "[MASK]"]
# A list: today's SentencePiece reads the README's comma-separated text, which
# holds the quote character, as two symbols.
USER_DEFINED_SYMBOLS = ["(", ")", '"', "-", ".", "–", "£", "€"]

# SentencePiece leaves out longer lines, so they are split before.
_MAX_SENTENCE_BYTES = 4192

# SentencePiece writes unknown characters so, and skips lines that hold it.
_RESERVED = "\u2585"

# Marks in a byte of text above which they are no rare accents.
_MAX_MARKS = 0.002

# Memory of a sentence beside that of its characters, in characters.
_SENTENCE_COST = 10

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
    sample_characters: int = 50_000_000,  # with 1.4 GB of memory
    character_coverage: float = 0.99995,
    source: str = "",
    log: Log = silent,
) -> dict[str, Any]:
    """Trains a vocabulary unless it exists already; returns its summary.

    The directory appears when it is complete. The same lines and settings
    give the same bytes.

    `output_dir` gets the tokenizer's files, `spiece.vocab` and
    `vocab_summary.json`. Training takes a random sample of the lines, of at
    most `input_sentence_size` lines and `sample_characters` characters, where
    each line counts for ten more. `vocab_size` includes the special pieces;
    `character_coverage` is the share of the characters that become pieces.
    `source` is a fingerprint of the lines: a finished directory of another
    one is refused.

    Raises:
        UserError: when there is no text, when the text does not suit
            `vocab_size`, or when `output_dir` holds something else.
    """
    clean_up = {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
    settings = {
        "vocab_size": vocab_size,
        **clean_up,
        "seed": seed,
        "input_sentence_size": input_sentence_size,
        "sample_characters": sample_characters,
        "character_coverage": character_coverage,
        "source": source,
    }
    output_dir = directories.path_on_disk(output_dir)
    check_output_directory(output_dir)
    finished = _finished_summary(output_dir, settings)
    if finished is not None:
        return finished
    counts = {"lines": 0, "empty_lines": 0, "sentences": 0, "bytes": 0}
    marks: Counter[str] = Counter()
    with directories.new_directory(output_dir) as directory:
        sample = _sample(
            _sentences(lines, counts, marks, clean_up),
            input_sentence_size,
            sample_characters,
            seed,
        )
        log(
            f"Training on {len(sample)} of {counts['sentences']} sentences, "
            f"{sum(map(len, sample))} characters."
        )
        if line := _marks_warning(marks, counts["bytes"]):
            log(line)
        model_bytes = _train(sample, vocab_size, character_coverage, log)
        tokenizer = SentencePieceTokenizer(model_bytes, **clean_up)
        summary = {
            "settings": settings,
            "input": counts,
            "fingerprint": tokenizer.fingerprint,
        }
        tokenizer.save(directory)
        _write_pieces(model_bytes, directory)
        write_json(os.path.join(directory, SUMMARY_FILE), summary)
        os.rename(directory, output_dir)
    return summary


def _write_pieces(model_bytes: bytes, directory: str) -> None:
    """Writes `spiece.vocab`, for people: a piece and its score on each line."""
    pieces = sentencepiece_model_pb2.ModelProto.FromString(model_bytes)
    rows = [f"{p.piece}\t{p.score:.9g}\n" for p in pieces.pieces]
    path = os.path.join(directory, "spiece.vocab")
    files.write(path, "".join(rows).encode())


def check_output_directory(output_dir: str) -> None:
    """Raises UserError unless a directory is new, empty or a vocabulary's.

    It has to be on a disk.
    """
    directories.path_on_disk(output_dir)
    is_empty = os.path.isdir(output_dir) and not os.listdir(output_dir)
    require(
        is_empty
        or os.path.exists(os.path.join(output_dir, SUMMARY_FILE))
        or not os.path.lexists(output_dir),
        f"{output_dir} exists and holds no {SUMMARY_FILE}; choose a new "
        "directory.",
    )


def _finished_summary(
    output_dir: str, settings: dict[str, Any]
) -> dict[str, Any] | None:
    """Returns the summary of an earlier run with the same settings."""
    path = os.path.join(output_dir, SUMMARY_FILE)
    if not os.path.exists(path):
        return None
    summary = read_json(path)
    changes = differences(settings, summary.get("settings", {}))
    require(
        not changes,
        f"{output_dir} holds a vocabulary with other settings "
        f"({'; '.join(changes)}); choose a new directory.",
    )
    return summary


def _marks_warning(marks: Counter[str], num_bytes: int) -> str:
    """Returns a warning where a script's marks are dropped as accents.

    Composed letters, such as those of French and Vietnamese, do not count.
    """
    number = marks.total()
    if number <= _MAX_MARKS * num_bytes:
        return ""
    mark, _ = marks.most_common(1)[0]
    name = unicodedata.name(mark, f"U+{ord(mark):04X}")
    return (
        f"WARNING: {number:,} marks, most often {name}, are dropped as accents "
        "are. In some scripts (Indic ones, Thai, pointed Hebrew) words differ "
        "by them: --keep_accents keeps them."
    )


def _sentences(
    lines: Iterable[str],
    counts: dict[str, int],
    marks: Counter[str],
    clean_up: dict[str, bool],
) -> Iterator[str]:
    """Yields clean sentences of bounded length; adds to `counts`.

    `marks` counts the dropped ones that are no part of a composed letter.
    """
    for line in lines:
        counts["lines"] += 1
        if not (clean_up["keep_accents"] or line.isascii()):
            composed = unicodedata.normalize("NFC", line)
            if COMBINING.sub("", composed) != composed:
                marks.update(c for c in composed if c in COMBINING)
        text = normalize(line.replace(_RESERVED, " "), **clean_up)
        counts["empty_lines"] += not text
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


def _sample(
    sentences: Iterable[str], max_sentences: int, max_characters: int, seed: int
) -> list[str]:
    """Returns all sentences, or a random sample within the limits.

    Not left to SentencePiece, which reads everything into memory first, and
    samples differently in every process, whatever its seed.
    """
    rng = random.Random(seed)
    # The sentences of the lowest priorities; the highest of them first.
    kept: list[tuple[float, int, str]] = []
    num_characters = 0
    limit = 1.0
    for number, sentence in enumerate(sentences):
        priority = rng.random()
        if priority >= limit:
            continue
        heapq.heappush(kept, (-priority, number, sentence))
        num_characters += len(sentence) + _SENTENCE_COST
        while len(kept) > max_sentences or num_characters > max_characters:
            negative_priority, _, dropped = heapq.heappop(kept)
            limit = -negative_priority
            num_characters -= len(dropped) + _SENTENCE_COST
    kept.sort(key=operator.itemgetter(1))
    return [sentence for _, _, sentence in kept]


# A process of its own, since SentencePiece holds Python's lock, and running out
# of memory must not end this process.
_TRAINER = """
import io, json, os, signal, sys, sentencepiece
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
lines = open(0, encoding="utf-8", newline="\\n")
model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=(line.rstrip("\\n") for line in lines),
    model_writer=model,
    **json.loads(sys.argv[1]),
)
# The model is read when the log has ended.
os.close(2)
sys.stdout.buffer.write(model.getvalue())
"""
# The trainer logs its stages; the second of two EM steps is left out.
_STAGE = re.compile(r"unigram_model_trainer.*LOG\(INFO\) (?!EM sub_iter=1)(.*)")


def _train(
    sentences: list[str],
    vocab_size: int,
    character_coverage: float,
    log: Log,
) -> bytes:
    """Returns a SentencePiece model by the recipe."""
    require(
        sentences != [], "The input holds no text to train a vocabulary on."
    )
    settings = {
        "model_type": "unigram",
        "vocab_size": vocab_size,
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        "control_symbols": CONTROL_SYMBOLS,
        "user_defined_symbols": USER_DEFINED_SYMBOLS,
        "shuffle_input_sentence": False,
        "character_coverage": character_coverage,
        "max_sentence_length": _MAX_SENTENCE_BYTES,
        "num_threads": _NUM_THREADS,
        "minloglevel": 0,
    }
    with subprocess.Popen(
        [sys.executable, "-c", _TRAINER, json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        last = _feed(process, sentences, log)
        model_bytes = process.stdout.read()
    if process.returncode:
        raise UserError(_explain(process.returncode, last, vocab_size))
    return model_bytes


def _feed(
    process: subprocess.Popen,
    sentences: Iterable[str],
    log: Log,
) -> str:
    """Gives the trainer its sentences and logs its stages.

    Returns the last line that it wrote.
    """
    begin = time.monotonic()
    last = ""
    # It may log while it reads: were the log read only then, a full pipe
    # would make each wait for the other.
    feeder = threading.Thread(
        target=_write_lines, args=(process.stdin, sentences)
    )
    feeder.start()
    try:
        for line in io.TextIOWrapper(process.stderr, errors="replace"):
            last = line
            if stage := _STAGE.search(line):
                log(f"{time.monotonic() - begin:.0f} s: {stage[1]}")
    except BaseException:
        process.kill()
        raise
    finally:
        feeder.join()
    return last


def _write_lines(file: IO[bytes], sentences: Iterable[str]) -> None:
    """Writes sentences to a process, unless that has ended."""
    with contextlib.suppress(BrokenPipeError), file:
        file.writelines(f"{s}\n".encode() for s in sentences)


def _explain(exit_code: int, error: str, vocab_size: int) -> str:
    """Returns a message about a failure of SentencePiece's trainer."""
    if exit_code < 0:
        return (
            f"The training was ended by signal {-exit_code}, perhaps for lack "
            "of memory; start the same command again, with a smaller "
            "sample_characters if so."
        )
    if match := re.search(r"too high .* value <= (\d+)", error):
        return (
            f"vocab_size={vocab_size} is more than the text has pieces for; "
            f"the maximum is {match[1]}."
        )
    if match := re.search(r"required_chars\. \d+ vs (\d+)", error):
        return (
            f"vocab_size={vocab_size} is too small for the special pieces and "
            f"the text's characters; the minimum is {match[1]}, or fewer "
            "with a lower character_coverage."
        )
    return f"SentencePiece cannot train: {' '.join(error.split())}"

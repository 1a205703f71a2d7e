"""Search in texts by meaning and by words: passages that answer a question.

python -m bin.search --index_texts=texts --index_dir=index \\
    --model_dir=runs/embeddings
python -m bin.search --index_texts=texts --index_dir=words
python -m bin.search --index_dir=index --query='How is asthma treated?'
"""

import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from absl import flags

from albert_tf.config import require, shown
from albert_tf.io import files
from albert_tf.io.compression import packing
from albert_tf.search.index import (
    DEFAULT_RANKING,
    DEFAULT_TOP_K,
    RANKINGS,
    Hit,
    Index,
    answer,
    document_ranks,
)
from albert_tf.search.ranking import recall
from albert_tf.search.words import words_of
from albert_tf.tasks.formats.json_rows import value_or_none
from albert_tf.tasks.formats.json_values import (
    check,
    parse_line,
    read_json_lines,
)
from albert_tf.tasks.formats.rows import (
    EXTENSIONS,
    JSON_EXTENSIONS,
    JSON_LINES,
    ending_of,
)
from albert_tf.tasks.formats.tables import MARK, decoded_lines, stored_lines
from bin import command_line, corpora, own_rows

if TYPE_CHECKING:
    from albert_tf.search.embedder import Embedder

FLAGS = flags.FLAGS
# Places of the right document whose recall --evaluate reports.
_RECALL_CUTOFFS = (1, 10)


def define_flags() -> None:
    own_rows.define_flag()
    corpora.define_flags("index_texts")
    corpora.define_passage_flags()
    flags.DEFINE_string("index_dir", None, "Index to write or to search.")
    flags.DEFINE_string("model_dir", None, command_line.MODEL_HELP)
    flags.DEFINE_enum(
        "vectors",
        "float32",
        ["float32", "float16"],
        "Numbers of the vectors on disk.",
    )
    flags.DEFINE_multi_string("query", [], "A question; may be repeated.")
    flags.DEFINE_string(
        "input",
        None,
        "A file with a question in each line, in JSON as query; - reads "
        "standard input. A blank line has no passages.",
    )
    flags.DEFINE_string(
        "output",
        "-",
        "A file for the answers, a line of JSON for each question; - is "
        "standard output, with answers to --query in plain text.",
    )
    flags.DEFINE_integer(
        "top_k", DEFAULT_TOP_K, "Passages for each question.", lower_bound=1
    )
    flags.DEFINE_enum(
        "ranking",
        DEFAULT_RANKING,
        list(RANKINGS),
        "How passages are ranked. embedding: by the cosine of their vectors "
        "with the question's; bm25, tfidf: by the words of the question, "
        "without a model; hybrid: embedding and bm25 together, by reciprocal "
        "rank fusion.",
    )
    flags.DEFINE_string(
        "evaluate",
        None,
        "Lines of JSON with a question as query and the name of the right "
        "document as document: prints the recall of every ranking; without "
        "--model_dir of those by words.",
    )
    flags.DEFINE_integer("batch_size", 64, "Texts per batch.", lower_bound=1)
    command_line.written_as("output", JSON_EXTENSIONS, packed=True)
    command_line.required("index_dir")


def main() -> None:
    asked = [bool(FLAGS[n].value) for n in ("query", "input", "evaluate")]
    require(
        sum(asked) <= 1 and (any(asked) or bool(FLAGS.index_texts)),
        "Give texts to index with --index_texts, questions with one of "
        "--query, --input and --evaluate, or both.",
    )
    reads_vectors = RANKINGS[FLAGS.ranking].reads_vectors
    require(
        bool(FLAGS.model_dir) or not reads_vectors,
        f"--ranking={FLAGS.ranking} compares vectors. Give the model with "
        "--model_dir; without one there are --ranking=tfidf and bm25.",
    )
    model: dict[str, Any] = {}
    embedder = None
    if FLAGS.model_dir and (
        FLAGS.index_texts or FLAGS.evaluate or reads_vectors
    ):
        command_line.load_tensorflow()
        from albert_tf.search.embedder import Embedder

        embedder = Embedder(FLAGS.model_dir, FLAGS.batch_size)
        model = {"model": embedder.description, "embed": embedder.embed}
    if FLAGS.model_dir and not embedder:
        print(
            f"--model_dir={FLAGS.model_dir} is not read: "
            f"--ranking={FLAGS.ranking} compares words; embedding and hybrid "
            "compare vectors.",
            file=sys.stderr,
            flush=True,
        )
    if FLAGS.index_texts:
        _write(embedder)
    if not any(asked):
        return
    index = Index.open(FLAGS.index_dir, **model)
    if FLAGS.evaluate:
        _evaluate(index)
    else:
        _answer(index)


def _write(embedder: "Embedder | None") -> None:
    """Writes the index: vectors and words, or without a model words alone."""
    command_line.load_tensorflow()
    from albert_tf.search.index_writer import write_index

    def lengths(texts: list[str]) -> Iterable[int]:
        if embedder:
            return map(len, embedder.tokenizer.encode_batch(texts))
        return (len(words_of(text)) for text in texts)

    longest = embedder.max_seq_length - 2 if embedder else corpora.PASSAGE_WORDS
    passages = corpora.passages(lengths, longest, "index_texts")
    with command_line.progress("passages") as show:
        write_index(
            FLAGS.index_dir,
            passages,
            embedder.embed if embedder else None,
            model=embedder.description if embedder else None,
            dtype=FLAGS.vectors,
            progress=show,
        )
    kind = "" if embedder else ", without vectors, as no --model_dir is given"
    print(
        f"{len(passages)} passages are in {FLAGS.index_dir}{kind}.", flush=True
    )


def _questions() -> list[str]:
    """Returns the questions; that of a blank line is empty."""
    if FLAGS.query:
        return [question.strip() for question in FLAGS.query]
    path, advice = FLAGS.input, "expected a question in each line."
    ending = ending_of(path)
    require(
        ending == JSON_LINES or ending not in EXTENSIONS,
        f"{path} is a table by its name ({ending}); expected a question in "
        'each line of a text, or lines of JSON with a "query" (.jsonl).',
    )
    stored = sys.stdin.buffer if path == "-" else stored_lines(path, advice)
    # Files that begin with a byte-order mark may have been joined.
    questions = [
        line.removeprefix(MARK).strip()
        for line in decoded_lines(path, stored, advice)
    ]
    first = next(filter(None, questions), "")
    if ending == JSON_LINES or isinstance(value_or_none(first), dict):
        questions = [
            text and _asked(f"{path}:{number}", text)
            for number, text in enumerate(questions, start=1)
        ]
    require(any(questions), f"{path} has no question.")
    return questions


def _asked(location: str, text: str) -> str:
    """Returns the question of a line of JSON."""
    row = parse_line(location, text)
    check(row, {"query": str}, location)
    return row["query"].strip()


def _answer(index: Index) -> None:
    questions = _questions()
    asked = [question for question in questions if question]
    answers = iter(index.search(asked, FLAGS.top_k, FLAGS.ranking))
    # A blank line keeps its place, so that answers can be joined to lines.
    rows = [(q, next(answers) if q else []) for q in questions]
    if FLAGS.output != "-":
        with (
            files.replacing(FLAGS.output) as file,
            packing(file, FLAGS.output) as packed,
        ):
            for row in rows:
                packed.write(f"{_json(*row)}\n".encode())
    else:
        for row in rows:
            lines = _plain(*row) if FLAGS.query else [_json(*row)]
            for line in lines:
                command_line.log(line)


def _json(question: str, hits: list[Hit]) -> str:
    return json.dumps(answer(question, hits), ensure_ascii=False)


def _plain(question: str, hits: list[Hit]) -> Iterator[str]:
    yield question
    for place, hit in enumerate(hits, start=1):
        yield (
            f"{place}. {hit.document}, passage {hit.place} "
            f"({hit.score:.3g}): {hit.text}"
        )
    if not hits:
        yield "No passage has a word of the question."


def _evaluate(index: Index) -> None:
    questions = list(_labelled_questions(set(index.documents())))
    require(bool(questions), f"{FLAGS.evaluate} has no question.")
    columns = {}
    for name in index.rankings:
        ranks = document_ranks(index, questions, name, max(_RECALL_CUTOFFS))
        columns[name] = recall(ranks, _RECALL_CUTOFFS)
    print(f"{len(questions)} questions, {len(index.passages)} passages:")
    print(command_line.metrics_table(columns))


def _labelled_questions(known: set[str]) -> Iterator[tuple[str, str]]:
    advice = "expected a line of JSON with query and document for each question"
    for location, row in read_json_lines(FLAGS.evaluate, f"{advice}."):
        check(row, {"query": str, "document": str}, location)
        require(bool(row["query"].strip()), f"{location}: the query is empty.")
        require(
            row["document"] in known,
            f"{location}: the index has no document {shown(row['document'])}.",
        )
        yield row["query"], row["document"]


if __name__ == "__main__":
    command_line.run(define_flags, main)

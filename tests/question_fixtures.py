"""Questions, and a tokenizer whose tokens are easy to count."""

import collections
import json
import re

from albert_tf.config import FeatureConfig
from albert_tf.tasks.examples import Answer, Question
from albert_tf.tasks.glue import GLUE_TASKS
from albert_tf.text.tokenizer_base import Encoding

# A piece is up to three characters and their accents, with one white space
# in front; a line's end is a piece that no character is of.
_PIECE = re.compile(
    r"(?P<end>\n)|\s?(?:[^\s\u0300-\u036f][\u0300-\u036f]*){1,3}"
)


class FakeTokenizer:
    """Has the contract of `Tokenizer`, as far as windows need it."""

    pad_id, cls_id, sep_id = 0, 2, 3

    def __init__(self):
        self.numbers = {}
        self.calls = collections.Counter()

    def encode_with_offsets(self, text):
        self.calls[text] += 1
        found = Encoding()
        for match in _PIECE.finditer(text):
            number = 10 + len(self.numbers)
            found.ids.append(self.numbers.setdefault(match[0], number))
            found.starts.append(match.start())
            found.ends.append(match.start() if match["end"] else match.end())
        return found

    def encode_batch(self, texts):
        return [self.encode_with_offsets(text).ids for text in texts]


def question(context, *answers, text="who is it", id_="q"):
    golds = tuple(
        Answer(a, context.index(a)) if isinstance(a, str) else Answer(*a)
        for a in answers
    )
    return Question(id_, text, context, golds, f"place of {id_}")


SMALL = FeatureConfig(max_seq_length=24, max_query_length=4, doc_stride=5)
TEXT = (
    "Ünïted  Nations\u00a0met in\n\nKöln — 😀 e\u0301te\u0301 — "
    "and\tthen, 3.5 years later, again in São Paulo; nobody came to the end."
)


def build(kind, questions, config=SMALL, *, training=False, tokenizer=None):
    """Returns the features of questions."""
    return kind.features(
        questions, tokenizer or FakeTokenizer(), config, training=training
    )


ANSWERS = [
    "Ünïted",
    "Köln",
    "in\n\nKöln",
    "😀",
    "e\u0301te\u0301",
    "the end.",
    "3.5",
    "São Paulo",
    "o",
    "met in\n\nKöln — 😀 e\u0301te\u0301 — and\tthen, 3.5 years later, again",
]


def squad_json(*rows, context="Red."):
    """Returns a file in SQuAD's format, of one paragraph."""
    paragraph = {"context": context, "qas": list(rows)}
    return json.dumps({"data": [{"paragraphs": [paragraph]}]})


def glue_table(task, labels):
    """Returns the name and the content of a task's dev file."""
    file = GLUE_TASKS[task].reader.files["dev"]
    columns = 1 + max(*file.texts, file.label) + (file.label == -1)
    rows = [["header"]] if file.header else []
    for label in labels:
        rows.append(['A "'] * columns)
        rows[-1][file.label] = str(label)
    return file.name, "".join("\t".join(row) + "\n" for row in rows)


def race_json(id_, answers):
    """Returns an article of RACE with a question for each answer's letter."""
    return json.dumps(
        {
            "article": "It is so.",
            "id": id_,
            "questions": ["Is _ ?"] * len(answers),
            "options": [list("abcd")] * len(answers),
            "answers": list(answers),
        }
    )

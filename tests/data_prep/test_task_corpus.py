import json

import pytest
from training_fixtures import write_task

from albert_tf.config import UserError
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.custom import CLASSIFICATION, custom_task
from data_prep.task_corpus import build_task_corpus


def corpus_of(task, directory):
    """Returns the result of `build_task_corpus`, and the documents."""
    found = build_task_corpus(task, str(directory), str(directory / "out"))
    text = (directory / "out/train.txt").read_text(encoding="utf-8")
    assert text.endswith("\n\n")
    return found, [block.split("\n") for block in text[:-2].split("\n\n")]


def test_the_texts_of_a_pair_are_a_document(tmp_path):
    write_task(
        tmp_path,
        ["éa b\tc  d\tx", "e\t \ty"],
        ["dev\tdev\tx"],
        header="one\ttwo\tlabel",
    )
    task = custom_task(["text=one", "text=two", "label=label"])
    assert corpus_of(task, tmp_path) == ((2, True), [["éa b", "c d"], ["e"]])


def test_twenty_single_texts_are_a_document(tmp_path):
    write_task(tmp_path, [f"text {n}\t{n % 2}" for n in range(45)])
    found, documents = corpus_of(CLASSIFICATION, tmp_path)
    assert found == (3, False)
    assert list(map(len, documents)) == [20, 20, 5]
    assert documents[1][0] == "text 20"


def test_halves_of_emoji_are_replaced(tmp_path):
    """JSON has them where JavaScript cut a text."""
    line = '{"text": "\\ud83d\\ude00 cut \\ud83d", "label": 1}'
    (tmp_path / "train.jsonl").write_text(line)
    _, documents = corpus_of(CLASSIFICATION, tmp_path)
    assert documents == [["\U0001f600 cut \ufffd\ufffd\ufffd"]]


def test_a_question_and_its_paragraph_are_a_document(tmp_path):
    answers = [{"text": "a", "answer_start": 4}]
    question = {"id": "1", "question": "what?", "answers": answers}
    paragraph = {"context": "two\n\na lines", "qas": [question]}
    articles = {"data": [{"title": "t", "paragraphs": [paragraph]}]}
    (tmp_path / "train-v1.1.json").write_text(json.dumps(articles))
    found = corpus_of(TASKS["SQuAD1.1"], tmp_path)
    assert found == ((1, True), [["what?", "two a lines"]])


def test_tagged_words_are_a_line(tmp_path):
    (tmp_path / "train.tsv").write_text("a\tx\nb\ty\n\nc\tx\n")
    task = custom_task(["word=0", "tag=1"])
    assert corpus_of(task, tmp_path) == ((1, False), [["a b", "c"]])


def test_a_file_of_the_user_stays(tmp_path):
    tagged = "a x\nb y\n\nc x\n"
    (tmp_path / "train.txt").write_text(tagged)
    task = custom_task(["word=0", "tag=1"])
    with pytest.raises(UserError, match=r"train\.txt exists, with other text"):
        build_task_corpus(task, str(tmp_path), str(tmp_path))
    assert (tmp_path / "train.txt").read_text() == tagged
    # Repeating it does no harm.
    assert corpus_of(task, tmp_path) == corpus_of(task, tmp_path)


def test_examples_without_text(tmp_path):
    write_task(tmp_path, [" \t0", " \t1"], header="sentence\tlabel")
    message = "no train example of SST-2 has text"
    with pytest.raises(UserError, match=message):
        corpus_of(TASKS["SST-2"], tmp_path)
    assert not (tmp_path / "out").exists()

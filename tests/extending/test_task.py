"""The row that docs/extending.md adds: its files are read.

test_own_rows trains on a task of one's own, and evaluates it.
"""

from albert_tf.tasks.catalog import TASKS


def test_a_row_is_all_that_reading_a_task_needs(import_section, tmp_path):
    task = import_section("A task", TASKS, "moods")
    (tmp_path / "dev.txt").write_text("glad it is fine\nsad it is not\n" * 2)
    examples = task.read(str(tmp_path), "dev")
    assert [(e.texts, e.label) for e in examples[:2]] == [
        (("it is fine",), "glad"),
        (("it is not",), "sad"),
    ]
    assert examples[1].location == "dev.txt:2"
    assert task.kind.labels(examples) == ["glad", "sad"]

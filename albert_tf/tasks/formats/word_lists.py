"""Sentences as lists of words and of their tags, a row of columns each."""

from albert_tf.config import shown
from albert_tf.tasks.bad_rows import RowError
from albert_tf.tasks.examples import WordsExample
from albert_tf.tasks.formats.columns import check_columns
from albert_tf.tasks.formats.json_values import shown_json
from albert_tf.tasks.formats.record import (
    Record,
    Roles,
    check_characters,
    listed_in,
)
from albert_tf.tasks.formats.rows import Rows


def word_list_examples(
    rows: Rows, roles: Roles, labelled: bool
) -> list[WordsExample]:
    """Returns the sentences of a file, as data sets of the hub have them.

    `roles` are the columns `words` and `tags`, which `labelled` requires.
    Raises UserError for columns that are missing, and for bad rows
    (`Rows.settled`): what is no list, no words, another number of tags.
    """
    (words,), (tags,) = roles["words"], roles["tags"]
    tagged = check_columns(rows, roles, [tags], labelled)

    def example(record: Record) -> WordsExample:
        found = words_of(record, words)
        if not found:
            raise RowError(record.location, "the text has no words")
        if not tagged:
            return WordsExample(found, None, record.location)
        of_words = words_of(record, tags)
        if len(of_words) != len(found):
            raise RowError(
                record.location,
                f"expected as many {shown(tags)} as {shown(words)}",
                f", got {len(of_words)} and {len(found)}",
            )
        check_characters(of_words, record.location)
        return WordsExample(found, of_words, record.location)

    return rows.settled(rows.apply(example))


def words_of(record: Record, name: str) -> tuple[str, ...]:
    """Returns the words, or tags, in a column; raises RowError for no list.

    A list in a table is JSON.
    """
    texts = record.texts(name)
    found = listed_in(texts) if isinstance(texts, str) else texts
    if found is None:
        raise RowError(
            record.location,
            f"expected a list of strings or numbers, in JSON, as {shown(name)}",
            f", got {shown_json(record.values[name])}",
        )
    return found

"""A linear model of each word and its neighbours."""

import numpy as np

from albert_tf.tasks.baselines.linear_tags import predicted_tags
from albert_tf.tasks.baselines.table import baseline_scores
from albert_tf.tasks.custom import custom_task
from albert_tf.tasks.examples import WordsExample

TASK = custom_task(["word=0", "tag=-1"])


def tagged(rng, tag, count=60):
    """Sentences of five words, each tagged by `tag(words, position)`."""
    words = [f"{part}{number}" for part in "ab" for number in range(5)]
    examples = []
    for _ in range(count):
        sentence = tuple(str(word) for word in rng.choice(words, 5))
        tags = tuple(tag(sentence, n) for n in range(5))
        examples.append(WordsExample(sentence, tags))
    return examples


def accuracy(tag):
    rng = np.random.default_rng(0)
    train, dev = tagged(rng, tag), tagged(rng, tag)
    labels = TASK.kind.labels(train)
    predicted = predicted_tags(TASK.kind, train, dev, labels)
    return np.mean(predicted == TASK.kind.label_ids(dev, labels))


def test_words_tell_tags():
    assert accuracy(lambda words, n: words[n]) == 1.0


def test_prefixes_and_suffixes_tell_tags():
    assert accuracy(lambda words, n: words[n][0] + words[n][-1]) == 1.0


def test_neighbours_tell_tags():
    def second_before(words, n):
        return words[n - 2][0] if n > 1 else "none"

    def second_behind(words, n):
        return words[n + 2][0] if n < 3 else "none"

    assert accuracy(second_before) > 0.97
    assert accuracy(second_behind) > 0.97


def test_shapes_tell_tags_of_words_that_are_new():
    rng = np.random.default_rng(0)
    shapes = {
        "small": str.lower,
        "Name": str.capitalize,
        "CAPITALS": str.upper,
        "mark": lambda word: f"{word[0]}-{word[1]}",
        "number": lambda word: str(1000 + sum(map(ord, word))),
    }

    def sentences(count):
        for _ in range(count):
            tags = tuple(str(tag) for tag in rng.choice(list(shapes), 5))
            words = ("".join(rng.choice(list("abcdefgh"), 9)) for _ in tags)
            pairs = zip(tags, words, strict=True)
            shown = tuple(shapes[tag](word) for tag, word in pairs)
            yield WordsExample(shown, tags)

    scored = baseline_scores(TASK, [*sentences(60)], [*sentences(40)])
    assert TASK.kind.compute_metrics(scored, {})["accuracy"] > 0.97


def test_each_word_of_each_sentence_has_a_row():
    rng = np.random.default_rng(0)
    train = tagged(rng, lambda words, n: words[n][0])
    dev = [
        WordsExample(("a1",), ("a",)),
        WordsExample(("b1", "a2", "b3"), ("b", "a", "b")),
    ]
    scored = baseline_scores(TASK, train, dev)
    assert [row.tolist() for row in scored.scores] == [
        [[1, 0]],
        [[0, 1], [1, 0], [0, 1]],
    ]

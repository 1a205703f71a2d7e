"""Indices of passages: what is written, found and refused."""

import numpy as np
import pytest

from albert_tf.config import UserError
from albert_tf.search.index import Index, document_ranks
from albert_tf.search.index_writer import write_index
from data_prep.passages import Passage

PASSAGES = [
    Passage("a.txt", 1, "The sea is deep."),
    Passage("a.txt", 2, "Ships sail on it.\x85\u2028And fish swim."),
    Passage("b.txt#2", 1, "Mountains are high."),
]
MODEL = {"weights": "1"}


def embed(texts):
    """Vectors by the number of letters s, and of all letters."""
    return np.array([[text.count("s"), len(text)] for text in texts], float)


def write(directory, passages=PASSAGES, **options):
    write_index(str(directory), passages, embed, model=MODEL, **options)
    return Index.open(str(directory), MODEL, embed)


def test_a_passage_is_found_by_its_own_text(tmp_path):
    index = write(tmp_path / "index")
    (hits,) = index.search([PASSAGES[1].text], 2, "embedding")
    assert hits[0][1:] == PASSAGES[1]
    assert hits[0].score == pytest.approx(1)
    assert len(hits) == 2


def test_words_find_only_passages_that_have_them(tmp_path):
    write(tmp_path / "index")
    index = Index.open(str(tmp_path / "index"))
    first, second = index.search(["high sea", "volcano"], 9, "bm25")
    # The shorter of both passages with one of the words comes first.
    assert [hit[1:] for hit in first] == [PASSAGES[2], PASSAGES[0]]
    assert second == []


@pytest.mark.parametrize("ranking", ["tfidf", "bm25"])
def test_of_equally_good_passages_the_first_comes_first(tmp_path, ranking):
    texts = [f"{'The sea' if n % 3 else 'A hill'} is deep." for n in range(60)]
    passages = [Passage("a.txt", n, text) for n, text in enumerate(texts)]
    write_index(str(tmp_path / "index"), passages)
    index = Index.open(str(tmp_path / "index"))
    (hits,) = index.search(["sea"], 30, ranking)
    assert [hit.place for hit in hits] == [n for n in range(60) if n % 3][:30]


def test_vectors_are_not_read_where_words_are_searched_for(tmp_path):
    write(tmp_path / "index")
    (tmp_path / "index" / "vectors.npy").unlink()
    ((hit,),) = Index.open(str(tmp_path / "index")).search(["mountains"], 5)
    assert hit[1:] == PASSAGES[2]


@pytest.mark.parametrize("ranking", ["tfidf", "bm25"])
@pytest.mark.parametrize(
    ("query", "other", "right"),
    [
        ("東京の水", "川は長い。京には東がある。", "大会は東京で開かれた。"),
        ("カメラ", "メモとラジオとカバン。", "新しいカメラを買った。"),
        ("학교", "교사는 학생이다.", "아이는 학교에서 배운다."),
        ("水", "火。", "水道水。"),
    ],
)
def test_words_without_spaces_are_found(tmp_path, query, other, right, ranking):
    path = str(tmp_path / "index")
    texts = [other, "A text in English.", right]
    write_index(path, [Passage("a", 1, text) for text in texts])
    (hits,) = Index.open(path).search([query], 3, ranking)
    assert hits[0].text == right
    assert len(hits) < 3


def test_an_index_of_an_earlier_version_is_refused(tmp_path):
    write(tmp_path / "index")
    path = tmp_path / "index" / "index.json"
    path.write_text(path.read_text().replace('"format": 3', '"format": 2'))
    with pytest.raises(UserError, match="of another version of this program"):
        Index.open(str(tmp_path / "index"))


def test_an_index_without_a_model_is_searched_by_words(tmp_path):
    path = tmp_path / "index"
    write(path)
    write_index(str(path), PASSAGES)
    assert not (path / "vectors.npy").exists()
    index = Index.open(str(path))
    assert [*index.rankings] == ["tfidf", "bm25"]
    ((hit,),) = index.search(["mountains"], 5)
    assert hit[1:] == PASSAGES[2]
    with pytest.raises(UserError, match="written without a model, so that"):
        Index.open(str(path), MODEL, embed)


def test_hybrid_puts_first_what_both_rankings_do(tmp_path):
    index = write(tmp_path / "index")
    (hits,) = index.search(["Mountains are high."], 3, "hybrid")
    assert hits[0][1:] == PASSAGES[2]
    assert hits[0].score == pytest.approx(2 / 61)


def test_vectors_are_stored_as_asked_and_of_length_1(tmp_path):
    write(tmp_path / "index", dtype="float16")
    stored = np.load(tmp_path / "index" / "vectors.npy")
    assert stored.dtype == np.float16
    np.testing.assert_allclose(np.linalg.norm(stored, axis=1), 1, atol=1e-3)


def test_the_rank_of_a_document_is_that_of_its_best_passage(tmp_path):
    index = write(tmp_path / "index")
    questions = [("sea ships", "b.txt#2"), ("mountains sea", "a.txt")]
    assert document_ranks(index, questions, "bm25", 10) == [np.inf, 2]
    assert document_ranks(index, questions, "bm25", 1) == [np.inf, np.inf]


def test_another_models_index_is_refused(tmp_path):
    write(tmp_path / "index")
    with pytest.raises(UserError, match="was written with another model"):
        Index.open(str(tmp_path / "index"), {"weights": "2"}, embed)


def test_an_index_is_replaced_whole_or_not_at_all(tmp_path):
    write(tmp_path / "index")

    def fail(texts):
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        write_index(str(tmp_path / "index"), PASSAGES, fail, model=MODEL)
    assert len(Index.open(str(tmp_path / "index"), MODEL).passages) == 3
    assert len(write(tmp_path / "index", PASSAGES[:2]).passages) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_other_directories_are_neither_read_nor_written(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="is no index; choose another"):
        write(tmp_path)
    with pytest.raises(UserError, match=r"is no index: it has no index\.json"):
        Index.open(str(tmp_path))


def test_an_index_in_a_bucket_is_refused():
    path = "memory://bucket/index"
    for call in (lambda: write_index(path, PASSAGES), lambda: Index.open(path)):
        with pytest.raises(UserError, match="expected a directory on a disk"):
            call()


@pytest.mark.parametrize(
    "name", ["counts.npz", "vectors.npy", "passages.jsonl", "words.json"]
)
@pytest.mark.parametrize(
    "damage",
    [
        lambda stored: b"",
        lambda stored: stored[: len(stored) // 2],
        lambda stored: stored[:-9] + bytes([stored[-9] ^ 1]) + stored[-8:],
        lambda stored: stored + b"{\n",
        None,
    ],
)
def test_a_damaged_index_is_refused(tmp_path, name, damage):
    write(tmp_path / "index")
    path = tmp_path / "index" / name
    stored = path.read_bytes()
    path.unlink()
    if damage:
        path.write_bytes(damage(stored))
    with pytest.raises(UserError, match=rf"index is damaged \(.*{name}.*anew"):
        Index.open(str(tmp_path / "index"), MODEL, embed)


def test_parts_of_two_indices_do_not_fit_each_other(tmp_path):
    write(tmp_path / "index")
    write(tmp_path / "other", PASSAGES[:2])
    words = tmp_path / "index" / "words.json"
    words.write_bytes((tmp_path / "other" / "words.json").read_bytes())
    with pytest.raises(UserError, match="words.json is not as it was written"):
        Index.open(str(tmp_path / "index"))


@pytest.mark.parametrize("content", ['{"format": 3}', '{"format": 3, "sha2'])
def test_a_damaged_record_of_an_index_is_refused(tmp_path, content):
    write(tmp_path / "index")
    (tmp_path / "index" / "index.json").write_text(content)
    with pytest.raises(UserError, match=r"rite it anew with --index_texts"):
        Index.open(str(tmp_path / "index"))

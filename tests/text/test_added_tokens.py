"""Tokens that Hugging Face's library adds beside the pieces of a vocabulary."""

import json

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from test_in_graph import strings
from test_tokenizer_json import opened

from albert_tf.config import UserError
from albert_tf.text.in_graph import InGraphTokenizer
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer import load_tokenizer, tokenizer_from_config
from albert_tf.text.tokenizer_base import AddedToken

WORDS = ["covidxyz", "CovidABC", "covid", "naïve", "new york", "c++", "the"]
SPECIAL = ["[E1]", "[/E1]", "<ent>", "a\\0b"]
# Parts of texts: tokens in other cases, within words, side by side.
PARTS = [
    *(*WORDS, *SPECIAL, "COVIDXYZ", "covidabc", "[e1]", "new  york"),
    *(" ", "  ", "\t", "s", "house", "of ", ",", "(", "8,", "é", "``", "''"),
    *("\U000f0000", "\U000f0001x"),
]


@pytest.fixture(
    scope="module",
    params=[(True, False), (False, True)],
    ids=["uncased", "cased"],
)
def pair(request, tiny_tokenizer, tmp_path_factory):
    """Their tokenizer with added tokens, and ours of the file that it saves."""
    lower, accents = request.param
    ours = SentencePieceTokenizer(
        tiny_tokenizer.model_bytes, do_lower_case=lower, keep_accents=accents
    )
    theirs = opened(ours)
    theirs.add_tokens(WORDS)
    theirs.add_special_tokens(SPECIAL)
    directory = tmp_path_factory.mktemp("added")
    theirs.save(str(directory / "tokenizer.json"))
    return theirs, load_tokenizer(directory)


texts = st.lists(st.sampled_from(PARTS), max_size=8).map("".join)


@settings(deadline=None)
@given(text=texts)
def test_ids_are_theirs(pair, text):
    theirs, ours = pair
    assert ours.vocab_size == theirs.get_vocab_size() == 210
    ids = theirs.encode(text, add_special_tokens=False).ids
    assert ours.encode(text) == ids
    assert ours.encode_batch([text, "of"])[0] == ids
    assert ours.encode_with_offsets(text).ids == ids
    # Written here, it is the same tokenizer there.
    again = opened(ours)
    assert again.encode(text, add_special_tokens=False).ids == ids
    assert again.token_to_id("[E1]") == theirs.token_to_id("[E1]") == 206


def test_the_graph_has_the_same_ids(pair):
    _, ours = pair
    rng = np.random.default_rng(4)
    rows = ["".join(rng.choice(PARTS, rng.integers(9))) for _ in range(300)]
    in_graph = InGraphTokenizer(ours)
    ids, starts, ends = in_graph.encode_with_offsets(strings(rows))
    assert ids.to_list() == ours.encode_batch(rows)
    encoded = [ours.encode_with_offsets(text) for text in rows]
    assert starts.to_list() == [row.starts for row in encoded]
    assert ends.to_list() == [row.ends for row in encoded]


def test_a_token_is_a_slice_of_the_text(pair):
    _, ours = pair
    text = "a supercovidxyzed [E1]new  york[/E1], nai\u0308ve?"
    encoding = ours.encode_with_offsets(text)
    rows = zip(encoding.ids, encoding.starts, encoding.ends, strict=True)
    slices = {i: text[start:end] for i, start, end in rows if i >= 200}
    assert slices.pop(203, "nai\u0308ve") == "nai\u0308ve"
    names = {200: "covidxyz", 206: "[E1]", 204: "new  york", 207: "[/E1]"}
    assert slices == names


def test_they_stay_with_the_tokenizer(pair, tmp_path):
    _, ours = pair
    ours.save(tmp_path / "all")
    (tmp_path / "all/added_tokens.json").write_text('{"covidxyz": 200}')
    config = json.loads(json.dumps(ours.get_config()))
    text = "the [E1] covidxyz"
    for again in (
        load_tokenizer(tmp_path / "all"),
        load_tokenizer(tmp_path / "all/tokenizer.json"),
        tokenizer_from_config(config),
        ours.with_words(["w"]),
    ):
        assert again.encode(text) == ours.encode(text)
    ours.save(tmp_path / "all")
    assert not (tmp_path / "all/added_tokens.json").exists()
    assert ours.decode(ours.encode(text)) == text


@pytest.mark.parametrize("has_decoder", [True, False])
def test_the_lists_of_transformers_4(tiny_tokenizer, tmp_path, has_decoder):
    tiny_tokenizer.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    added = {"covidxyz": 200, "[E1]": 201, "[MASK]": 4}
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    if has_decoder:
        path = tmp_path / "tokenizer_config.json"
        decoder = {
            str(i): {"content": text, "normalized": text == "covidxyz"}
            for text, i in added.items()
        }
        config = json.loads(path.read_text()) | {
            "added_tokens_decoder": decoder
        }
        path.write_text(json.dumps(config))
    ours = load_tokenizer(tmp_path)
    first, second = ours.encode("covidxyz[E1]"), ours.encode("[e1]")
    assert first == [200, 201]
    assert (second == [201]) == (not has_decoder)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([("a", 201)], r"'a' has the id 201; expected 200, the next one\."),
        ([("a", -1)], r"'a' has the id -1; expected 200, the next one\."),
        ([(5, 200)], r"token of id 200 to be a text, got 5\."),
        (
            [("X", 200), ("x", 201)],
            r"'x', found after the clean-up of texts, is another",
        ),
        (
            [("\u0301", 200)],
            "found after the clean-up of texts, is nothing after",
        ),
    ],
)
def test_tokens_that_cannot_be(
    tiny_tokenizer, wordpiece_tokenizer, tokens, message
):
    added = [AddedToken(*token, is_cleaned=True) for token in tokens]
    with pytest.raises(UserError, match=message):
        tiny_tokenizer.with_added_tokens(added)
    with pytest.raises(UserError, match="only SentencePiece vocabularies can"):
        wordpiece_tokenizer.with_added_tokens(added)


@pytest.mark.parametrize("content", ["``", "a''B", "B'", "'B"])
def test_ticks_that_may_become_quotes_are_refused(tiny_tokenizer, content):
    token = AddedToken(content, 200, is_cleaned=False)
    with pytest.raises(UserError, match="has ticks that the clean-up of texts"):
        tiny_tokenizer.with_added_tokens([token])


def test_symbols_and_a_token_as_it_is_written(tiny_tokenizer):
    ours = tiny_tokenizer.with_added_tokens(
        [AddedToken("--", 200, True), AddedToken("[X]", 201, False)]
    )
    assert ours.encode("--[X]") == [200, 201]


def test_more_symbols_than_a_token_outweighs(tiny_tokenizer):
    with pytest.raises(UserError, match="none of symbols that are always piec"):
        tiny_tokenizer.with_added_tokens([AddedToken("-" * 9, 200, True)])


@pytest.mark.parametrize("has_json", [True, False])
def test_a_special_token_may_be_a_piece(tiny_tokenizer, tmp_path, has_json):
    """A symbol of the vocabulary, which transformers finds in texts."""
    tiny_tokenizer.save(tmp_path)
    theirs = opened(tiny_tokenizer)
    number, piece = next(
        (i, piece)
        for i, piece in enumerate(tiny_tokenizer.pieces(range(5, 200)), 5)
        if piece.isalpha() and len(piece) == 2
    )
    theirs.add_special_tokens([piece])
    if has_json:
        (tmp_path / "spiece.model").unlink()
        theirs.save(str(tmp_path / "tokenizer.json"))
    else:
        (tmp_path / "tokenizer.json").unlink()
        path = tmp_path / "tokenizer_config.json"
        token = {"content": piece, "special": True, "normalized": False}
        config = json.loads(path.read_text())
        path.write_text(
            json.dumps(config | {"added_tokens_decoder": {number: token}})
        )
    text = f"the {piece}house{piece}"
    ids = theirs.encode(text, add_special_tokens=False).ids
    assert number in ids
    assert load_tokenizer(tmp_path).encode(text) == ids


@pytest.mark.parametrize("has_json", [True, False])
def test_whole_words_alone_are_refused(tiny_tokenizer, tmp_path, has_json):
    tiny_tokenizer.save(tmp_path)
    token = tokenizers.AddedToken("covid", single_word=True)
    if has_json:
        theirs = opened(tiny_tokenizer)
        theirs.add_tokens([token])
        theirs.save(str(tmp_path / "tokenizer.json"))
    else:
        # The list of transformers 4.
        (tmp_path / "tokenizer.json").unlink()
        config = {"added_tokens_decoder": {"200": token.__getstate__()}}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(
        UserError, match="'covid' is found as a whole word alone"
    ):
        load_tokenizer(tmp_path)

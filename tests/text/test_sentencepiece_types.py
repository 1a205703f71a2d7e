"""SentencePiece's types of models in tokenizer.json, written and read."""

import functools
import io
import pathlib
import tempfile

import numpy as np
import pytest
import sentencepiece
import tokenizers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2
from test_tokenizer_json import DAMAGED, opened, resaved, rewrite

from albert_tf.config import UserError
from albert_tf.io.json_files import read_json
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.tokenizer_base import AddedToken
from albert_tf.text.tokenizer_json import MERGED_COMMA

BYTES = {"byte_fallback": True, "vocab_size": 400}
KINDS = sentencepiece_model_pb2.ModelProto.SentencePiece


def trained_on(texts, kind="bpe", **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type=kind,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols="[CLS],[SEP],[MASK]",
        minloglevel=2,
        **{"vocab_size": 90} | options,
    )
    return SentencePieceTokenizer(model.getvalue())


@functools.cache
def trained(kind, **options):
    rng = np.random.default_rng(5)
    lines = []
    for _ in range(60):
        lengths = rng.integers(1, 9, 8)
        words = ["".join(rng.choice(list("abc"), n)) for n in lengths]
        lines.append(" ".join([*words, "8 , (é)"]))
    return trained_on(lines, kind, **options)


@functools.cache
def there_and_back(kind, **options):
    """Returns their tokenizer, and ours of the file that they save."""
    with tempfile.TemporaryDirectory() as place:
        directory = resaved(trained(kind, **options), pathlib.Path(place))
        path = str(directory / "tokenizer.json")
        theirs = tokenizers.Tokenizer.from_file(path)
        return theirs, load_tokenizer(directory)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("bpe", {}),
        ("bpe", BYTES),
        # These are never merged.
        ("bpe", {"user_defined_symbols": "(,)"}),
        ("char", {}),
    ],
    ids=str,
)
@settings(deadline=None, max_examples=60)
# Letters of the vocabulary and others, of which some have several bytes.
@given(
    text=st.text("abc ", min_size=9, max_size=40)
    | st.text("abc z()8éÉ½一\u0301", max_size=40)
)
def test_ids_there_and_back(kind, options, text):
    theirs, read = there_and_back(kind, **options)
    ids = trained(kind, **options).encode(text)
    assert theirs.encode(text, add_special_tokens=False).ids == ids
    assert read.encode(text) == ids


@pytest.mark.parametrize("text", ["z", "一 z½", "abc z8 一é", "\0"])
def test_bytes_of_a_unigram(text):
    # No random texts: of two segmentations as good each takes its own.
    theirs, read = there_and_back("unigram", **BYTES)
    ids = trained("unigram", **BYTES).encode(text)
    assert theirs.encode(text, add_special_tokens=False).ids == ids
    assert read.encode(text) == ids


def test_bytes_are_lost_to_no_clean_up():
    assert not trained("unigram", **BYTES).is_lost("<0x0A>")


def test_bytes_after_the_first_begin_no_word():
    ours = trained("unigram", **BYTES)
    ids = ours.encode("一")[1:]
    assert ours.pieces(ids) == ["<0xE4>", "<0xB8>", "<0x80>"]
    assert ours.word_start[ids].tolist() == [True, False, False]


@pytest.mark.parametrize("has_piece", [False, True])
def test_tokens_added_to_merges_there_and_back(tmp_path, has_piece):
    bpe = trained("bpe")
    names = ["caba", "bacab"]
    ids = [bpe.vocab_size, bpe.vocab_size + 1]
    if has_piece:
        # transformers adds no other token where a piece has the text.
        pieces = bpe.pieces(range(bpe.vocab_size))
        names = [next(p for p in pieces if len(p) == 3 and p.isalpha())]
        ids = [pieces.index(names[0])]
    ours = bpe.with_added_tokens(
        AddedToken(name, i, is_cleaned=True)
        for name, i in zip(names, ids, strict=True)
    )
    text = f"abc {names[0]} bb{names[0]}a ca bacab"
    assert set(ids) < set(ours.encode(text))
    theirs = opened(ours)
    found = theirs.encode(text, add_special_tokens=False).ids
    read = load_tokenizer(resaved(ours, tmp_path))
    assert ours.encode(text) == found == read.encode(text)


@settings(deadline=None, max_examples=40)
@given(words=st.lists(st.text("ab", min_size=1, max_size=12), min_size=8))
def test_merges_that_overlap(words):
    try:
        ours = trained_on([" ".join(words)], vocab_size=40)
    except RuntimeError:
        # Too little text for a model.
        assume(False)
    theirs = opened(ours)
    for text in (" ".join(words), "a" * 15, "".join(words), "ab" * 9):
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ids == ours.encode(text)


def first_text(change):
    def of_model(model):
        change(next(p for p in model.pieces if p.type == KINDS.NORMAL))

    return of_model


def no_prefix(model):
    model.normalizer_spec.add_dummy_prefix = False


def spaces_stay(model):
    model.normalizer_spec.remove_extra_whitespaces = False


def no_letter(model):
    pieces = [p for p in model.pieces if p.piece != "a"]
    del model.pieces[:]
    model.pieces.extend(pieces)


def same_rank(model):
    long = [p for p in model.pieces if len(p.piece) == 2]
    long[1].score = long[0].score


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        ("word", None, "it is a model of words"),
        ("unigram", no_prefix, "it has no mark of a space before each word"),
        ("unigram", spaces_stay, "its own clean-up keeps several spaces"),
        (
            "unigram",
            first_text(lambda piece: setattr(piece, "piece", "a▁b")),
            "it has pieces of several words",
        ),
        (
            "bpe",
            first_text(lambda piece: setattr(piece, "type", KINDS.UNUSED)),
            "it has unused pieces",
        ),
        (
            "bpe",
            first_text(
                lambda piece: setattr(piece, "type", KINDS.USER_DEFINED)
            ),
            "it has user-defined pieces of several characters",
        ),
        ("bpe", no_letter, "it has pieces of characters that are no pieces"),
        ("bpe", same_rank, "several of its merges rank alike"),
        (
            "bpe",
            first_text(lambda piece: setattr(piece, "piece", "8,")),
            MERGED_COMMA,
        ),
    ],
)
def test_models_without_a_counterpart(tmp_path, capsys, kind, change, reason):
    """Without tokenizer.json transformers opens none of them."""
    ours = trained(kind)
    trained("unigram").save(tmp_path)
    if change:
        model = sentencepiece_model_pb2.ModelProto.FromString(ours.model_bytes)
        change(model)
        ours = SentencePieceTokenizer(model.SerializeToString())
    ours.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    printed = capsys.readouterr().out
    assert printed == (
        f"Not written: {path}, since transformers has no tokenizer like this "
        f"SentencePiece model: {reason}.\n"
    )
    assert not path.exists()
    assert load_tokenizer(tmp_path).fingerprint == ours.fingerprint
    config = read_json(tmp_path / "tokenizer_config.json")
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"


def test_merges_take_no_new_words():
    message = "of type unigram, or a WordPiece one, got BPE, which would never"
    with pytest.raises(UserError, match=message):
        trained("bpe").with_words(["abba"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fuse_unk": False}, "expected fuse_unk true, got False; its ids"),
        ({"merges": []}, "its merges are not those of a SentencePiece model"),
        ({"merges": ["▁ a", "a b"][::-1]}, "its merges are not those of a"),
        ({"merges": 3}, DAMAGED),
        ({"merges": ["x y"]}, DAMAGED),
        ({"unk_token": "a"}, "expected unk_token"),
    ],
)
def test_a_faulty_file(tmp_path, changes, message):
    directory = resaved(trained("bpe"), tmp_path)
    rewrite(directory, {"model": changes})
    with pytest.raises(UserError, match=message) as raised:
        load_tokenizer(directory)
    assert "\n" not in str(raised.value)


def test_merges_in_another_order_are_refused(tmp_path):
    directory = resaved(trained("bpe"), tmp_path)
    path = directory / "tokenizer.json"
    merges = read_json(path)["model"]["merges"]
    rewrite(directory, {"model": {"merges": merges[::-1]}})
    with pytest.raises(UserError, match="in the order of ids; its ids would"):
        load_tokenizer(directory)


def test_a_merged_comma_is_refused(tmp_path):
    directory = resaved(trained("bpe"), tmp_path)
    vocab = read_json(directory / "tokenizer.json")["model"]["vocab"]
    vocab["8,"] = vocab.pop("ab")
    rewrite(directory, {"model": {"vocab": vocab}})
    with pytest.raises(UserError, match="it merges a digit and a comma after"):
        load_tokenizer(directory)

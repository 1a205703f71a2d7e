import json
import random
import unicodedata

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.corpus.sentences import (
    SENTENCE_SPLITTERS,
    NewlineSplitter,
    PunktSplitter,
    cut_long_sentences,
    has_end,
)

NOUNS = ("door", "house", "river", "garden", "table", "road", "boat", "tree")
TITLES = ("prof.", "prof.", "prof.", "capt.", "col.", "lieut.", "gov.")
NAMES = ("Adams", "Brown", "Cole", "Dunn", "Ellis", "Frost", "Grant", "Hayes")


def invented_text():
    """Sentences with many ends; titles are none, and some lack the period."""
    rng = random.Random(3)
    sentences = [f"The prof was near the {noun}." for noun in NOUNS]
    for _ in range(300):
        noun, other = rng.choices(NOUNS, k=2)
        sentences += [
            f"The {noun} was near the {other}.",
            f"We met {rng.choice(TITLES)} {rng.choice(NAMES)} at the {noun}.",
            f"She saw a {other} and no {noun}!",
        ]
    return " ".join(sentences)


TEXT = invented_text()


@pytest.fixture(scope="module")
def punkt():
    return PunktSplitter.train([TEXT])


def test_punkt_learns_abbreviations_from_the_corpus(punkt):
    assert punkt.split("Then prof. Fox came. The door closed.") == [
        "Then prof. Fox came.",
        "The door closed.",
    ]
    untrained = PunktSplitter.train(["Nothing to learn here."])
    assert len(untrained.split("We met prof. Fox. He left.")) == 3
    # Some lack their period here and there, for which NLTK's default penalty
    # would forget them.
    found = punkt.to_json()["abbreviations"]
    assert found == ["capt", "col", "gov", "lieut", "prof"]


def test_sentences_keep_their_marks_and_lose_line_breaks(punkt):
    assert punkt.split(
        '  She said "No!"\nThe door\nwas near. (We saw it.) We left '
    ) == [
        'She said "No!"',
        "The door was near.",
        "(We saw it.)",
        "We left",
    ]


@pytest.mark.parametrize("splitter", SENTENCE_SPLITTERS.values())
def test_nothing_has_no_sentences(splitter):
    for text in ("", " ", "\n \n"):
        assert splitter.train([TEXT]).split(text) == []


def test_lines_are_sentences():
    splitter = NewlineSplitter.from_json(NewlineSplitter.train([]).to_json())
    assert splitter.split(" One. Two\n\nthree \n") == ["One. Two", "three"]


def test_punkt_comes_back_from_json(punkt):
    text = json.dumps(punkt.to_json())
    restored = PunktSplitter.from_json(json.loads(text))
    for name in ("abbrev_types", "sent_starters", "ortho_context"):
        learned = getattr(punkt._parameters, name)
        assert learned and getattr(restored._parameters, name) == learned
    assert restored.split(TEXT) == punkt.split(TEXT)
    assert len(restored.split(TEXT)) == 908
    # Splitting has learned nothing.
    restored.split("Never seen. Nor this! And prof. Unheard of. So.")
    assert json.dumps(restored.to_json()) == text


@pytest.mark.parametrize("unit", ["word ", "a.b", ". ", "So it is. ", "走了"])
def test_long_lines_are_split_in_pieces_and_keep_their_text(punkt, unit):
    text = unit * (150_000 // len(unit))
    sentences = punkt.split(text)
    assert "".join(sentences).replace(" ", "") == text.replace(" ", "")
    if "So" in unit:
        assert set(sentences) == {"So it is."}
    if unit in ("word ", "a.b", "走了"):
        assert max(map(len, sentences)) <= 100_000


def test_a_sentence_may_lie_across_two_pieces(punkt):
    text = "It was near. " * 7692 + "The door of the house was open. So."
    assert punkt.split(text)[-2:] == ["The door of the house was open.", "So."]


@pytest.mark.parametrize("unit", ["x", "é" * 9 + " "])
def test_long_sentences_are_cut(unit):
    text = unit * (55_000 // len(unit))
    first, *pieces, last = cut_long_sentences(["So.", text, "It is."])
    assert (first, last) == ("So.", "It is.")
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= 10_000
    assert len(pieces) < 10
    assert all(piece[-1] == unit[-1] for piece in pieces)


def nltk_sentences(splitter, text):
    """What NLTK makes of a text with the splitter's parameters, unaided."""
    from nltk.tokenize import punkt

    tokenizer = punkt.PunktSentenceTokenizer(splitter._parameters)
    return [s for s in map(str.strip, tokenizer.tokenize(text)) if s]


ODD_WORDS = """
a b C prof capt Prof. capt. U.S. e.g. J 3 3.5 1st The the door Fox she don't
O'Hare well-known naïve Straße Éa _x x_y #4 ... .. -- . ? ! ) ( " “No No” ‘so
so’ 'tis tis' 'a' [b] *c* d; e: f, ;g ,h 말 §5 ‼ ‽ «x x»
"""
WORDS = st.sampled_from(ODD_WORDS.split())
ENDS = st.sampled_from(["", ".", "!", "?", "..", "...", ".)", '."', "?!", ".'",
                        ".”", ",", ".]", ". . ."])  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            WORDS, ENDS, st.sampled_from([" ", "  ", "\t", "", "\u00a0"])
        ),
        max_size=30,
    )
)
def test_the_quick_way_gives_the_sentences_of_nltk(punkt, parts):
    text = "".join(part for piece in parts for part in piece)
    assert punkt.split(text) == nltk_sentences(punkt, text)


def test_the_quick_way_knows_abbreviations_and_collocations():
    from nltk.tokenize import punkt

    parameters = punkt.PunktParameters()
    parameters.abbrev_types.update(["prof", "“capt"])
    parameters.collocations.add(("st", "john"))
    splitter = PunktSplitter.from_json(PunktSplitter(parameters).to_json())
    for text, number in [
        ("the prof. Fox", 1),
        ("(prof. fox", 1),
        ("“capt. fox", 1),
        ("the st. John", 1),
        ("the st. Mary", 2),
        ("the fox. Mary", 2),
    ]:
        assert len(splitter.split(text)) == number, text
        assert splitter.split(text) == nltk_sentences(splitter, text)


# What ends a sentence is marked with | for the reader and the test.
SCRIPTS = {
    "Chinese": "我们走了。|他问：“去哪里？”|“好。”，我说。|（走！？）|走",
    "Japanese": "「寒い。」|と言った。|本は「春（はる）」、二冊。　|次は？！",
    "Japanese full stops": "雨である．|風も３．５である.|次の日",
    "Chinese, ASCII marks": "你好吗?|我很好!|约翰.史密斯等...走了",
    "Hindi": "राम गया। |वह “घर” आया।” |क्या? |अंत॥",
    "Arabic": "هل جئت؟ |«نعم؟» |قال الولد",
    "Brahmi": "\U00011005\U00011047 |\U00011006\U00011048|😀\U00011005",
    "mixed": "NASA.gov的3.5米。|U.S.公司？ |Prof. Fox left. |She did. |他。|So",
    "lines": "第一行。\n|- 第二行\n还没完。 \n|「三」",
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_marks_of_other_scripts_end_sentences(punkt, script):
    text = SCRIPTS[script]
    found = punkt.split(text.replace("|", ""))
    assert found == [s.strip() for s in text.replace("\n", " ").split("|")]


def test_the_marks_are_those_of_unicode():
    """But for those of Latin text."""
    assert has_end("So. ") and has_end("So…") and has_end("“去哪里？”")
    assert not has_end("ฉันไปตลาด พ.ศ. ก่อน") and not has_end("")
    latin = regex.compile(r"[\p{SB=ATerm}\x00-\x7f\u2000-\u206f\u2e00-\u2e7f]")
    terminal = regex.compile(r"\p{Sentence_Terminal}")
    for character in map(chr, range(0x110000)):
        # Libraries differ in how young the characters are that they know.
        known = unicodedata.category(character) not in ("Cn", "Co")
        if known and not latin.match(character):
            found = has_end(character)
            assert found == bool(terminal.match(character)), ascii(character)


# Rules SB8a to SB11 of UAX #29 by Unicode's own classes.
UNICODE_END = regex.compile(
    r"(?>(?:\p{SB=STerm}+\p{SB=Close}*\p{SB=Sp}*)+)(?!\p{SB=SContinue})"
)


LETTERS_AND_MARKS = (
    "他走ではराم١،，、。！？।؟։」』）”»\u3000 —："
    # Brahmi, Chakma, an emoji, a closing ornament.
    "\U00011005\U00011047\U00011141\U0001f600\U0001f677"
)


@settings(max_examples=150, deadline=None)
@given(st.text(LETTERS_AND_MARKS, max_size=40))
def test_sentences_are_those_of_unicode(punkt, text):
    marked = UNICODE_END.sub(lambda match: match[0] + "|", text)
    assert punkt.split(text) == [
        s for s in map(str.strip, marked.split("|")) if s
    ]

import inspect
import warnings

import pytest

from data_prep.docstring_prose import (
    module_docstrings,
    prose_paragraphs,
    split_sentences,
)

BEFORE = "The lamp is lit before the guests arrive."
AFTER = "The lamp is put out after they leave."


def prose(docstring):
    return prose_paragraphs(inspect.cleandoc(docstring))


def between(middle):
    """What is left of `middle` between two paragraphs that stay."""
    paragraphs = prose(f"{BEFORE}\n\n{inspect.cleandoc(middle)}\n\n{AFTER}")
    assert paragraphs[0] == BEFORE
    assert paragraphs[-1] == AFTER
    return paragraphs[1:-1]


CODE = {
    "doctest": """
        >>> light("The lamp is lit by this very call.")
        The lamp is lit by this very call.
        Another line of output follows it here.
        """,
    "fence": """
        ```python
        The code here could be anything at all.

        It may even hold several full sentences.
        ```
        """,
    "literal block": """
        Here::

            The block is shown as it stands.

            It may even hold several full sentences.
        """,
    "indented code": """
        Like so:

            lamp = Lamp("The lamp has a long and plain name.")
            lamp.light()
        """,
    "directive": """
        .. versionadded:: 1.2
            The lamp was not here before this version.
        """,
    "field": """
        :param lamp: The lamp that is to be lit.
            It must hold enough oil for the night.
        :returns: The lamp that has been lit.
        """,
    "google example": """
        Examples:

          The lamp is lit by this very call.

          It may be lit another time as well.
        """,
    "google raises": """
        Raises:
          OSError: The lamp is already lit by another.
        """,
    "columns": """
        Read      The lamp is open for reading.
        Write     The lamp is open for writing.
        """,
    "symbols": "=====  ======  =====\n-----  ------  -----",
    "fragment": "where the rest of it was somewhere else.",
    "link target": ".. _lamp: https://example.org/The_lamp_is_here.",
}


@pytest.mark.parametrize("kind", CODE)
def test_code_and_markup_blocks_are_left_out(kind):
    assert between(CODE[kind]) == []


SENTENCES = [
    "See https://example.org/a/b for all of the details.",
    "The value of %(name)s is put in here later.",
    r"The sum \\(x_i\\) is taken over all of them.",
    "See foo_bar, foo_baz, foo_qux and foo_quux() for x_y.",
    "It is very short.",
    "This line has words but never comes to an end",
    "The range is half open at the end, [0, n) as ever.",
    "The bell\a rings when the lamp is lit again.",
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_what_does_not_read_as_a_sentence_is_left_out(sentence):
    assert prose(f"{BEFORE} {sentence}") == [BEFORE]


PROSE = {
    "wrapped lines": (
        """
        The tide comes in twice a day and
        covers the lower steps of the pier.

        Boats that lie there
        must be moved in time. They are heavy.
        """,
        "The tide comes in twice a day and covers the lower steps of the pier.",
        "Boats that lie there must be moved in time.",
    ),
    "google table": (
        """
        Args:
          oil: Litres of oil to burn.
          wick (int, optional): The thickness of the wick. It must be dry
            before the lamp is lit.
          **others: Passed on to the maker of lamps.

        Returns:
          A new and rather shiny lamp.
        """,
        "It must be dry before the lamp is lit.",
    ),
    # A table ends at the next underlined title.
    "numpy table": (
        """
        Parameters
        ----------
        oil : float
            Litres of oil to burn in it.
        wick : int, optional
            The wick must be dry when the lamp is lit.

        Examples
        --------
        The lamp is lit by this very call.

        Notes
        -----
        A short note without any verbs in it.
        """,
        "The wick must be dry when the lamp is lit.",
        "A short note without any verbs in it.",
    ),
    "remarks and notes": (
        """
        @compatibility(eager)
        The lamp is lit at once when asked.
        # Only the lines of the marks go.
        @end_compatibility

        .. note:: The lamp is hot, so do
           not touch it with your hand.
        """,
        "The lamp is lit at once when asked.",
        "The lamp is hot, so do not touch it with your hand.",
    ),
    "items of a list": (
        """
        - The first item runs on and
          on over more than a line.
        - The second item is a short one.
        1. The third item has a number instead.
        name -- The fourth item has a name before it.
        """,
        "The first item runs on and on over more than a line.",
        "The second item is a short one.",
        "The third item has a number instead.",
        "The fourth item has a name before it.",
    ),
}


@pytest.mark.parametrize("kind", PROSE)
def test_sentences_are_kept_in_paragraphs(kind):
    text, *paragraphs = PROSE[kind]
    assert between(text) == paragraphs


MARKED = {
    "``x``": "x",
    ":class:`lamps.Lamp`": "lamps.Lamp",
    ":py:class:`~lamps.Lamp`": "Lamp",
    "[guide](https://example.org/x)": "guide",
    "`guide <https://example.org>`_": "guide",
    "guide (see https://example.org/x)": "guide",
    "guide [1]_": "guide",
    "**bold**": "bold",
    "*leaning*": "leaning",
    "_leaning_": "leaning",
    "<b>bold</b>": "bold",
    "``quoted''": '"quoted"',
    "`quoted'": "'quoted'",
    "a_name_here": "a_name_here",
    "__init__": "__init__",
    "2 * 3*4": "2 * 3*4",
}


@pytest.mark.parametrize("marked", MARKED)
def test_inline_markup_goes_and_its_text_stays(marked):
    sentence = "Ask the keeper for the {} and then wait for a while."
    assert prose(sentence.format(marked)) == [sentence.format(MARKED[marked])]


def test_nothing_comes_of_no_prose():
    for docstring in ("", "\n", "```\nopen"):
        assert prose_paragraphs(docstring) == []


def test_sentences_are_split_after_their_end_only():
    text = 'Use oil, e.g. Whale oil. It "burns." (So they say!) Is 1.5 enough?'
    assert split_sentences(text) == [
        "Use oil, e.g. Whale oil.",
        'It "burns."',
        "(So they say!)",
        "Is 1.5 enough?",
    ]


def test_a_module_is_read_in_source_order():
    source = '''
"""First the module says what it is."""
class Lamp:
    """Second the class says what it is."""
    if False:
        pass
    else:
        def light(self):
            """Third the method says what it does."""
            shown = lambda: None
            """A bare string within is no docstring."""
    def out(self):
        "Fourth the method says what it does."
add_newdoc("lamp", """Fifth a docstring is attached.

It is added to something that has none.""")
TEXT = {"x": "Sixth a text is kept in here.\\n\\nIt is read by hand."}
LINE = "This string is only one single line."
"""A bare string after code is not read.

It has no owner that it could document."""
try:
    pass
except ImportError:
    async def last():
        """Seventh the coroutine says what it does."""
finally:
    def end():
        """Eighth the function says what it does."""
'''
    assert ["|".join(text) for text in module_docstrings(source)] == [
        "First the module says what it is.",
        "Second the class says what it is.",
        "Third the method says what it does.",
        "Fourth the method says what it does.",
        "Fifth a docstring is attached.|"
        "It is added to something that has none.",
        "Sixth a text is kept in here.|It is read by hand.",
        "Seventh the coroutine says what it does.",
        "Eighth the function says what it does.",
    ]


def test_parsing_is_silent_and_runs_nothing():
    source = '"""The escape \\d is not a known one."""\nraise SystemExit'
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # A backslash is foreign to prose.
        assert module_docstrings(source) == []
        source = f'"""{BEFORE}"""\nx = "\\d"\nexit()'
        assert module_docstrings(source) == [[BEFORE]]

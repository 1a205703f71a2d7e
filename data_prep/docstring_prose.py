"""English prose of docstrings: `module_docstrings`.

A docstring mixes sentences with code, tables of arguments and mark-up, in
Google, NumPy or reStructuredText style. Code is recognised line by line and
blanked; the rest is cut into paragraphs, stripped of mark-up and filtered
sentence by sentence.
"""

import ast
import inspect
import re
import warnings
from collections.abc import Iterator

MIN_SENTENCE_WORDS = 5
# The share of a sentence's words that must be plain English words.
MIN_PLAIN_SHARE = 0.75

# Section titles: with a colon in Google style, underlined in NumPy style.
# Below the first kind nothing is prose. Below the second names are described:
# mostly fragments, of which the full sentences are kept.
_CODE_TITLE = re.compile(
    r"(?:(?:code|usage) )?examples?|(?:(?:example|standalone|typical) )?usage"
    r"|bibliography|raises?|references?|see also|warns"
)
_TABLE_TITLE = re.compile(
    r"(?:(?:call|keyword) )?arg(?:ument)?s?|(?:other )?param(?:eter)?s?"
    r"|(?:in|out)puts?(?: shape)?|attributes?|kwargs|mask|methods?|properties"
    r"|receives|returns?|yields?"
)

_UNDERLINE = re.compile(r"\s*([-=~^\"'#*+])\1{2,}\s*$")
_DOCTEST = re.compile(r"\s*(?:>>>|\.\.\.)(?:\s|$)")
_DIRECTIVE = re.compile(r"\s*\.\.\s+(?:[\w:-]+?::|[\[_|])")
_PROSE_DIRECTIVE = re.compile(
    r"\s*\.\. (?:attention|caution|hint|important|note|tip|warning)::\s*"
)
_FIELD = re.compile(r"\s*:\w[^:]*:(?:\s|$)")  # :param x: what it is
_REMARK = re.compile(r"\s*(?:@\w|#)")  # @compatibility(eager), # comment
_CODE = re.compile(
    r"(?:from [\w.]+ )?import [\w., ]+"
    r"|(?:def|class) \w+.*:\s*$"
    r"|(?:if|for|while|with|try|else|elif)\b[^:]*:\s*$"
    r"|[\w.\[\]'\"]+(?:, ?[\w.]+)* ?[-+*/|&]?=[^=]"
    r"|[\w.]+\(.*$"
    r"|[\[\](){}<|%'\"]+.*[\[\](){}=,|>]\s*$"
    r"|[\w'\"]+: .*,\s*$"
    r"|[)\]}]|\$ "
    r"|.*\S {3,}\S"  # columns
)
_ITEM = re.compile(r"(?:[-*+•]|\d{1,2}[.)]|\([a-z\d]\))\s+(?=\S)")
_LABEL = re.compile(
    r"(?:[*`]*[\w./-]+[*`]*(?:, )?){1,3}(?: ?\([^)]*\))?"
    r" ?(?::|--| - )\s+(?=[A-Z])"
)

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_URL = r"\b(?:https?|ftp)://"
_TAGS = "a|b|br|code|em|i|li|ol|p|strong|tt|ul"
_INLINE = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"!?\[([^\]]+)\]\s?\(\s*[^()\s]*\s*\)", r"\1"),  # [text](url)
        (r"(?::[\w+.-]+)+:`~[\w.]*?(\w+)`", r"\1"),  # :class:`~x.y`
        (r"(?::[\w+.-]+)+:`[!~]?([^`]*)`", r"`\1`"),  # :class:`y`
        (r"`([^`<]+?)\s*<[^`>]+>`_{0,2}", r"\1"),  # `text <url>`_
        (r"``([^`']+)''", r'"\1"'),
        (r"`+([^`]+)`+_{0,2}", r"\1"),
        (r"`", "'"),
        (r"\\([*_'\" ])", r"\1"),
        (r"\s*\[\w+\]_", ""),  # a footnote's mark
        (r"(?<![\w\"*])\*\*([^\s*][^*]*)\*\*(?!\w)", r"\1"),
        (r"(?<![\w*])\*([^\s*][^*]*?)(?<!\s)\*(?![\w*])", r"\1"),
        (r"(?<!\w)_([A-Za-z][^_]*)_(?!\w)", r"\1"),
        (rf"</?(?:{_TAGS})\b[^<>]*>", ""),
        (rf"\s*\([^()]*{_URL}[^()]*\)", ""),
        (r"\s+", " "),
        (r" (?=[.,;](?:\s|$))", ""),
    )
)
_ABBREVIATIONS = ("e.g", "i.e", "cf", "vs", "Eq", "Fig", "Sec", "Ref", "al")
_BOUNDARY = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?][\"')]))"
    + "".join(rf"(?<!\b{re.escape(short)}\.)" for short in _ABBREVIATIONS)
    + r"\s+(?=[\"'(\[]?[A-Z])"
)
_SHAPE = re.compile(r"[\"'(]?[A-Z].*[.!?][\"')]?$", re.DOTALL)
_FOREIGN = re.compile(
    rf"[\\{{}}|@$^~]|::|>>|<\w|\w>|==|(?<!\S)--\w|%[(srd]|\bTODO\b|{_URL}"
    r"|\bwww\."
)
_PLAIN = re.compile(r"[\"'(\[]*[A-Za-z]+(?:['’/-][A-Za-z]+)*[.,;:!?)\]\"']*$")
_VERB = re.compile(
    r"\b(?:is|are|was|were|be|been|has|have|had|can|could|may|might|must"
    r"|should|shall|will|would|does|do|did|cannot|isn't|aren't|doesn't|don't"
    r"|won't|can't|contains?|controls?|defaults|defines|denotes|determines"
    r"|gives|indicates|means|represents|requires|returns|specif(?:y|ies)"
    r"|use[sd]?|set|note)\b",
    re.IGNORECASE,
)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _drop_fences(lines: list[str]) -> None:
    """Blanks ``` fences."""
    inside = False
    for index, line in enumerate(lines):
        text = line.strip()
        if inside or (text.startswith("```") and text.count("```") == 1):
            lines[index] = ""
            inside = not (inside and "```" in text)


def _drop_doctests(lines: list[str]) -> None:
    """Blanks interpreter sessions with their output, up to a blank line."""
    inside = False
    for index, line in enumerate(lines):
        inside = bool(line.strip()) and (inside or bool(_DOCTEST.match(line)))
        if inside:
            lines[index] = ""


def _drop_body(lines: list[str], start: int, indent: int) -> None:
    """Blanks the lines from `start` on that are indented deeper."""
    for index in range(start, len(lines)):
        if lines[index].strip() and _indent(lines[index]) <= indent:
            break
        lines[index] = ""


def _drop_markup(lines: list[str]) -> None:
    """Blanks directives, fields, remarks, and what `::` introduces."""
    for index, line in enumerate(lines):
        prose = _PROSE_DIRECTIVE.match(line)
        if prose:
            # It becomes an item, to which the indented lines below belong.
            lines[index] = " " * _indent(line) + "- " + line[prose.end() :]
        elif _DIRECTIVE.match(line) or _FIELD.match(line):
            lines[index] = ""
            _drop_body(lines, index + 1, _indent(line))
        elif line.rstrip().endswith("::"):
            lines[index] = line.rstrip()[:-1]
            _drop_body(lines, index + 1, _indent(line))
        elif _REMARK.match(line) or not any(map(str.isalnum, line)):
            lines[index] = ""


def _sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields each section's title, in lower case, and its lines.

    A title with a colon holds for the lines indented deeper, an underlined
    one up to the next title. Text outside of any section has the title "".
    """
    title, body, floor = "", [], -1
    for line, following in zip(lines, [*lines[1:], ""], strict=False):
        text = line.strip()
        heading = text.removesuffix(":").strip("#* ").casefold()
        underlined = bool(text and _UNDERLINE.match(following))
        named = text.endswith(":") and bool(
            _CODE_TITLE.fullmatch(heading) or _TABLE_TITLE.fullmatch(heading)
        )
        ended = text and _indent(line) <= floor
        if underlined or named or ended:
            yield title, body
            title, body = heading if underlined or named else "", []
            floor = _indent(line) if named else -1
        if not underlined and not named:
            body.append(line)
    yield title, body


def _blocks(lines: list[str]) -> list[list[str]]:
    """Returns the lines of each paragraph, stripped, item marks removed."""
    blocks: list[list[str]] = []
    indent, hanging = -1, False
    for line in lines:
        text, previous = line.strip(), indent
        indent = _indent(line) if text else -1
        if not text:
            continue
        mark = _ITEM.match(text) or _LABEL.match(text)
        follows = indent == previous or (hanging and indent > previous >= 0)
        if mark or not follows:
            blocks.append([])
        blocks[-1].append(text[mark.end() :] if mark else text)
        hanging = bool(mark)
    return blocks


def split_sentences(paragraph: str) -> list[str]:
    """Returns the sentences, split by a simple heuristic."""
    return _BOUNDARY.split(paragraph)


def _reads_as_prose(sentence: str) -> bool:
    words = sentence.split()
    plain = sum(bool(_PLAIN.match(word)) for word in words)
    return (
        len(words) >= MIN_SENTENCE_WORDS
        and plain >= MIN_PLAIN_SHARE * len(words)
        and bool(_SHAPE.match(sentence))
        and not _FOREIGN.search(sentence)
        and sentence.count("(") == sentence.count(")")
        and sentence.isprintable()
    )


def prose_paragraphs(docstring: str) -> list[str]:
    """Returns the paragraphs of prose, each on one line without mark-up.

    `docstring` is cleaned already, as by `inspect.cleandoc`. Sentences that
    read as code, tables or fragments are left out of their paragraph.
    """
    lines = docstring.expandtabs().splitlines()
    _drop_fences(lines)
    _drop_doctests(lines)
    paragraphs = []
    for title, body in _sections(lines):
        if _CODE_TITLE.fullmatch(title):
            continue
        in_table = bool(_TABLE_TITLE.fullmatch(title))
        _drop_markup(body)
        for block in _blocks(body):
            if 2 * sum(bool(_CODE.match(line)) for line in block) >= len(block):
                continue
            text = " ".join(block)
            for pattern, replacement in _INLINE:
                text = pattern.sub(replacement, text)
            kept = [
                sentence
                for sentence in split_sentences(text.strip())
                if _reads_as_prose(sentence)
                and (not in_table or _VERB.search(sentence))
            ]
            if kept:
                paragraphs.append(" ".join(kept))
    return paragraphs


def _documentation(node: ast.AST) -> Iterator[str]:
    """Yields the docstrings in and below a node, in source order."""
    if isinstance(node, _Documented) and (text := ast.get_docstring(node)):
        yield text
    for block in ("body", "handlers", "orelse", "finalbody"):
        children = getattr(node, block, ())
        # The body of a lambda is an expression.
        for child in children if isinstance(children, list) else ():
            if isinstance(node, ast.Module):
                yield from _long_strings(child)
            yield from _documentation(child)


def _long_strings(statement: ast.AST) -> Iterator[str]:
    """Yields documentation that is no docstring.

    At module level strings of several paragraphs are attached to something
    later (NumPy's `add_newdoc`) or read by hand (pydoc's topics).
    """
    called = isinstance(statement, ast.Expr) and isinstance(
        statement.value, ast.Call
    )
    if called or isinstance(statement, (ast.Assign, ast.AnnAssign)):
        for node in ast.walk(statement):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and "\n\n" in text:
                yield inspect.cleandoc(text)


def module_docstrings(source: str) -> list[list[str]]:
    """Returns the paragraphs of prose of a module's docstrings, in order.

    Docstrings without prose are left out. The source is parsed, never run.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: for text that
            is not Python source, or too deep a nest of it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in old sources
        tree = ast.parse(source)
    return list(filter(None, map(prose_paragraphs, _documentation(tree))))

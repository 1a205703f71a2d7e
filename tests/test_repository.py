"""The map of WORKSPACE.md, names, comments, and functions that are short."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOP_LEVEL = ("albert_tf", "benchmarks", "bin", "data_prep", "experiments")
# First words of what lacks a subject, or names it elsewhere.
_FRAGMENT = re.compile(r"(of|as|those|its) ", re.IGNORECASE)


def modules_named(section: str) -> set[str]:
    """Returns the paths of the modules that the map names.

    A line that begins with `folder/` says where the names after it lie; one
    that is indented lies within the last that is not.
    """
    named, top, folder = set(), "", ""
    for line in section.splitlines():
        if found := re.match(r"( *)([\w/]+)/", line):
            name = found[2]
            top, folder = (top, f"{top}/{name}") if found[1] else (name, name)
        named |= {f"{folder}/{file}" for file in re.findall(r"\w+\.py\b", line)}
    return named


def test_the_map_names_every_module_and_no_other():
    text = (ROOT / "WORKSPACE.md").read_text(encoding="utf-8")
    section = text.partition("\n## The map\n")[2].partition("\n## ")[0]
    named = modules_named(section)
    there = {
        path.relative_to(ROOT).as_posix()
        for top in ("albert_tf", "data_prep")
        for path in (ROOT / top).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert "albert_tf/records/schemas.py" in there
    assert sorted(there - named) == []
    missing = [path for path in named if not (ROOT / path).is_file()]
    assert sorted(missing) == []


def test_names_in_the_reasons_are_in_the_code():
    text = (ROOT / "WORKSPACE.md").read_text(encoding="utf-8")
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for top in TOP_LEVEL
        for path in (ROOT / top).rglob("*.py")
    )
    quoted = " ".join(re.findall(r"`([^`\n]+)`", text))
    names = set(re.findall(r"\b[a-z]*_[a-z]\w*\b(?!\.py)", quoted))
    assert len(names) > 50
    unknown = names.difference(re.findall(r"\w+", code))
    # Beam's, which nothing calls, and a name that the code puts together.
    assert unknown == {"finish_bundle", "mean_classifier"}


def test_modules_are_named_after_their_subject():
    names = {
        path.stem for top in TOP_LEVEL for path in (ROOT / top).rglob("*.py")
    }
    assert not names & {"util", "utils", "helper", "helpers", "misc"}


def first_lines(source: str) -> list[tuple[int, str]]:
    """Returns the line number and first line of comments and docstrings.

    Comments on lines below each other are one comment.
    """
    found, above = [], 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            is_alone = not token.line[:column].strip()
            if not is_alone or above != row - 1:
                found.append((row, token.string.lstrip("# ")))
            above = row if is_alone else 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(
            node,
            ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
        ) and (text := ast.get_docstring(node)):
            found.append((node.body[0].lineno, text))
    return found


def test_comments_and_docstrings_begin_with_a_subject():
    # Parsing every file takes seconds: most have no such word anywhere.
    possible = re.compile(rf'(#|""")\s*{_FRAGMENT.pattern}', re.IGNORECASE)
    fragments = [
        f"{path.relative_to(ROOT)}:{number}: {line}"
        for top in (*TOP_LEVEL, "examples", "tests")
        for path in sorted((ROOT / top).rglob("*.py"))
        if possible.search(source := path.read_text(encoding="utf-8"))
        for number, line in first_lines(source)
        if _FRAGMENT.match(line)
    ]
    assert fragments == []


# What a reader meets on the way of a batch, a text, and an answer.
READ_FIRST = (
    "albert_tf/modeling/models.py:AlbertModel.call",
    "albert_tf/modeling/inputs.py:checked_features",
    "albert_tf/modeling/encoder.py:AlbertEncoder.call",
    "albert_tf/modeling/blocks.py:TransformerBlock.call",
    "albert_tf/modeling/blocks.py:SelfAttention.call",
    "albert_tf/training/trainer.py:Trainer._replica_train_step",
    "albert_tf/jobs/pretrain.py:run_pretraining",
    "albert_tf/text/in_graph.py:InGraphTokenizer.encode_with_offsets",
    "albert_tf/interchange/export/length_groups.py:_in_micro_batches",
    "albert_tf/interchange/export/span_graph.py:best_answers",
)

# A user gives a model all of these by name: hidden in a dictionary, a wrong
# one would be passed on.
MOST_PARAMETERS = {"albert_tf/modeling/models.py:AlbertModel.call": 7}


@pytest.mark.parametrize("name", READ_FIRST)
def test_functions_that_are_read_first_are_short(name):
    path, _, qualified = name.partition(":")
    node = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    for part in qualified.split("."):
        (node,) = (n for n in node.body if getattr(n, "name", "") == part)
    documentation = node.body[0]
    assert ast.get_docstring(node)
    lines = (node.end_lineno - node.lineno) - (
        documentation.end_lineno - documentation.lineno
    )
    arguments = {a.arg for a in (*node.args.args, *node.args.kwonlyargs)}
    assert lines <= 40
    assert len(arguments - {"self"}) <= MOST_PARAMETERS.get(name, 6)

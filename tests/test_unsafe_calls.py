"""Calls by which data could run as code, sought in the source.

Who may import whom is checked by import-linter (pyproject.toml).
"""

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOP_LEVEL = ("albert_tf", "benchmarks", "bin", "data_prep", "experiments")
# Ways in which data could run as code, in source without strings and comments.
# Pickles and the like run code of their file; archives may hold paths out of
# their folder; Keras' own files may hold code or the paths of others.
_PACKAGES = (
    "pickle|cPickle|_pickle|jsonpickle|dill|cloudpickle|marshal|shelve|joblib"
    "|runpy"
)
UNSAFE = re.compile(
    rf"\b(import|from) ({_PACKAGES})\b"
    r"|(?<![.\w] )(?<!def )\b(eval|exec|compile|__import__)\b"
    r"|\bbuiltins \. (eval|exec|compile|__import__)\b"
    r"|\b(extractall|unpack_archive|load_weights|read_pickle|TFSMLayer)\b"
    r"|\b(load_model|enable_unsafe_deserialization)\b"
    r"|\b(unsafe_load|full_load|load_all)\b|\byaml \. load\b"
    r"|\btorch (\. |import (.* )?)load\b"
    r"|\b(allow_pickle|shell|trust_remote_code) = (?!False\b)"
    r"|\bsafe_mode = (?!True\b)"
)


def unsafe_uses(module: str, source: str) -> list[str]:
    """Returns the lines of a module in which data could run as code."""
    lines: dict[int, list[str]] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.NAME, tokenize.OP):
            lines.setdefault(token.start[0], []).append(token.string)
    texts = {number: " ".join(words) for number, words in lines.items()}
    return [
        f"{module}:{number}: {text}"
        for number, text in texts.items()
        if UNSAFE.search(text)
    ]


def test_no_data_run_as_code():
    uses = [
        use
        for top in TOP_LEVEL
        for path in sorted((ROOT / top).rglob("*.py"))
        for use in unsafe_uses(
            path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        )
    ]
    assert not uses, "\n".join(uses)


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    from pickle import loads",
        "run = eval",
        "builtins.exec('')",
        "y.unsafe_load(x)",
        "yaml.load(x)",
        "np.load(x, allow_pickle=trusted)",
        "m.load_model(x)",
        "load(x, safe_mode=False)",
        "from torch import load",
        "archive.extractall(y)",
    ],
)
def test_a_planted_danger_is_found(source):
    assert unsafe_uses("a", source)

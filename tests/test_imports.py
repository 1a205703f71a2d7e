"""The import order of rooms and unsafe calls, read from the source.

Each rule has one planted fault, to show that it is found.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOP = ("albert_tf", "data_prep", "bin")
# A room imports from rooms before it, and from itself.
ROOMS = (
    "config",
    "io",
    "text",
    "records",
    "modeling",
    "optim",
    "tasks",
    "interchange",
    "serving",
    "cluster",
    "rundir",
    "inputs",
    "training",
    "jobs",
)
DATA_PREP_ROOMS = ("config", "io", "text", "records", "tasks")
# Packages beside the standard library; rooms that are not listed take any.
OUTSIDE_PACKAGES = {
    "io": ("tensorflow",),
    "config": (),
    "modeling": ("keras", "numpy", "safetensors"),
    "optim": ("keras", "numpy"),
    "tasks": ("numpy", "scipy", "sklearn"),
}
# Further packages that a single module imports, within its functions or where
# Keras has that backend.
OUTSIDE_MODULES = {
    "albert_tf.modeling.kernels": ("tensorflow",),
    "albert_tf.modeling.inputs": ("jax", "tensorflow", "torch"),
}
# Modules that load without TensorFlow, which takes seconds.
LIGHT = (
    *(f"albert_tf.{room}" for room in ("config", "io", "text", "records")),
    *("albert_tf.cluster.clusters", "albert_tf.cluster.stops"),
    *("albert_tf.tasks", "data_prep"),
)
HEAVY = (
    "tensorflow",
    "tensorflow_text",
    "keras",
    "tf_keras",
    "albert_tf.text.in_graph",
)
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


class Import(NamedTuple):
    """One imported name, and whether it loads with its importer."""

    line: int
    target: str
    at_load: bool


def walk(node: ast.AST, at_load: bool = True) -> Iterator:
    """Yields every node below, and whether it runs when the module loads."""
    for child in ast.iter_child_nodes(node):
        loads = at_load and not isinstance(child, ast.FunctionDef)
        if isinstance(child, ast.If) and "ON_TENSORFLOW" in ast.unparse(
            child.test
        ):
            loads = False
        yield child, loads
        yield from walk(child, loads)


def imports_of(source: str) -> list[Import]:
    """Returns the imports of a module.

    `from a import b` counts as "a.b": b may be a module. A relative import
    begins with a dot.
    """
    found = []
    for node, at_load in walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(
            node.func
        ):
            names = [str(getattr(node.args[0], "value", ""))]
        found += [Import(node.lineno, name, at_load) for name in names]
    return found


def room_of(name: str) -> str | None:
    """Returns the room of "albert_tf.room.module", None outside of rooms."""
    top, _, rest = name.partition(".")
    return rest.partition(".")[0] if top == "albert_tf" and rest else None


def is_within(name: str, places: tuple[str, ...]) -> bool:
    return f"{name}.".startswith(tuple(f"{place}." for place in places))


def broken_rules(module: str, entry: Import) -> Iterator[str]:
    """Yields the rules that an import of `module` breaks."""
    top, room = module.split(".")[0], room_of(module)
    package, other = entry.target.split(".")[0], room_of(entry.target)
    if not package:
        yield "imports are absolute"
    if top == "albert_tf" and package in ("bin", "data_prep", "absl"):
        yield "the library imports no programs, data jobs or flags"
    if top == "data_prep" and package == "bin":
        yield "data jobs import no programs"
    if top == "data_prep" and other and other not in DATA_PREP_ROOMS:
        yield f"data jobs import only {', '.join(DATA_PREP_ROOMS)}"
    if top == "albert_tf" and other:
        if room == "__init__":
            yield "the package itself imports no room"
        elif ROOMS.index(other) > ROOMS.index(room):
            yield f"{other} stands after {room}"
    if room in OUTSIDE_PACKAGES:
        lazily = () if entry.at_load else OUTSIDE_MODULES.get(module, ())
        known = (*OUTSIDE_PACKAGES[room], *lazily, *TOP)
        if package not in (*known, *sys.stdlib_module_names):
            yield f"{room} imports only {OUTSIDE_PACKAGES[room]}"
    light = is_within(module, LIGHT) and not is_within(module, HEAVY)
    if light and entry.at_load and is_within(entry.target, HEAVY):
        yield "import it within the function that needs it"


def import_faults(module: str, source: str) -> list[str]:
    """Returns a line for each import that breaks a rule."""
    return [
        f"{module}:{entry.line} imports {entry.target}: {rule}"
        for entry in imports_of(source)
        for rule in broken_rules(module, entry)
    ]


def find_circle(sources: dict[str, str]) -> list[str]:
    """Returns a circle of imports among modules given as name: source."""

    def imported_module(target: str) -> set[str]:
        parent = target.rpartition(".")[0]
        for name in (target, parent):
            for module in (name, f"{name}.__init__"):
                if module in sources:
                    return {module}
        return set()

    graph = {
        module: set().union(
            *(imported_module(e.target) for e in imports_of(source))
        )
        for module, source in sources.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


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


SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(
        encoding="utf-8"
    )
    for top in TOP
    for path in sorted((ROOT / top).rglob("*.py"))
}


@pytest.mark.parametrize("faults_of", [import_faults, unsafe_uses])
def test_no_module_breaks_a_rule(faults_of):
    faults = [
        fault
        for module, source in SOURCES.items()
        for fault in faults_of(module, source)
    ]
    assert not faults, "\n".join(faults)


def test_imports_run_in_no_circle():
    assert not find_circle(SOURCES)


def test_modules_are_named_after_their_subject():
    names = {module.rpartition(".")[2] for module in SOURCES}
    assert not names & {"util", "utils", "helper", "helpers", "misc"}


def test_every_room_is_in_the_order():
    rooms = {room_of(module) for module in SOURCES} - {None, "__init__"}
    assert rooms == set(ROOMS)


@pytest.mark.parametrize(
    ("module", "source", "rule"),
    [
        ("albert_tf.training.a", "from absl import flags", "no programs"),
        ("albert_tf.text.a", "from albert_tf import modeling", "after text"),
        ("albert_tf.tasks.a", "from .. import training", "are absolute"),
        (
            "albert_tf.rundir.a",
            "def f():\n    import importlib as i\n"
            "    i.import_module('albert_tf.jobs.a')",
            "jobs stands after rundir",
        ),
        ("albert_tf.__init__", "from albert_tf.config import a", "no room"),
        ("data_prep.a", "from albert_tf.jobs import x", "data jobs import"),
        ("data_prep.a", "import bin.demo", "data jobs import no programs"),
        ("albert_tf.config.a", "import numpy as np", "config imports only"),
        (
            "data_prep.a",
            "class A:\n    from albert_tf.text.in_graph import x",
            "within the function",
        ),
    ],
)
def test_a_planted_import_is_found(module, source, rule):
    assert any(rule in fault for fault in import_faults(module, source))


def test_a_planted_circle_is_found():
    sources = {
        "albert_tf.text.a": "from albert_tf.text import b",
        "albert_tf.text.b": "def f():\n    from albert_tf.text.c import x",
        "albert_tf.text.c": "import albert_tf.text.a",
    }
    assert set(find_circle(sources)) == set(sources)
    assert find_circle({"a.__init__": "from a.b import x", "a.b": "import a"})


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

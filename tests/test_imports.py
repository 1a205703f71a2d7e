"""The house's rules on imports and on dangerous calls, read with `ast`.

The checkers work on source text, so that the tests can also plant violations
and see each of them caught.
"""

import ast
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOP = ("albert_tf", "data_prep", "bin")
# A room imports from rooms that stand before it, and from itself.
ROOMS = (
    "config",
    "io",
    "text",
    "records",
    "modeling",
    "optim",
    "tasks",
    "interchange",
    "cluster",
    "rundir",
    "inputs",
    "training",
    "jobs",
)
DATA_PREP_MAY_IMPORT = ("config", "io", "text", "records", "tasks")
# The only packages beside the standard library in these rooms.
OUTSIDE_PACKAGES = {
    "io": ("tensorflow",),
    "config": (),
    "modeling": ("keras", "numpy", "safetensors"),
    "optim": ("keras", "numpy"),
    "tasks": ("numpy", "scipy", "sklearn"),
}
# What a single module may import beside these, within its functions.
OUTSIDE_MODULES = {
    "albert_tf.modeling.fused": ("tensorflow",),
    "albert_tf.modeling.inputs": ("jax", "tensorflow"),
}
# Places whose modules load without waiting seconds for TensorFlow; what is
# TensorFlow through and through stands among the heavy.
LIGHT = ("albert_tf.io.files", "albert_tf.text", "albert_tf.tasks", "data_prep")
HEAVY = (
    "tensorflow",
    "tensorflow_text",
    "keras",
    "tf_keras",
    "albert_tf.text.in_graph",
)
UNSAFE_MODULES = (
    "pickle",
    "cPickle",
    "_pickle",
    "jsonpickle",
    "marshal",
    "runpy",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
)
UNSAFE_BUILTINS = ("eval", "exec", "compile", "__import__")
# Functions and methods, whatever they are called on. Archives may hold paths
# out of their folder; Keras' own files may hold code or the paths of others.
UNSAFE_ANYWHERE = (
    "extractall",
    "unpack_archive",
    "load_weights",
    "read_pickle",
    "TFSMLayer",
)
SAFE_KEYWORDS = {
    "allow_pickle": False,
    "safe_mode": True,
    "shell": False,
    "trust_remote_code": False,
}


@dataclasses.dataclass(frozen=True)
class Import:
    """One imported module, and whether it loads with its importer."""

    line: int
    target: str
    at_load: bool


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _walk(node: ast.AST, at_load: bool = True) -> Iterator:
    """Yields every node below with whether it runs when the module loads."""
    for child in ast.iter_child_nodes(node):
        lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        later = not at_load or lazy or _is_type_checking(child)
        yield child, not later
        yield from _walk(child, not later)


def _dotted(node: ast.AST) -> str:
    """Returns "a.b.c" for such an expression, else ""."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return base and f"{base}.{node.attr}"
    return ""


def imports_of(module: str, source: str) -> list[Import]:
    """Returns every import of a module's source, names made absolute.

    `from a import b` counts as "a.b": b may be a module. A package's own
    module is called "package.__init__".
    """
    found = []
    for node, at_load in _walk(ast.parse(source)):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = ".".join(module.split(".")[: -node.level])
                base = f"{above}.{base}".strip(".")
            targets = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and node.args:
            name, first = _dotted(node.func), node.args[0]
            dynamic = name.split(".")[-1] in ("import_module", "__import__")
            if dynamic and isinstance(first, ast.Constant):
                targets = [str(first.value)]
        found += [Import(node.lineno, name, at_load) for name in targets]
    return found


def room_of(target: str) -> str | None:
    """Returns the room of "albert_tf.room.module", None outside of rooms."""
    parts = target.split(".")
    if parts[0] != "albert_tf" or len(parts) < 2:
        return None
    return parts[1]


def _within(name: str, places: tuple[str, ...]) -> bool:
    return f"{name}.".startswith(tuple(f"{place}." for place in places))


def _reasons(module: str, entry: Import) -> Iterator[str]:
    """Yields the rules that an import of `module` breaks."""
    top, room = module.split(".")[0], room_of(module)
    outside, theirs = entry.target.split(".")[0], room_of(entry.target)
    if top == "albert_tf" and outside in ("bin", "data_prep", "absl"):
        yield "the library knows no programs, data jobs or flags"
    if top == "albert_tf" and theirs:
        if room == "__init__":
            yield "the package itself imports no room"
        elif theirs not in ROOMS:
            yield "not a room"
        elif ROOMS.index(theirs) > ROOMS.index(room):
            yield f"{theirs} stands after {room}"
    if top == "data_prep":
        if outside == "bin":
            yield "data jobs know no programs"
        if theirs and theirs not in DATA_PREP_MAY_IMPORT:
            yield f"data jobs use only {', '.join(DATA_PREP_MAY_IMPORT)}"
    if room in OUTSIDE_PACKAGES:
        allowed = OUTSIDE_PACKAGES[room]
        lazily = () if entry.at_load else OUTSIDE_MODULES.get(module, ())
        known = (*allowed, *lazily, *TOP, *sys.stdlib_module_names)
        if outside not in known:
            yield f"{room} uses only {', '.join(allowed) or 'the library'}"
    if (
        _within(module, LIGHT)
        and not _within(module, HEAVY)
        and _within(entry.target, HEAVY)
        and entry.at_load
    ):
        yield "import it within the function that needs it"


def import_faults(module: str, source: str) -> list[str]:
    """Returns a line for each import that the house's rules forbid."""
    return [
        f"{module}:{entry.line} imports {entry.target}: {reason}"
        for entry in imports_of(module, source)
        for reason in _reasons(module, entry)
    ]


def circles(sources: dict[str, str]) -> list[tuple[str, ...]]:
    """Returns the circles of imports among modules given as name: source."""
    graph: dict[str, list[str]] = {}
    for module, source in sources.items():
        edges = set()
        for entry in imports_of(module, source):
            parts = entry.target.split(".")
            for end in (len(parts), len(parts) - 1):
                name = ".".join(parts[:end])
                if name in sources:
                    edges.add(name)
                    break
                if f"{name}.__init__" in sources:
                    edges.add(f"{name}.__init__")
                    break
        graph[module] = sorted(edges)
    found, done = [], set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        if module in path:
            found.append((*path[path.index(module) :], module))
        elif module not in done:
            for other in graph[module]:
                visit(other, (*path, module))
            done.add(module)

    for module in sorted(graph):
        visit(module, ())
    return found


def _aliases(tree: ast.AST) -> dict[str, str]:
    """Returns what each imported name stands for, in full."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    names[alias.asname] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                names[alias.asname or alias.name] = full
    return names


def _full_name(node: ast.AST, aliases: dict[str, str]) -> str:
    """Returns the name with its module; of `f(x).y` only ".y"."""
    first, *rest = _dotted(node).split(".")
    if not first and isinstance(node, ast.Attribute):
        rest = [node.attr]
    return ".".join([aliases.get(first, first), *rest])


def _is_unsafe_name(name: str) -> bool:
    parts = name.removeprefix("builtins.").split(".")
    if parts[0] in UNSAFE_MODULES:
        return True
    if parts[-1] in UNSAFE_ANYWHERE:
        return True
    if len(parts) == 1:
        return parts[0] in UNSAFE_BUILTINS
    if parts[0] == "torch":
        return parts[-1] == "load"
    if parts[0] == "yaml":
        return parts[-1].startswith(("load", "unsafe_load", "full_load"))
    # Keras files can hold code. SavedModels are loaded by other names.
    return parts[0] in ("keras", "tf_keras", "tensorflow", "tf") and parts[
        -1
    ] in ("load_model", "enable_unsafe_deserialization")


def _is_unsafe_keyword(node: ast.keyword) -> bool:
    if node.arg not in SAFE_KEYWORDS:
        return False
    safe = SAFE_KEYWORDS[node.arg]
    return not (
        isinstance(node.value, ast.Constant) and node.value.value is safe
    )


def unsafe_uses(source: str) -> list[str]:
    """Returns a line for each way in which data could run as code."""
    tree = ast.parse(source)
    aliases = _aliases(tree)
    faults = set()
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Name | ast.Attribute):
            names = [_full_name(node, aliases)]
        elif isinstance(node, ast.Call):
            loads = _full_name(node.func, aliases) == "numpy.load"
            if loads and len(node.args) > 2:
                faults.add(f"{node.lineno}: allow_pickle by its place")
        elif isinstance(node, ast.keyword) and _is_unsafe_keyword(node):
            faults.add(f"{node.value.lineno}: {node.arg}")
        faults |= {
            f"{node.lineno}: {name}" for name in names if _is_unsafe_name(name)
        }
    return sorted(faults)


def python_files() -> dict[str, Path]:
    """Returns the library's, the data jobs' and the programs' modules."""
    files = {}
    for top in TOP:
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            files[".".join(parts)] = path
    return files


FILES = python_files()


@pytest.mark.parametrize("module", FILES)
def test_imports_keep_to_the_order_of_rooms(module):
    source = FILES[module].read_text(encoding="utf-8")
    assert not import_faults(module, source)


@pytest.mark.parametrize("module", FILES)
def test_no_data_can_run_as_code(module):
    assert not unsafe_uses(FILES[module].read_text(encoding="utf-8"))


def test_imports_run_in_no_circle():
    sources = {
        name: path.read_text(encoding="utf-8") for name, path in FILES.items()
    }
    assert not circles(sources)


def test_every_helper_lives_with_its_noun():
    names = {path.stem for path in FILES.values()}
    assert not names & {"util", "utils", "helper", "helpers", "misc"}


def test_every_room_is_on_the_list():
    folders = {
        path.parent.relative_to(ROOT / "albert_tf").parts[0]
        for path in (ROOT / "albert_tf").rglob("*.py")
        if path.parent != ROOT / "albert_tf"
    }
    modules = {path.stem for path in (ROOT / "albert_tf").glob("*.py")}
    assert folders | modules <= {*ROOMS, "__init__"}
    assert {"config", "modeling", "interchange"} <= folders | modules


@pytest.mark.parametrize(
    ("module", "source", "reason"),
    [
        ("albert_tf.text.a", "import bin.pretrain", "no programs"),
        ("albert_tf.training.a", "from absl import flags", "no programs"),
        ("albert_tf.text.a", "from data_prep.x import y", "no programs"),
        (
            "albert_tf.text.a",
            "from albert_tf.modeling import layers",
            "modeling stands after text",
        ),
        (
            "albert_tf.text.a",
            "from albert_tf import modeling",
            "modeling stands after text",
        ),
        (
            "albert_tf.config",
            "import albert_tf.records.schemas",
            "records stands after config",
        ),
        (
            "albert_tf.modeling.a",
            "def f():\n    from albert_tf.tasks.glue import TASKS",
            "tasks stands after modeling",
        ),
        (
            "albert_tf.interchange.a",
            "from ..training import trainer",
            "training stands after interchange",
        ),
        (
            "albert_tf.tasks.a",
            "from .. import training",
            "training stands after tasks",
        ),
        (
            "albert_tf.training.a",
            "import importlib\nimportlib.import_module('albert_tf.jobs.sweep')",
            "jobs stands after training",
        ),
        ("albert_tf.training.a", "from albert_tf.misc import x", "not a room"),
        (
            "albert_tf.__init__",
            "from albert_tf.config import UserError",
            "no room",
        ),
        (
            "data_prep.a",
            "from albert_tf.modeling.models import AlbertForPretraining",
            "data jobs use only config, io, text, records, tasks",
        ),
        ("data_prep.a", "import bin.demo", "data jobs know no programs"),
        ("albert_tf.modeling.a", "import tensorflow as tf", "modeling uses"),
        (
            "albert_tf.modeling.a",
            "def f():\n    import tensorflow as tf",
            "modeling uses only keras, numpy, safetensors",
        ),
        ("albert_tf.modeling.fused", "import tensorflow", "modeling uses"),
        ("albert_tf.modeling.a", "import torch", "modeling uses only"),
        ("albert_tf.tasks.a", "def f():\n    import keras", "tasks uses only"),
        ("albert_tf.config", "import numpy as np", "config uses only"),
        ("albert_tf.text.a", "import tensorflow as tf", "within the function"),
        (
            "data_prep.a",
            "from albert_tf.text.in_graph import InGraphTokenizer",
            "within the function",
        ),
        (
            "data_prep.a",
            "class A:\n    from tensorflow import io",
            "within the function",
        ),
    ],
)
def test_a_planted_import_is_caught(module, source, reason):
    (fault, *_) = import_faults(module, source)
    assert fault.startswith(f"{module}:{source.count(chr(10)) + 1} imports ")
    assert any(reason in fault for fault in import_faults(module, source))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("albert_tf.text.a", "from albert_tf.config import UserError"),
        ("albert_tf.text.a", "from . import b"),
        ("albert_tf.text.a", "from .b import c"),
        ("albert_tf.text.a", "def f():\n    import tensorflow as tf"),
        ("albert_tf.text.a", "def f():\n    from .in_graph import x"),
        ("albert_tf.text.in_graph", "import tensorflow as tf"),
        (
            "albert_tf.text.a",
            "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    import tensorflow as tf",
        ),
        ("albert_tf.modeling.a", "import re\nimport keras\nimport numpy"),
        ("albert_tf.modeling.fused", "def f():\n    import tensorflow as tf"),
        ("albert_tf.training.a", "import tensorflow as tf"),
        ("albert_tf.jobs.a", "from albert_tf.training import trainer"),
        ("data_prep.a", "import multiprocessing\nfrom data_prep.b import c"),
        ("data_prep.a", "from albert_tf.records.schemas import write"),
        ("bin.a", "from absl import app\nfrom albert_tf.training import x"),
    ],
)
def test_an_allowed_import_is_not(module, source):
    assert import_faults(module, source) == []


def test_a_relative_import_in_a_package_counts_from_it():
    (entry,) = imports_of(
        "albert_tf.text.__init__", "from .records import write"
    )
    assert entry.target == "albert_tf.text.records.write"


def test_planted_circles_are_caught():
    assert circles(
        {
            "albert_tf.text.a": "from albert_tf.text import b",
            "albert_tf.text.b": "def f():\n    from .c import x",
            "albert_tf.text.c": "import albert_tf.text.a",
            "albert_tf.text.d": "from albert_tf.text.a import x",
        }
    ) == [
        (
            "albert_tf.text.a",
            "albert_tf.text.b",
            "albert_tf.text.c",
            "albert_tf.text.a",
        )
    ]
    assert circles({"a.__init__": "from a.b import x", "a.b": "import a"})
    assert not circles({"a.b": "from a.c import x", "a.c": "import os"})


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "import marshal",
        "import shelve",
        "def f():\n    import dill",
        "eval('1')",
        "exec('x = 1')",
        "run = eval",
        "import builtins\nbuiltins.exec('')",
        "__import__('pickle')",
        "import yaml\nyaml.load(x)",
        "import yaml as y\ny.unsafe_load(x)",
        "from yaml import load",
        "import numpy as np\nnp.load(x, allow_pickle=True)",
        "import numpy as np\nnp.load(x, allow_pickle=trusted)",
        "import keras\nkeras.saving.load_model(x)",
        "import keras\nkeras.models.load_model(x)",
        "from keras import saving\nsaving.load_model(x)",
        "from keras.models import load_model",
        "from keras import models as m\nm.load_model(x)",
        "import tensorflow as tf\ntf.keras.models.load_model(x)",
        "import keras\nkeras.config.enable_unsafe_deserialization()",
        "load(x, safe_mode=False)",
        "import _pickle",
        "import joblib\njoblib.load(x)",
        "from cloudpickle import load",
        "import runpy\nrunpy.run_path(x)",
        "compile(x, 'x', 'exec')",
        "import numpy as np\nnp.load(x, None, True)",
        "from numpy import load\nload(x, None, trusted)",
        "import torch\ntorch.load(x)",
        "import torch as t\nt.load(x, weights_only=True)",
        "from torch import load",
        "import torch.jit\ntorch.jit.load(x)",
        "import pandas as pd\npd.read_pickle(x)",
        "import tarfile\ntarfile.open(x).extractall(y)",
        "import zipfile\narchive = zipfile.ZipFile(x)\narchive.extractall(y)",
        "import shutil\nshutil.unpack_archive(x)",
        "from shutil import unpack_archive",
        "model.load_weights(x)",
        "def f(self, x):\n    self.models[0].load_weights(x)",
        "restore = model.load_weights",
        "import keras\nkeras.layers.TFSMLayer(x)",
        "import keras.saving as s\ns.load_model(x)",
        "import tf_keras\ntf_keras.models.load_model(x)",
        "import subprocess\nsubprocess.run(x, shell=True)",
        "AutoModel.from_pretrained(x, trust_remote_code=True)",
    ],
)
def test_a_planted_danger_is_caught(source):
    assert unsafe_uses(source)


@pytest.mark.parametrize(
    "source",
    [
        "import json\njson.load(file)",
        "import numpy as np\nnp.load(x)\nnp.load(x, allow_pickle=False)",
        "import tensorflow as tf\ntf.saved_model.load(x)",
        "import yaml\nyaml.safe_load(x)",
        "import ast\nast.literal_eval('1')",
        "model.eval()",
        "from albert_tf.interchange.model_directory import load_model",
        "'pickle and eval in prose'",
        "import re\nre.compile(x)",
        "model.compile(optimizer)",
        "import numpy as np\nnp.load(x, 'r')",
        "model.save_weights(x)",
        "import zipfile\nzipfile.ZipFile(x).namelist()",
        "import subprocess\nsubprocess.run([x], shell=False)",
        "torch.save(x, y)",
    ],
)
def test_an_allowed_use_is_not(source):
    assert unsafe_uses(source) == []

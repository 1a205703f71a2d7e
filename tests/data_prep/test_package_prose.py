import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from albert_tf.config import UserError
from data_prep import package_prose
from data_prep.package_prose import package_directory, source_files


def test_modules_are_listed_without_tests(tmp_path):
    kept = "__init__.py b.py a/__init__.py a/c.py conftest.py"
    tests = "test_b.py b_test.py a/_test.py tests/d.py a/test/d.py"
    others = "notes.txt a-b.py site-packages/other.py __pycache__/b.py"
    for name in f"{kept} {tests} {others}".split():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("", encoding="utf-8")
    names = ["a", "a.c", "b", "conftest"]
    found = source_files("red", os.fspath(tmp_path))
    assert [file.name for file in found] == ["red"] + [
        f"red.{name}" for name in names
    ]
    found = source_files("stdlib", os.fspath(tmp_path))
    assert [file.name for file in found] == ["", *names]


def test_packages_are_found_and_not_imported():
    code = (
        "import sys; from data_prep.package_prose import package_directory;"
        "print(package_directory('numpy'), package_directory('stdlib'));"
        "assert not {'numpy', 'keras', 'tensorflow'} & set(sys.modules)"
    )
    found = subprocess.check_output(
        [sys.executable, "-c", code],
        cwd=Path(package_prose.__file__).parents[1],
        text=True,
    )
    places = (np.__file__, json.__path__[0])
    assert found.split() == list(map(os.path.dirname, places))


def test_a_package_that_is_missing_is_refused():
    with pytest.raises(UserError, match="'green' is not installed: pip insta"):
        package_directory("green")

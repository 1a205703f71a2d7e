"""Runs the notebooks of this folder and writes what they print into them.

python examples/render.py

Cells are run in one namespace, without a Jupyter kernel; a test runs them so.
"""

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """Returns a notebook with the outputs of its code cells, run in order."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            printed = io.StringIO()
            source = "".join(cell["source"])
            with contextlib.redirect_stdout(printed):
                exec(compile(source, f"cell {count}", "exec"), namespace)
            text = printed.getvalue().splitlines(keepends=True)
            output = {"output_type": "stream", "name": "stdout", "text": text}
            cell = {
                **cell,
                "execution_count": count,
                "outputs": [output] if text else [],
            }
        cells.append(cell)
    return {**notebook, "cells": cells}


def main() -> None:
    os.chdir(EXAMPLES)
    for path in EXAMPLES.glob("*.ipynb"):
        notebook = run(json.loads(path.read_text(encoding="utf-8")))
        text = json.dumps(notebook, indent=1, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

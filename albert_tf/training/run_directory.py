"""The run directory: whose run it is."""

import os

from albert_tf.config import UserError, differences, read_json, write_json


def claim(run_dir: str, description: dict) -> None:
    """Makes the run directory, or checks that it holds this very run.

    Args:
        run_dir: made where missing.
        description: everything that decides the run, JSON-ready; written to
            `config.json` before the first step.

    Raises:
        UserError: when the directory belongs to another configuration
            (the differences are listed), holds something else, or cannot be
            written.
    """
    path = os.path.join(run_dir, "config.json")
    if os.path.isfile(path):
        lines = differences(description, read_json(path))
        if lines:
            raise UserError(
                f"{run_dir} holds a run of another configuration "
                f"({'; '.join(lines)}); give the same settings to go on with "
                "it, or another --run_dir."
            )
        return
    # A run that was killed while it wrote its config.json has but left that.
    if os.path.exists(run_dir) and (
        not os.path.isdir(run_dir)
        or any(
            not name.startswith("config.json.tmp-")
            for name in os.listdir(run_dir)
        )
    ):
        raise UserError(
            f"{run_dir} exists and is not a run directory (it has no "
            "config.json); give another --run_dir."
        )
    os.makedirs(run_dir, exist_ok=True)
    write_json(path, description)

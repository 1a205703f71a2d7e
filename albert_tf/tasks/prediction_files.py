"""Prediction files and submissions in the formats of the benchmarks."""

import io
import json
import zipfile
from collections.abc import Sequence
from typing import Any

from albert_tf.config import UserError
from albert_tf.io import files
from albert_tf.tasks.base import Task
from albert_tf.tasks.glue import GLUE_TASKS
from albert_tf.tasks.kinds import span_answers
from albert_tf.tasks.kinds.base import Prediction, ScoredExamples
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice
from albert_tf.tasks.kinds.question_answering import AnswerableSpans, Spans


def prediction_files(
    task: Task,
    split: str,
    scored: ScoredExamples,
    predictions: Sequence[Prediction],
) -> dict[str, bytes]:
    """Returns the files of a split by their names.

    `predictions.jsonl`, a line for each example with its `location`, file and
    line or the like, for every task; for GLUE
    the table that its site accepts (STS-B's test numbers from 0 to 5); for
    SQuAD `predictions.json`, `nbest_predictions.json` and, of version 2.0,
    `null_odds.json`; for multiple choice `answers.json`, letters by id.
    """
    lines = (
        json.dumps({**p.fields, "location": p.location}, ensure_ascii=False)
        for p in predictions
    )
    found = {"predictions.jsonl": "".join(f"{line}\n" for line in lines)}
    by_id = {p.fields.get("id"): p.fields["prediction"] for p in predictions}
    if task.name in GLUE_TASKS:
        name = task.submissions.get(split, f"{task.name}-{split}")
        is_submitted = split in task.submissions
        found[f"{name}.tsv"] = _glue_table(predictions, is_submitted)
    elif isinstance(task.kind, MultipleChoice):
        found["answers.json"] = _json(by_id)
    elif isinstance(task.kind, Spans):
        found["predictions.json"] = _json(by_id)
        pairs = list(zip(scored.examples, scored.scores, strict=True))
        found["nbest_predictions.json"] = _json(
            {q.id: span_answers.nbest(q, row) for q, row in pairs}
        )
        if isinstance(task.kind, AnswerableSpans):
            odds = {q.id: row.no_answer for q, row in pairs}
            found["null_odds.json"] = _json(odds)
    # A lone surrogate, which JSON files can hold, is written as in JSON.
    return {
        name: text.encode("utf-8", "backslashreplace")
        for name, text in found.items()
    }


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


def _glue_table(predictions: Sequence[Prediction], is_submitted: bool) -> str:
    rows = ["index\tprediction"]
    for index, prediction in enumerate(predictions):
        answer = prediction.fields["prediction"]
        # Other tables keep all digits, to be scored like the model.
        if is_submitted and isinstance(answer, float):
            # GLUE accepts scores of STS-B from 0 to 5.
            answer = f"{min(max(answer, 0.0), 5.0):.4f}"
        rows.append(f"{index}\t{answer}")
    return "".join(f"{row}\n" for row in rows)


def add_to_submission(path: str, name: str, content: bytes) -> list[str]:
    """Adds a file to a zip, or replaces it there.

    Returns the names of all files in the zip. Raises UserError when the path
    is of anything else.
    """
    contents: dict[str, bytes] = {}
    if files.exists(path):
        try:
            with files.open(path) as file:
                old = zipfile.ZipFile(io.BytesIO(file.read()))
            contents = {entry: old.read(entry) for entry in old.namelist()}
        except files.ZIP_FAULTS:
            raise UserError(
                f"{path} exists and is no zip file; name another."
            ) from None
    contents[name] = content
    with (
        files.replacing(path) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for entry in sorted(contents):
            # The entry has no time: equal predictions are equal bytes.
            info = zipfile.ZipInfo(entry)
            new.writestr(info, contents[entry], zipfile.ZIP_DEFLATED)
    return sorted(contents)

"""Runners: what carries out the parts of a build that read the whole corpus.

`RUNNERS` has a row for each. Of one plan all write the same bytes.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Protocol

from albert_tf.config import UserError
from albert_tf.text.tokenizer import Tokenizer
from data_prep.corpus.forms import CorpusFile
from data_prep.corpus.reading import FileSurvey
from data_prep.pretraining.build_directory import BuildDirectory, BuildResult
from data_prep.pretraining.build_plan import BuildPlan
from data_prep.pretraining.local_runner import LocalRunner, Progress


class Runner(contextlib.AbstractContextManager, Protocol):
    """A way to run a build.

    Attributes:
        files: reach the output directory, see `BuildDirectory`.
    """

    files: Any

    def list_files(self, inputs: Sequence[str]) -> list[str]:
        """Returns the text files that `inputs` name."""
        ...

    def open_file(self, path: str, mode: str) -> BinaryIO:
        """Returns a file of the corpus, as it is stored."""
        ...

    def survey(self, files: Sequence[CorpusFile]) -> Iterator[FileSurvey]:
        """Yields the survey of each file, in their order."""
        ...

    def run(
        self, plan: BuildPlan, tokenizer: Tokenizer, directory: BuildDirectory
    ) -> BuildResult:
        """Writes the shards, and the result to `directory.result_path`."""
        ...


def _beam_runner(
    output_dir: str, workers: int, options: Sequence[str], progress: Progress
) -> Runner:
    del progress  # Beam's own runners report it
    try:
        with _without_warnings():
            from data_prep.pretraining.beam_runner import BeamRunner
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "apache_beam":
            raise
        raise UserError(
            "runner=beam needs Apache Beam, which is not installed: pip "
            "install -r requirements-beam.txt."
        ) from None
    return BeamRunner(output_dir, workers, options)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Silences Beam about its extras that are not installed."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


# Each takes the output directory, the number of workers, options of its own
# and a progress display.
RUNNERS: dict[str, Callable[..., Runner]] = {
    "local": LocalRunner,
    "beam": _beam_runner,
}

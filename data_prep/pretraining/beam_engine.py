"""Runs pipelines on the engine that Apache Beam's options name: `Engine`."""

import contextlib
import io
import os
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import apache_beam as beam
import grpc
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    PipelineOptions,
    StandardOptions,
)
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import (
    ExtendedProvisionInfo,
    FnApiRunner,
)
from apache_beam.runners.portability.portable_runner import JobServiceHandle

from albert_tf.config import UserError, require
from albert_tf.io import files
from albert_tf.io.json_files import write_json
from data_prep.pretraining import beam_files
from data_prep.pretraining.build_directory import read_build_json


def file_system_of(path: str) -> Any:
    """Returns the module that reaches a path: `files` or `beam_files`.

    A path without a scheme is on this machine's disks, or in a directory that
    all machines share.
    """
    return beam_files if files.is_remote(path) else files


def open_file(path: str, mode: str) -> BinaryIO:
    """Returns a file to read, as it is stored."""
    return file_system_of(path).open(path, mode)


class Engine:
    """What runs pipelines.

    Args:
        options: Beam's pipeline options, `--name=value`.
        workers: processes of Beam's own runner on this machine, which is
            taken where the options name no runner.
    """

    def __init__(self, options: Sequence[str], workers: int) -> None:
        defaults = [
            "--no_save_main_session",
            "--default_sdk_harness_log_level=WARNING",
        ]
        if workers > 1:
            defaults += [
                "--direct_running_mode=multi_processing",
                f"--direct_num_workers={workers}",
            ]
        self._options = _checked([*defaults, *options])
        # Options configure file systems too.
        FileSystems.set_options(self._options)

    def run(
        self, path: str, add_work: Callable[[beam.Pipeline], dict[str, Any]]
    ) -> dict[str, Any]:
        """Returns the results of a pipeline's work, which it writes to `path`.

        Raises:
            UserError: if the engine cannot be reached, or the options make the
                pipeline but do not run it to its end.
        """
        pipeline = _pipeline(self._options)
        results = add_work(pipeline)
        # The results are a file, since any engine can write one.
        path_once = pipeline | "Result" >> beam.Create([path])
        _ = path_once | "WriteResult" >> beam.Map(_write_result, **results)
        file_system = file_system_of(path)
        if os.path.basename(path) in file_system.sizes(os.path.dirname(path)):
            # It is of an earlier run, whose shards are no longer intact.
            file_system.remove(path)
        try:
            ended = pipeline.run()
        except grpc.FutureTimeoutError:
            raise UserError(
                "No Beam job server answers; check --job_endpoint."
            ) from None
        state = ended.wait_until_finish() or ended.state
        found = {}
        if os.path.basename(path) in file_system.sizes(os.path.dirname(path)):
            found = read_build_json(path, file_system=file_system)
        require(
            bool(found),
            f"The Beam pipeline ended as {state} and left no result; this "
            "program must run it to its end, and share the output directory "
            "with it. If its engine was stopped, start the same command "
            "again.",
        )
        return found


def _write_result(path: str, **results: Any) -> None:
    write_json(path, results, file_system=file_system_of(path))


def _pipeline(options: PipelineOptions) -> beam.Pipeline:
    """Returns an empty pipeline; Beam's own runner unless one is named."""
    if options.view_as(StandardOptions).runner:
        return beam.Pipeline(options=options)
    # DirectRunner would choose a runner, and fetch one from the network.
    encoded = JobServiceHandle.encode_pipeline_options(
        options.get_all_options()
    )
    info = ExtendedProvisionInfo(
        beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    )
    return beam.Pipeline(FnApiRunner(provision_info=info), options)


def _checked(options: Sequence[str]) -> PipelineOptions:
    """Returns Beam's options; raises UserError if Beam refuses them."""
    for option in options:
        require(
            option.startswith("--"),
            f"The Beam option {option!r} does not look like --name=value.",
        )
    written = io.StringIO()
    try:
        with contextlib.redirect_stderr(written):
            parsed = PipelineOptions(options)
            parsed.get_all_options()  # options of engines too
            _pipeline(parsed)
    except SystemExit:
        reason = written.getvalue().strip().rpartition(": error: ")[2]
    except (ValueError, ImportError) as error:
        reason = " ".join(str(error).split())
    else:
        return parsed
    raise UserError(f"Beam refuses its options: {reason}")

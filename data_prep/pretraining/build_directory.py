"""The directory that a build writes: ownership, resuming and free space.

A build holds `.work` in its output directory, with a lock and its plan, until
metadata.json is written; so `.work` marks a directory that can be resumed. A
runner that has finished leaves `.work/result.json`.
"""

import contextlib
import errno
import functools
import hashlib
import os
import pathlib
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

from tqdm import tqdm

from albert_tf.config import (
    Log,
    PretrainingDataConfig,
    UserError,
    differences,
    require,
)
from albert_tf.io.files import is_disk_full, is_remote, unfinished
from albert_tf.io.json_files import read_json, write_json
from albert_tf.io.locks import locked
from albert_tf.records.shards import (
    FORMAT_VERSION,
    METADATA_NAME,
    TOKENIZER_DIRECTORY,
    WORK_DIRECTORY,
    ShardInfo,
)
from albert_tf.text.tokenizer import Tokenizer
from data_prep.pretraining.build_plan import BuildPlan

_LOCK = "lock"
_PLAN = "plan.json"
_RESULT = "result.json"
_SHARD = re.compile(r"\w+-\d{5}-of-\d{5}\.tfrecord")
# Files that a build writes beside shards; the first are sentence splitters.
_OTHER_FILES = re.compile(
    r"(punkt|newline|metadata)\.json|report\.html|spiece\.\w+|vocab\.txt|tokenizer\w*\.json"
)

# Reads what a build has written, of any size. The whole directory is removed,
# since what a build left beside a damaged file needs it.
read_build_json = functools.partial(
    read_json,
    limit=None,
    advice="Remove the output directory or choose another.",
)


class BuildResult(NamedTuple):
    """All shards, the counts of all records, and pairs of near-duplicates."""

    shards: list[ShardInfo]
    counts: Counter[str]
    near_pairs: list[dict[str, Any]]  # see `near_duplicates.shown_pair`

    def of_split(self, split: str) -> list[ShardInfo]:
        """Returns the shards of a split."""
        return [s for s in self.shards if s.name.startswith(f"{split}-")]

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Returns the result in result.json."""
        rows = sorted(values["shards"], key=lambda row: row["name"])
        shards = [ShardInfo(**row) for row in rows]
        counts = Counter(values["counts"])
        pairs = values.get("near_pairs", [])
        ranked = sorted(pairs, key=lambda p: (p["similarity"], p["document"]))
        return cls(shards, counts, ranked)


class BuildDirectory:
    """The output directory of a build, made if need be.

    `file_system` is the module `albert_tf.io.files` or `beam_files`, which
    has some of its functions.
    """

    def __init__(
        self, path: str, config: PretrainingDataConfig, file_system: Any
    ) -> None:
        self.path = path
        self.files = file_system
        self.work_path = os.path.join(path, WORK_DIRECTORY)
        self.tokenizer_path = os.path.join(path, TOKENIZER_DIRECTORY)
        self.splitter_path = os.path.join(
            path, f"{config.sentence_splitter}.json"
        )
        # The JSON of a runner's result.
        self.result_path = os.path.join(self.work_path, _RESULT)

    def is_finished(self) -> bool:
        """Returns whether a build is finished here."""
        return METADATA_NAME in self.files.sizes(self.path)

    def finished_metadata(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the metadata of a finished directory.

        Raises:
            UserError: if it was finished with other settings.
        """
        path = os.path.join(self.path, METADATA_NAME)
        metadata = read_build_json(path, file_system=self.files)
        changes = differences(settings, metadata.get("settings", {}))
        if metadata.get("format_version") != FORMAT_VERSION:
            changes.append(f"format_version: {FORMAT_VERSION} here")
        self._refuse_changes("is finished", changes)
        # Left when a build was stopped between its last two steps.
        self.files.remove_tree(self.work_path)
        return metadata

    def finish(self, metadata: Mapping[str, Any]) -> None:
        """Writes metadata.json, which marks the directory as finished."""
        # A second try of a runner's worker may have left some.
        self._remove_unfinished(self.path)
        path = os.path.join(self.path, METADATA_NAME)
        write_json(path, metadata, file_system=self.files)

    def check_free(self) -> None:
        """Raises UserError if a build would replace files of others.

        A build that was begun has a plan; without one nothing is a build's.
        """
        require(
            is_remote(self.path) or not os.path.isfile(self.path),
            f"{self.path} is a file; --output_dir is a directory.",
        )
        work = self.files.sizes(self.work_path)
        if _PLAN in work:
            return
        names = self.files.sizes(self.path)
        splitter = os.path.basename(self.splitter_path)
        foreign = [n for n in names if _is_shard(n) or n == splitter]
        foreign += [
            f".work/{n}" for n in work if n != _LOCK and not unfinished(n)
        ]
        tokenizer = self.files.sizes(self.tokenizer_path)
        foreign += [f"{TOKENIZER_DIRECTORY}/{n}" for n in tokenizer]
        for name in foreign:
            raise UserError(
                f"{self.path} holds {name} but no {METADATA_NAME}; "
                "choose another output directory or empty this one."
            )

    @contextlib.contextmanager
    def held(self, plan: BuildPlan) -> Iterator[None]:
        """Locks the directory for a build, and prepares it.

        Nothing keeps two builds apart in file systems of Beam: of one plan
        both write the same.

        Raises:
            UserError: if it was begun with other settings, another build is
                at work in it or has finished it, or the disk gets full.
        """
        with contextlib.ExitStack() as stack:
            if not is_remote(self.path):
                os.makedirs(self.work_path, exist_ok=True)
                lock = os.path.join(self.work_path, _LOCK)
                hint = "Wait for it or choose another --output_dir."
                stack.enter_context(locked(lock, hint))
            self._begin(plan)
            try:
                yield
            except OSError as error:
                # The tokenizer is written to the temporary directory first.
                elsewhere = error.filename and not os.path.abspath(
                    error.filename
                ).startswith(os.path.abspath(self.path))
                if elsewhere or not is_disk_full(error):
                    raise
                raise UserError(
                    f"{error.filename or self.path}: {error.strerror}; about "
                    f"{_size(self._missing_bytes(plan))} more are needed, "
                    f"{_size(self._free_bytes() or 0)} are free. Make room "
                    "and start the same command again: it resumes where it "
                    "stopped."
                ) from None

    def _begin(self, plan: BuildPlan) -> None:
        """Writes the plan, or compares it with that of a build before."""
        # Another build may have held it while this one read the corpus.
        require(
            not self.is_finished(),
            f"{self.path} has been finished by another build; choose "
            "another output directory or start again.",
        )
        work = self.files.sizes(self.work_path)
        path = os.path.join(self.work_path, _PLAN)
        if _PLAN in work:
            begun = read_build_json(path, file_system=self.files)
            changes = differences(plan.to_json(), begun)
            self._refuse_changes("was begun", changes)
        else:
            write_json(path, plan.to_json(), file_system=self.files)
        for name in filter(unfinished, work):
            self.files.remove(os.path.join(self.work_path, name))
        self._remove_unfinished(self.path)
        self._remove_unfinished(self.tokenizer_path)

    def _refuse_changes(self, state: str, changes: list[str]) -> None:
        require(
            not changes,
            f"{self.path} {state} with other settings ({'; '.join(changes)}); "
            "choose another output directory or remove this one.",
        )

    def _remove_unfinished(self, directory: str) -> None:
        """Removes the temporary files of builds, and no others."""
        for name in self.files.sizes(directory):
            whole = unfinished(name)
            if _SHARD.fullmatch(whole) or _OTHER_FILES.fullmatch(whole):
                self.files.remove(os.path.join(directory, name))

    def save_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Writes the tokenizer, which training on the shards needs."""
        self.files.makedirs(self.tokenizer_path)
        with tempfile.TemporaryDirectory() as saved:
            tokenizer.save(saved)
            for source in pathlib.Path(saved).iterdir():
                path = os.path.join(self.tokenizer_path, source.name)
                with self.files.replacing(path) as target:
                    target.write(source.read_bytes())

    def result(self) -> BuildResult | None:
        """Returns the result of a runner, None unless all shards are intact."""
        if _RESULT not in self.files.sizes(self.work_path):
            return None
        result = BuildResult.from_json(
            read_build_json(self.result_path, file_system=self.files)
        )
        sizes = self.files.sizes(self.path)
        intact = all(
            sizes.get(info.name) == info.num_bytes
            and (is_remote(self.path) or is_intact(self.path, info))
            for info in result.shards
        )
        return result if intact else None

    def check_room(self, plan: BuildPlan, log: Log) -> None:
        """Logs the size of the build; raises UserError if it does not fit.

        The parts that lie between corpus and shards are as large as the
        shards; with the rest of `.work` they are removed at the end.
        """
        num_shards = len(plan.partition.shards())
        num_bytes = sum(plan.record_bytes.values())
        records = f"About {_size(num_bytes)} of records in {num_shards} shards"
        free = self._free_bytes()
        if free is None:
            log(f"{records}.")
            return
        log(
            f"{records}; about {_size(_peak_bytes(plan))} on disk while at "
            f"work, {_size(free)} are free."
        )
        needed = self._missing_bytes(plan)
        if needed > free:
            # A full disk, by its status.
            raise UserError(
                f"{self.path} needs about {_size(needed)} while at work "
                f"and has {_size(free)} free; choose another output directory, "
                "a smaller dupe_factor or record_kind=dynamic."
            ) from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _free_bytes(self) -> int | None:
        """Returns the free space, None where it is unknown."""
        if is_remote(self.path):
            return None
        return shutil.disk_usage(self.path).free

    def _missing_bytes(self, plan: BuildPlan) -> float:
        """Returns an estimate of the bytes that a build has yet to write."""
        sizes = self.files.sizes(self.path)
        shards = sum(sizes[name] for name in filter(_is_shard, sizes))
        work = sum(self.files.sizes(self.work_path).values())
        return max(0, _peak_bytes(plan) - shards - work)


def _is_shard(name: str) -> bool:
    """Returns whether a file is a shard, finished or not."""
    return _SHARD.fullmatch(unfinished(name) or name) is not None


def is_intact(directory: str, info: ShardInfo) -> bool:
    """Returns whether a shard on disk has the checksum of its entry."""
    try:
        with open(os.path.join(directory, info.name), "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return False
    return digest == info.sha256


def _peak_bytes(plan: BuildPlan) -> int:
    return 2 * sum(plan.record_bytes.values()) + plan.other_bytes


def _size(num_bytes: float) -> str:
    """Returns a number of bytes in a unit of three digits; bytes are whole."""
    if num_bytes < 1000:
        return f"{num_bytes:.0f}B"
    return tqdm.format_sizeof(num_bytes, "B")

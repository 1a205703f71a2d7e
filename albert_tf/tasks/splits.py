"""Held-out examples of data without a dev set, and folds of cross-validation.

Main entry: `HeldOut`, a reader of tasks.
"""

import collections
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.config import Log, listed, require, silent
from albert_tf.tasks.base import Task

TRAIN, DEV = "train", "dev"
# Names of the files of a split; the first is the one in messages.
SPLIT_NAMES = {
    TRAIN: ("train",),
    DEV: ("dev", "validation", "valid", "val"),
    "test": ("test",),
}
DEFAULT_FRACTION = 0.1


@dataclasses.dataclass(frozen=True)
class Split:
    """How examples are divided into training and dev ones.

    Attributes:
        dev_fraction: share of dev examples, where they have no files; None:
            DEFAULT_FRACTION.
        seed: of the draw.
        folds: number of parts, each of which is dev once; 0: no folds.
        fold: the part that is dev, from 1.
    """

    dev_fraction: float | None = None
    seed: int = 0
    folds: int = 0
    fold: int = 1

    def describe(self) -> dict[str, Any]:
        """Returns the settings that decide on the division."""
        if self.folds:
            return {"folds": self.folds, "fold": self.fold, "seed": self.seed}
        fraction = self.dev_fraction or DEFAULT_FRACTION
        return {"dev_fraction": fraction, "seed": self.seed}


WITHOUT_FLAGS = Split()


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """A reader that holds out dev examples of the training ones.

    Folds divide the training examples of any data; else examples are held out
    where `reader`, of SplitFiles, has no files of dev ones (and, unless
    `dev_fraction` is given, of training ones). Equal texts (paragraphs of
    questions) are on one side, and each label has a text in training. The draw
    is a hash of the texts, so that it depends on nothing else.

    Attributes:
        reader: of the files.
        split: how they are divided.
        labelled: whether labels are names; where an example has one, each
            label has its share of both sides.
    """

    reader: Any
    split: Split = WITHOUT_FLAGS
    labelled: bool = False

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the task's splits."""
        return self.reader.splits

    @property
    def extensions(self) -> tuple[str, ...]:
        """The ends of names of the task's files."""
        return self.reader.extensions

    def division(self, data_dir: str) -> dict[str, Any] | None:
        """Returns how the training examples are divided; None: not at all."""
        if self.split.folds:
            return self.split.describe()
        if self.reader.has(data_dir, DEV):
            require(
                self.split.dev_fraction is None,
                f"--dev_fraction={self.split.dev_fraction}: {data_dir} has dev "
                "examples of its own; remove the flag, or the file.",
            )
            return None
        if self.split.dev_fraction is None and self.reader.has(data_dir, TRAIN):
            # Programs that need no dev examples read all of them.
            return None
        return self.split.describe()

    @property
    def is_by_flags(self) -> bool:
        """Whether flags say how examples are divided."""
        return self.split != WITHOUT_FLAGS

    def leaves_open(self, data_dir: str) -> bool:
        """Returns whether neither flags nor files tell the dev examples."""
        return not (self.is_by_flags or self.reader.has(data_dir, DEV))

    def read(self, data_dir: str, split: str, log: Log) -> Sequence[Any]:
        """Returns the examples of a split; see `Reader`.

        Logs the division with the dev examples. Raises UserError where too few
        examples remain for one side.
        """
        if split not in (TRAIN, DEV) or not self.division(data_dir):
            require(
                split != DEV
                or self.reader.has(data_dir, DEV)
                or not self.reader.has(data_dir, TRAIN),
                f"{data_dir} has training examples and no dev ones; "
                f"--dev_fraction={DEFAULT_FRACTION} holds out a tenth of them.",
            )
            return self.reader.read(data_dir, split, log)
        # The messages on the file are logged once, with train.
        inner_log = log if split == TRAIN else silent
        examples = self.reader.read(data_dir, TRAIN, inner_log)
        is_dev = divided(examples, self.split, self.labelled)
        found = {
            name: [e for e, d in zip(examples, is_dev, strict=True) if d == dev]
            for name, dev in ((TRAIN, False), (DEV, True))
        }
        advice = ""
        labels = set(map(_label, examples))
        if self.labelled and 1 < len(labels) == len(examples):
            advice = " Each has a label of its own; is that the right column?"
        require(
            all(found.values()),
            f"{data_dir}: {len(examples)} examples are too few to hold some "
            f"out ({as_flags(self.split.describe())}); texts that are equal "
            f"stay together, and a label's only text is in training.{advice}",
        )
        if split == DEV:
            self._report(data_dir, found[DEV], examples, log)
        return found[split]

    def _report(
        self,
        data_dir: str,
        dev: Sequence[Any],
        examples: Sequence[Any],
        log: Log,
    ) -> None:
        labels = dict.fromkeys(sorted(map(_label, examples)), 0)
        labels |= collections.Counter(map(_label, dev))
        fold = f"fold {self.split.fold}, " if self.split.folds else ""
        no_file = "; no dev file is read" if self.split.folds else ""
        line = (
            f"{data_dir}: {len(dev)} of {len(examples)} examples are held out "
            f"as dev ({fold}{as_flags(self.split.describe())}{no_file}; equal "
            "texts are on one side"
        )
        if self.labelled and len(labels) > 1:
            counts = [f"{name} {n}" for name, n in labels.items()]
            line += f"; by label: {listed(counts, 12)}"
        log(f"{line}).")


def divided_as(task: Task, division: Mapping[str, Any]) -> Task:
    """Returns a task whose dev examples are held out as a run recorded it."""
    reader = task.reader
    if isinstance(reader, HeldOut):
        reader = reader.reader
    held_out = HeldOut(reader, Split(**division), task.kind.labelled)
    return dataclasses.replace(task, reader=held_out, evaluated={"": DEV})


def folded(task: Task, folds: int, fold: int, seed: int) -> Task:
    """Returns a task whose dev examples are a fold of the training ones."""
    return divided_as(task, {"folds": folds, "fold": fold, "seed": seed})


def divided(
    examples: Sequence[Any], split: Split, labelled: bool
) -> list[bool]:
    """Returns whether each example is a dev one."""
    names = [_group(example) for example in examples]
    sizes = collections.Counter(names)
    strata: dict[str, str] = {}
    labels: dict[str, set[str]] = {name: set() for name in sizes}
    for name, example in zip(names, examples, strict=True):
        label = _label(example) if labelled else ""
        strata[name] = min(strata.get(name, label), label)
        labels[name].update(_labels(example) if labelled else ())
    members: dict[str, list[str]] = {}
    for name in sorted(sizes, key=lambda name: _draw(name, split.seed)):
        members.setdefault(strata[name], []).append(name)
    choose = _folds if split.folds else _of_fraction
    parts = [
        part - _last_of_labels(labels, part)
        for part in choose(members, sizes, split)
    ]
    # Too few examples for one of the folds are too few for the first.
    chosen = parts[split.fold - 1] if all(parts) else set()
    return [name in chosen for name in names]


def _last_of_labels(
    labels: Mapping[str, set[str]], chosen: set[str]
) -> set[str]:
    """Returns dev groups without which training would lack a label.

    One that it lacks could not be learned.
    """
    learned = set().union(*(labels[name] for name in labels.keys() - chosen))
    found = set()
    for name in sorted(chosen):
        if not labels[name] <= learned:
            found.add(name)
            learned |= labels[name]
    return found


def _of_fraction(
    members: Mapping[str, Sequence[str]],
    sizes: Mapping[str, int],
    split: Split,
) -> list[set[str]]:
    """Returns a list of the groups that are dev, in shares of each stratum.

    What rounding leaves of one is added to the next. A group that is larger
    than what is left of the share is passed over, unless none fits. Not all of
    a stratum: training needs some.
    """
    fraction = split.dev_fraction or DEFAULT_FRACTION
    chosen: set[str] = set()
    seen, taken = 0, 0.0
    for _, groups in sorted(members.items()):
        seen += sum(sizes[name] for name in groups)
        share, before = fraction * seen, taken
        for name in groups[:-1]:
            if taken + sizes[name] - 0.5 <= share:
                chosen.add(name)
                taken += sizes[name]
        if taken == before and groups[1:]:
            smallest = min(groups[:-1], key=lambda name: sizes[name])
            if taken + sizes[smallest] / 2 <= share:
                chosen.add(smallest)
                taken += sizes[smallest]
        # More than rounding leaves would be at the cost of another class.
        taken = min(max(taken, share - 1), share + 1)
    return [chosen]


def _folds(
    members: Mapping[str, Sequence[str]],
    sizes: Mapping[str, int],
    split: Split,
) -> list[set[str]]:
    """Returns the groups of every fold.

    Those of each stratum, the largest first, go to the fold that has the fewest
    examples of it so far.
    """
    folds: list[set[str]] = [set() for _ in range(split.folds)]
    totals = [0] * split.folds
    for _, groups in sorted(members.items()):
        counts = [0] * split.folds
        for name in sorted(groups, key=lambda name: -sizes[name]):
            # The first of equal ones.
            fold = min(range(split.folds), key=lambda n: (counts[n], totals[n]))
            folds[fold].add(name)
            counts[fold] += sizes[name]
            totals[fold] += sizes[name]
    return folds


def _draw(name: str, seed: int) -> bytes:
    content = f"{seed}\0{name}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=16).digest()


def _group(example: Any) -> str:
    """Returns the group of an example; a group is all dev or all training.

    The two texts of a pair are in any order.
    """
    if context := getattr(example, "context", None):
        return context
    if texts := getattr(example, "texts", None):
        return "\0".join(sorted(texts))
    # A question may have an empty context.
    return "\0".join(getattr(example, "words", ()))


def _label(example: Any) -> str:
    """Returns the only label of an example, "" where it may have several."""
    label = getattr(example, "label", None)
    return label if isinstance(label, str) else ""


def _labels(example: Any) -> Sequence[str]:
    """Returns the labels of an example, or the tags of its words."""
    several = getattr(example, "labels", None) or getattr(example, "tags", ())
    return several or [_label(example)]


def as_flags(settings: Mapping[str, Any]) -> str:
    """Returns the settings of a division as flags; a fold has none."""
    flags = {"seed": "split_seed"}
    return ", ".join(
        f"--{flags.get(name, name)}={value}"
        for name, value in settings.items()
        if name != "fold"
    )

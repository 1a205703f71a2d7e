"""The training of embeddings: contrast on pairs of texts, without labels."""

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from albert_tf.config import (
    EmbeddingConfig,
    Log,
    ModelConfig,
    RuntimeConfig,
    lookup,
    override,
    require,
    to_dict,
)
from albert_tf.inputs.length_buckets import bucket_widths
from albert_tf.inputs.source_schedule import SourceSchedule
from albert_tf.inputs.text_pairs import (
    PAIR_SOURCES,
    Document,
    PairBatches,
    TextPair,
    distinct_pairs,
    pair_features,
    separate_pairs,
)
from albert_tf.interchange.model_directory import (
    load_fitting_tokenizer,
    save_model_directory,
)
from albert_tf.jobs.epochs import with_steps
from albert_tf.modeling.models import AlbertForSentenceEmbedding, AlbertModel
from albert_tf.modeling.weights.pretrained import StoredModel
from albert_tf.rundir.run_directory import NUM_EXAMPLES, extended
from albert_tf.search.ranking import recall, target_ranks
from albert_tf.text.tokenizer_base import Tokenizer
from albert_tf.training.job import Job, strategy_for
from albert_tf.training.loop import train
from albert_tf.training.training_loss import head_loss

# The rate for models that have none: without it a text and itself have one
# vector.
_DROPOUT = 0.1
# Places among which the second text of a held-out pair is to be.
_RECALL_CUTOFFS = (1, 10)
# The mean of 1 / place: it moves with every place, unlike recall.
_RECIPROCAL_RANK = "mean_reciprocal_rank"


def run_embedding_training(
    config: EmbeddingConfig,
    documents: Sequence[Document],
    *,
    run_dir: str,
    initial: StoredModel,
    model_changes: Mapping[str, Any] | None = None,
    runtime: RuntimeConfig | None = None,
    log: Log = print,
) -> dict[str, float]:
    """Trains embeddings and returns the best evaluation on held-out pairs.

    The loss is InfoNCE on the embeddings (`weighted_info_nce`), whose wrong
    answers are the other pairs of the batch; with several replicas those of
    the replica's share. Evaluated is how often the second text of a held-out
    pair is the nearest to the first, and among the ten nearest, of the second
    texts of all held-out pairs. Writes the files of `run_finetuning` but the
    report, and resumes as it does; model/ is an AlbertForSentenceEmbedding.

    Args:
        config: all settings but the architecture, which is that of `initial`.
        documents: the passages of each; or the two texts of each row.
        run_dir: created if missing.
        initial: the pretrained weights, and the tokenizer beside them.
        model_changes: settings of the architecture to change; the dropout of
            an encoder without any is 0.1 unless it is given.
        runtime: settings that do not decide the result.
        log: takes a line.

    Raises:
        UserError: for settings, texts and weights that do not fit together.
        RunStopped: when it ends early or after a signal (see loop.py).
    """
    runtime = runtime or RuntimeConfig()
    strategy = strategy_for(config, runtime)
    tokenizer = load_fitting_tokenizer(initial.tokenizer_path, initial.config)
    model_config = _with_dropout(initial.config, model_changes or {}, log)
    config = _with_length(config, initial)
    train_pairs, held_out = _split_pairs(config, documents, log)
    log(f"{len(train_pairs)} pairs to learn, {len(held_out)} held out.")
    config = extended(
        with_steps(
            config, config.embeddings, len(train_pairs), _RECIPROCAL_RANK
        ),
        runtime,
    )
    return train(
        _EmbeddingTraining(
            config=config,
            strategy=strategy,
            run_dir=run_dir,
            runtime=runtime,
            model_config=model_config,
            tokenizer=tokenizer,
            initial=initial,
            training_loss=head_loss(AlbertForSentenceEmbedding.head_names[0]),
            sources=SourceSchedule(
                [_batches(config, train_pairs, tokenizer, training=True)], [0]
            ),
            best_metric=config.training.best_metric,
            metric_names=("loss", *_ranking_metrics([])),
            log=log,
            train_pairs=train_pairs,
            held_out=held_out,
            evaluated=_batches(config, held_out, tokenizer, training=False),
        )
    )


def _with_dropout(
    model: ModelConfig, changes: Mapping[str, Any], log: Log
) -> ModelConfig:
    """Returns the architecture with its changes, and with some dropout."""
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    given = any(name in changes for name in names)
    if not (given or any(getattr(model, name) for name in names)):
        log(f"Dropout {_DROPOUT:g}: that of the model is 0.")
        changes = {**changes, **dict.fromkeys(names, _DROPOUT)}
    return override(model, changes)


def _with_length(
    config: EmbeddingConfig, initial: StoredModel
) -> EmbeddingConfig:
    positions = initial.config.max_position_embeddings
    length = config.embeddings.max_seq_length
    length = length or min(initial.description.max_seq_length, positions)
    require(
        length <= positions,
        f"max_seq_length={length} exceeds the model's "
        f"max_position_embeddings={positions}; lower --max_seq_length.",
    )
    training = config.training
    require(
        training.micro_batch_size == 0,
        f"micro_batch_size={training.micro_batch_size}: every text of a batch "
        "is compared with all others, so it has no micro-batches; leave it 0, "
        "and lower --train_batch_size where memory is short, or set --remat.",
    )
    return override(config, {"max_seq_length": length})


def _split_pairs(
    config: EmbeddingConfig, documents: Sequence[Document], log: Log
) -> tuple[list[TextPair], list[TextPair]]:
    """Returns the pairs to learn and those to evaluate, of other documents.

    They have no text in common. Logs how many are left out. Raises UserError
    where there are none of either.
    """
    settings, left_out = config.embeddings, 0

    def distinct(
        pairs: Sequence[TextPair], others: Sequence[TextPair] = ()
    ) -> list[TextPair]:
        nonlocal left_out
        found = distinct_pairs(pairs, others)
        left_out += len(pairs) - len(found)
        return found

    source = lookup(PAIR_SOURCES, settings.pairs, "pairs")
    if settings.pairs == "columns":
        # Rows with the same answer would fall on both sides.
        documents = distinct([*chain.from_iterable(map(source, documents))])
    order = np.random.default_rng(config.training.seed).permutation(
        len(documents)
    )
    count = math.ceil(settings.held_out_fraction * len(documents))
    evaluated = (documents[n] for n in sorted(order[:count].tolist()))
    learned = (documents[n] for n in sorted(order[count:].tolist()))
    held_out = distinct([*chain.from_iterable(map(separate_pairs, evaluated))])
    train_pairs = distinct(
        [*chain.from_iterable(map(source, learned))], held_out
    )
    if left_out:
        log(
            f"{left_out} pairs are left out: another one has their first or "
            "second text, which would count as a wrong answer."
        )
    expected = (
        "rows (see --held_out_fraction)"
        if settings.pairs == "columns"
        else "documents of two passages or more (see --document_separator, "
        "--passage_tokens and --held_out_fraction)"
    )
    for name, found in (("learned", train_pairs), ("held-out", held_out)):
        require(
            bool(found),
            f"There are no {name} pairs in {len(documents)} "
            f"{expected.split()[0]}, of which {count} are held out; expected "
            f"more {expected}.",
        )
    limit = config.training.max_eval_steps * config.training.eval_batch_size
    return train_pairs, held_out[: limit or None]


def _batches(
    config: EmbeddingConfig,
    pairs: Sequence[TextPair],
    tokenizer: Tokenizer,
    *,
    training: bool,
) -> PairBatches:
    longest, settings = config.embeddings.max_seq_length, config.training
    # Steps of one loop have batches of one width.
    is_single = settings.steps_per_loop == 1
    return PairBatches(
        pair_features(pairs, tokenizer, longest),
        batch_size=settings.train_batch_size
        if training
        else settings.eval_batch_size,
        seed=settings.seed,
        widths=bucket_widths(longest) if is_single else (longest,),
        training=training,
        name_of="pair {}".format,
    )


@dataclasses.dataclass(kw_only=True)
class _EmbeddingTraining(Job):
    """Training on pairs; `evaluated` are the batches of those held out."""

    name = "embeddings"
    config: EmbeddingConfig
    train_pairs: Sequence[TextPair]
    held_out: Sequence[TextPair]
    evaluated: PairBatches

    def build_model(self, **options: Any) -> AlbertModel:
        """Returns a model with the head of embeddings."""
        return AlbertForSentenceEmbedding(
            self.model_config,
            head_options={"pooling": self.config.embeddings.pooling},
            **options,
        )

    def description(self) -> dict:
        """Returns the settings and digests that determine the run's result."""
        return {
            "job": self.name,
            "config": to_dict(self.config),
            "model": to_dict(self.model_config),
            NUM_EXAMPLES: {
                "train": len(self.train_pairs),
                "held_out": len(self.held_out),
            },
            "learned_pairs": _digest(self.train_pairs),
            "held_out_pairs": _digest(self.held_out),
            "tokenizer": self.tokenizer.fingerprint,
            "init_from": self.initial.fingerprint,
        }

    def evaluate(self, step: int) -> dict[str, float]:
        """Returns the loss and the ranking metrics on the held-out pairs."""
        found: dict[int, np.ndarray] = {}

        def collect(step: int, outputs: dict[str, np.ndarray]) -> None:
            rows = self.evaluated.record_numbers(step)
            found.update(zip(rows, outputs["embedding"], strict=False))

        means = self.trainer.evaluate(
            self.evaluated, collect, with_outputs=True
        )
        vectors = np.stack([found[row] for row in range(len(self.held_out))])
        ranks = target_ranks(vectors[:, 0], vectors[:, 1])
        return {"loss": means["loss"], **_ranking_metrics(ranks)}

    def export(self, directory: str, evaluation: Mapping[str, float]) -> None:
        """Writes the model and its tokenizer."""
        save_model_directory(
            directory,
            self.trainer.model,
            self.tokenizer,
            max_seq_length=self.config.embeddings.max_seq_length,
        )


def _ranking_metrics(ranks: Sequence[int] | np.ndarray) -> dict[str, float]:
    """Returns the metrics of the places of right texts, from 1."""
    inverse = 1 / np.asarray(ranks, float)
    mean = float(inverse.mean()) if inverse.size else 0.0
    return {_RECIPROCAL_RANK: mean, **recall(ranks, _RECALL_CUTOFFS)}


def _digest(pairs: Sequence[TextPair]) -> str:
    digest = hashlib.sha256()
    for pair in pairs:
        for text in pair:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()

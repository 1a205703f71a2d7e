"""MEASURES: what is measured of a pretrained model beside its evaluation.

python -m experiments.measurements MEASURE MODEL_DIR SHARDS OUTPUT.json
"""

import dataclasses
import sys
from typing import Any

import tensorflow as tf

from albert_tf.analysis.layer_distances import layer_distances
from albert_tf.config import MaskingConfig
from albert_tf.inputs.input_pipeline import (
    PretrainingBatches,
    sentence_objective,
)
from albert_tf.interchange.model_directory import (
    LoadedModel,
    load_model_directory,
)
from albert_tf.io.json_files import write_json
from albert_tf.jobs.evaluate import evaluate_pretraining
from albert_tf.modeling.accounting import encoder_flops
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.weights.conversion import convert_weights
from albert_tf.records.shards import ShardSet, open_shards
from albert_tf.training.evaluator import Evaluator
from albert_tf.training.training_loss import pretraining_loss

_BATCH_SIZE = 32
_NUM_BATCHES = 20
# A seed of the masks, the same for all models.
_SEED = 12345
# Applications of a block that was trained with fewer or more.
DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24)


def main(measure: str, model_dir: str, data: str, output: str) -> None:
    """Writes what `measure`, a name in MEASURES, finds."""
    loaded = load_model_directory(model_dir)
    write_json(output, MEASURES[measure](loaded, open_shards(data, "eval")))


def _layers(loaded: LoadedModel, shards: ShardSet) -> dict[str, Any]:
    """Returns the distances of each layer's input and output (Figure 1)."""
    batches = _batches(shards)
    steps = range(min(_NUM_BATCHES, batches.num_steps))
    found = layer_distances(loaded.model, map(batches.batch, steps))
    return {
        "l2_distance": found.l2_distance.tolist(),
        "cosine_similarity": found.cosine_similarity.tolist(),
        "tokens": found.num_tokens,
    }


def _any_depth(loaded: LoadedModel, shards: ShardSet) -> dict[str, Any]:
    """Returns evaluations with more and fewer applications of the block."""
    config = dataclasses.replace(
        loaded.model.config, num_hidden_layers=max(DEPTHS)
    )
    model = AlbertForPretraining(config)
    model.build()
    convert_weights(loaded.model, model)
    evaluator = Evaluator(
        model,
        pretraining_loss(sentence_objective(shards)),
        strategy=tf.distribute.get_strategy(),
    )
    batches = _batches(shards)
    rows = []
    for depth in DEPTHS:
        metrics = evaluate_pretraining(
            evaluator, batches, _NUM_BATCHES, num_applications=depth
        )
        flops = encoder_flops(
            config,
            batch_size=1,
            seq_length=batches.max_seq_length,
            read_positions_only=False,
            num_applications=depth,
        )
        rows.append({"applications": depth, "flops": flops, **metrics})
    return {"depths": rows}


def _batches(shards: ShardSet) -> PretrainingBatches:
    return PretrainingBatches(
        shards,
        masking_config=MaskingConfig(),
        batch_size=_BATCH_SIZE,
        seed=_SEED,
        training=False,
    )


MEASURES = {"layers": _layers, "any_depth": _any_depth}


if __name__ == "__main__":
    main(*sys.argv[1:])

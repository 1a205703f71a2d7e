"""Models that leave for transformers and come back.

Each head is saved here, opened and saved there, and opened here again. And
models of one head are trained there with another one, saved in each way that
the library has, and opened here. The table has the largest differences of
outputs; classes, labels and ids of texts must be equal.
"""

import pathlib
import shutil

import numpy as np
import pytest
import torch
import transformers

from albert_tf.config import ModelConfig, override
from albert_tf.interchange.convert import convert
from albert_tf.interchange.formats import FORMATS
from albert_tf.interchange.model_directory import (
    find_initial_weights,
    load_model_directory,
    save_model_directory,
)
from albert_tf.modeling.models import models
from albert_tf.modeling.weights.pretrained import initialize
from albert_tf.prediction.predictor import Predictor
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice
from albert_tf.tasks.kinds.question_answering import AnswerableSpans, Spans
from albert_tf.tasks.kinds.regression import Regression
from albert_tf.tasks.kinds.token_classification import TokenClassification
from tests.numpy_albert import randomise

# Users of both may count on this, relative to the largest output.
BOUND = 1e-5
CONFIG = override(
    ModelConfig(),
    {
        "vocab_size": 200,
        "embedding_size": 8,
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 32,
        "classifier_dropout_prob": 0.0,
    },
)
LABELS = {
    "AlbertForClassification": ["bad", "good", "neither"],
    "AlbertForTokenClassification": ["O", "B-PER", "I-PER"],
}
# Words with several pieces, with numbers, and without a letter.
WORDS = ["of", "Bread", ",", "1,000", "woodbread"]
# Their class for each of ours, the class that comes back, and our names of the
# outputs of theirs.
COUNTERPARTS = {
    "AlbertModel": ("AlbertModel", {"last_hidden_state": "sequence_output"}),
    "AlbertForPretraining": (
        "AlbertForPreTraining",
        {
            "prediction_logits": "masked_lm_logits",
            "sop_logits": "sentence_order_logits",
        },
    ),
    "AlbertForMaskedLM": (
        "AlbertForMaskedLM",
        {"logits": "masked_lm_logits"},
    ),
    "AlbertForClassification": (
        "AlbertForSequenceClassification",
        {"logits": "logits"},
    ),
    "AlbertForRegression": (
        "AlbertForSequenceClassification",
        {"logits": "predictions"},
    ),
    "AlbertForMultipleChoice": (
        "AlbertForMultipleChoice",
        {"logits": "logits"},
    ),
    "AlbertForTokenClassification": (
        "AlbertForTokenClassification",
        {"logits": "logits"},
    ),
    "AlbertForQuestionAnswering": (
        "AlbertForQuestionAnswering",
        {"start_logits": "start_logits", "end_logits": "end_logits"},
    ),
}
# What transformers has as an encoder alone, and what of it comes back.
WITHOUT = {
    "AlbertForSentenceEmbedding": "AlbertForSentenceEmbedding",
    "AlbertForAnswerableQuestions": "AlbertModel",
}
# A kind of task and an example of it.
EXAMPLES = (
    (Classification(), ("the house", "of wood")),
    (Regression(), "the house"),
    (MultipleChoice(), ("the house", "of wood", "of bread")),
    (TokenClassification(), "the house of wood"),
    (Spans(), ("of what?", "the house of wood")),
    (AnswerableSpans(), ("of what?", "the house of wood")),
)
SENTENCE = "the house of bread and the house of wood"


@pytest.fixture(autouse=True)
def silent():
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)


@pytest.fixture
def saved(tmp_path, tiny_tokenizer):
    """saved(name, **changes): ours, and the directory that it was saved to."""

    def save(name, **changes):
        kind = models()[name]
        config = override(CONFIG, changes)
        model = randomise(kind(config, labels=LABELS.get(name)))
        directory = str(tmp_path / name)
        save_model_directory(
            directory, model, tiny_tokenizer, max_seq_length=24
        )
        return model, directory

    return save


def arrays(model):
    """Inputs of a model: every position is one that masks are filled at."""
    rng = np.random.default_rng(3)
    shape = (2, 9)
    if "multiple_choice" in model.head_names:
        shape = (2, 3, 9)
    features = {
        "input_ids": rng.integers(5, CONFIG.vocab_size, shape),
        "input_mask": np.ones(shape, "int64"),
        "segment_ids": rng.integers(0, 2, shape),
    }
    features["input_mask"][0, ..., 6:] = 0
    others = {
        "masked_lm_positions": np.tile(np.arange(9), (2, 1)),
        "p_mask": np.zeros((2, 9), "int64"),
    }
    return features | {
        name: value
        for name, value in others.items()
        if name in model.features_of_heads()
    }


def their_inputs(features):
    return {
        "input_ids": torch.tensor(features["input_ids"]),
        "attention_mask": torch.tensor(features["input_mask"]),
        "token_type_ids": torch.tensor(features["segment_ids"]),
    }


def difference(ours, theirs):
    ours, theirs = (np.asarray(x, "float64") for x in (ours, theirs))
    theirs = theirs.reshape(ours.shape)
    return np.abs(ours - theirs).max() / np.abs(theirs).max()


def resave(directory, their_class, tmp_path):
    """Opens a directory there and saves it, with its tokenizer."""
    target = str(tmp_path / "theirs")
    kind = getattr(transformers, their_class)
    kind.from_pretrained(directory).save_pretrained(target)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    tokenizer.save_pretrained(target)
    return target


def predict(loaded):
    """Returns what the model predicts for a text or two."""
    predictor = Predictor(loaded)
    for kind, example in EXAMPLES:
        if kind.head in loaded.model.head_names:
            return list(predictor.predict(kind, [example]))
    if "masked_lm" in loaded.model.head_names:
        return list(predictor.fill_mask(["the [MASK] of bread"]))
    return list(predictor.embed([SENTENCE]))


def check_programs(directory, tmp_path, other_libraries=True):
    """Opens, predicts and converts as the programs do; returns the model."""
    loaded = load_model_directory(directory)
    assert predict(loaded)
    forms = {"model_directory": "", "huggingface": ""}
    if other_libraries:
        forms |= {"google_tf1": "none", "keras_hub": "none"}
    for form, head in forms.items():
        if not all(
            FORMATS[form].supports(head, loaded.model.config)
            for head in loaded.model.head_classes().values()
        ):
            head = "none"
        lines = []
        place = str(tmp_path / f"converted-{form}")
        convert(
            directory,
            place,
            form,
            head=head,
            # A pooler.
            allow_missing=FORMATS[form].always_pooler,
            log=lines.append,
        )
        name = "AlbertModel" if head else type(loaded.model).__name__
        assert lines[-1] == f"Wrote {place}: {form}, {name}."
        shutil.rmtree(place)
    weights = find_initial_weights(directory)
    initialize(models()["AlbertForRegression"](weights.config), weights)
    return loaded


@pytest.mark.parametrize("name", [*COUNTERPARTS, *WITHOUT])
@pytest.mark.parametrize("sharing", ["all", "attention"])
def test_there_and_back(saved, tmp_path, record_difference, name, sharing):
    model, directory = saved(name, sharing=sharing)
    theirs, _ = COUNTERPARTS.get(name, ("AlbertModel", {}))
    target = resave(directory, theirs, tmp_path)
    assert sorted(path.name for path in pathlib.Path(target).iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    loaded = check_programs(target, tmp_path, sharing == "all")
    back = WITHOUT.get(name, name)
    assert type(loaded.model).__name__ == back
    assert loaded.model.config == model.config
    assert loaded.labels == model.labels
    assert loaded.max_seq_length == 24
    original = load_model_directory(directory)
    ids = original.tokenizer.encode(SENTENCE)
    assert loaded.tokenizer.encode(SENTENCE) == ids
    again = models()[back].from_pretrained(target)
    features = arrays(model)
    expected = model(features)
    for opened in (loaded.model, again):
        found = opened({name: features[name] for name in arrays(opened)})
        for output, value in found.items():
            if output != "pooled_output" or "pooled_output" in expected:
                record_difference(
                    f"{name} -> transformers {theirs} -> {back}",
                    f"outputs, sharing={sharing}",
                    difference(value, expected[output]),
                    BOUND,
                )


# --- Trained there --------------------------------------------------------

# Our class that comes back, theirs, the arguments of from_pretrained, and the
# labels of a batch of two rows of nine tokens.
THREE = {
    "id2label": {0: "x", 1: "y", 2: "z"},
    "label2id": {"x": 0, "y": 1, "z": 2},
}
TRAINED = {
    "classes": (
        "AlbertForClassification",
        {**THREE, "problem_type": None},
        {"labels": [0, 2]},
    ),
    "two classes": (
        "AlbertForClassification",
        {"num_labels": 2, "problem_type": None},
        {"labels": [0, 1]},
    ),
    "number": (
        "AlbertForRegression",
        {"num_labels": 1, "problem_type": None},
        {"labels": [0.5, -1.0]},
    ),
    "token classes": (
        "AlbertForTokenClassification",
        THREE,
        {"labels": [[0, 1, 2] * 3] * 2},
    ),
    "choices": ("AlbertForMultipleChoice", {}, {"labels": [0, 2]}),
    "spans": (
        "AlbertForQuestionAnswering",
        {"num_labels": 2},
        {"start_positions": [1, 2], "end_positions": [3, 4]},
    ),
    "masks": ("AlbertForMaskedLM", {}, {"labels": [[7, -100, 8] * 3] * 2}),
    "pretraining": (
        "AlbertForPretraining",
        {"num_labels": 2},
        {"labels": [[7, -100, 8] * 3] * 2, "sentence_order_label": [0, 1]},
    ),
    "encoder": ("AlbertModel", {}, {}),
}
SOURCES = [
    "AlbertForPretraining",
    "AlbertForClassification",
    "AlbertForRegression",
    "AlbertForAnswerableQuestions",
]
WAYS = {
    "float32": {},
    "shards": {"max_shard_size": "4KB"},
    "float16": {"dtype": torch.float16},
    "bfloat16": {"dtype": torch.bfloat16},
    "torch's file": {"_use_new_zipfile_serialization": True},
    "torch's file of 2019": {"_use_new_zipfile_serialization": False},
}


def train(model, inputs, labels):
    """Two steps; an encoder alone is trained by a loss of one's own."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(2):
        outputs = model(**inputs, **labels)
        loss = outputs.loss if labels else outputs[0].square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("job", TRAINED)
def test_trained_there(saved, tmp_path, record_difference, source, job):
    # Each job is saved in each way, of another source.
    number = SOURCES.index(source) + list(TRAINED).index(job)
    way = list(WAYS)[number % len(WAYS)]
    ours, arguments, labels = TRAINED[job]
    theirs, names = COUNTERPARTS[ours]
    # Copies of shared weights are trained apart in float16.
    sharing = "ffn" if way == "float16" else "all"
    _, directory = saved(source, sharing=sharing)
    model = getattr(transformers, theirs).from_pretrained(
        directory, ignore_mismatched_sizes=True, **arguments
    )
    features = arrays(models()[ours](CONFIG, labels=LABELS.get(ours)))
    inputs = their_inputs(features)
    model = train(
        model, inputs, {n: torch.tensor(value) for n, value in labels.items()}
    )
    options = dict(WAYS[way])
    model = model.to(options.pop("dtype", torch.float32))
    target = str(tmp_path / "theirs")
    if "torch" in way:
        model.config.architectures = [theirs]
        model.config.save_pretrained(target)
        state = torch.nn.DataParallel(model).state_dict()
        torch.save(state, f"{target}/pytorch_model.bin", **options)
    else:
        model.save_pretrained(target, **options)
    transformers.AutoTokenizer.from_pretrained(directory).save_pretrained(
        target
    )
    # A repository's other files, and what Trainer leaves in a checkpoint.
    for name in ("README.md", "training_args.bin", "trainer_state.json"):
        pathlib.Path(target, name).write_text("{}")
    index = pathlib.Path(target, "model.safetensors.index.json")
    assert index.exists() == (way == "shards")
    loaded = check_programs(target, tmp_path, other_libraries=False)
    assert type(loaded.model).__name__ == ours
    wanted = None
    if models()[ours].takes_labels():
        wanted = list(model.config.id2label.values())
    assert loaded.labels == wanted
    with torch.no_grad():
        expected = model.float()(**inputs)
    for opened in (loaded.model, models()[ours].from_pretrained(target)):
        found = opened(features)
        for their_name, our_name in names.items():
            record_difference(
                f"{source} -> trained as transformers {theirs} -> {ours}",
                f"outputs, saved in {way}",
                difference(found[our_name], expected[their_name]),
                BOUND,
            )


def test_pairs_by_the_tokenizer_of_its_own(
    saved, tmp_path, tiny_directory, record_difference
):
    """Without our file it gives both texts of a pair the first segment."""
    _, directory = saved("AlbertForClassification")
    target = tmp_path / "theirs"
    theirs = transformers.AlbertForSequenceClassification.from_pretrained(
        directory
    ).eval()
    theirs.save_pretrained(target)
    shutil.copy(tiny_directory / "spiece.model", target)
    tokenizer = transformers.AutoTokenizer.from_pretrained(target)
    pathlib.Path(target, "spiece.model").unlink()
    tokenizer.save_pretrained(target)
    with torch.no_grad():
        logits = theirs(
            **tokenizer("the house", "of wood", return_tensors="pt")
        ).logits
    expected = torch.softmax(logits[0], dim=-1)
    (found,) = Predictor(str(target)).classify([("the house", "of wood")])
    record_difference(
        "transformers' own tokenizer",
        "probabilities of a pair",
        difference(list(found.probabilities.values()), expected),
        BOUND,
    )


def test_tokens_that_were_added_in_our_directory(saved, record_difference):
    """Our spiece.model, which has none of them, stays there."""
    _, directory = saved("AlbertForClassification")
    model = transformers.AlbertForSequenceClassification.from_pretrained(
        directory
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    tokenizer.add_tokens(["covid"])
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=8)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    assert pathlib.Path(directory, "spiece.model").exists()
    with torch.no_grad():
        logits = model(**tokenizer("the covid", return_tensors="pt")).logits
    expected = torch.softmax(logits[0], dim=-1)
    (found,) = Predictor(directory).classify(["the covid"])
    record_difference(
        "transformers in our directory",
        "probabilities of a text with an added token",
        difference(list(found.probabilities.values()), expected),
        BOUND,
    )


def test_tags_of_words(saved):
    """The lines of docs/interchange.md give the tags of our prediction."""
    _, directory = saved("AlbertForTokenClassification")
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(
        directory
    )
    inputs = tokenizer(WORDS, is_split_into_words=True, return_tensors="pt")
    logits = theirs(**inputs).logits[0]
    numbers = inputs.word_ids()
    first = {n: i for i, n in reversed([*enumerate(numbers)]) if n is not None}
    rows = logits[[first[n] for n in sorted(first)]]
    tags = [theirs.config.id2label[i] for i in rows.argmax(-1).tolist()]
    (ours,) = Predictor(directory).predict(
        TokenClassification(), [" ".join(WORDS)]
    )
    assert ours.fields["words"] == WORDS
    assert ours.fields["prediction"] == tags
    # Tags of random models are alike.
    np.testing.assert_allclose(
        ours.fields["probabilities"],
        rows.softmax(-1).amax(-1).detach(),
        rtol=BOUND,
    )

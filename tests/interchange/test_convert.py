"""Models in the forms of other libraries: there and back, and refusals."""

import functools
import json
import os
import pathlib
import pickle
import shutil

import keras
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from albert_tf.config import (
    FeatureConfig,
    ModelConfig,
    UserError,
    override,
)
from albert_tf.interchange.convert import TARGETS, convert, models_by_head
from albert_tf.interchange.google_tf1 import write_checkpoint
from albert_tf.interchange.model_directory import (
    load_model_directory,
    save_model_directory,
)
from albert_tf.interchange.task_record import TaskRecord, read_task_record
from albert_tf.io import files
from albert_tf.modeling.models import AlbertForAnswerableQuestions, models
from albert_tf.modeling.weights.stored_weights import stored_arrays

TINY = ModelConfig(
    vocab_size=200,
    embedding_size=4,
    hidden_size=8,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=16,
)
SHAPES = {
    "all": {},
    "attention": {"sharing": "attention"},
    "ffn, 2 groups": {"sharing": "ffn", "num_hidden_groups": 2},
    "none, inner": {
        "num_hidden_layers": 2,
        "sharing": "none",
        "inner_group_num": 2,
    },
    "2 groups, inner": {
        "num_hidden_layers": 4,
        "num_hidden_groups": 2,
        "inner_group_num": 2,
    },
    # transformers' division in floating point puts a layer elsewhere.
    "14 groups of 18": {
        "num_hidden_layers": 18,
        "num_hidden_groups": 14,
        "hidden_act": "relu",
    },
    "E = H": {"embedding_size": 8, "hidden_dropout_prob": 0.25},
}
# What sits in no other test; every head of a form is in one of the two.
GOOGLE_HEADS = (
    "none",
    "pretraining",
    "masked_lm",
    "classification",
    "regression",
    "multiple_choice",
    "span",
    "answerable_span",
)
HUGGINGFACE_HEADS = (
    "none",
    "pretraining",
    "masked_lm",
    "classification",
    "regression",
    "multiple_choice",
    "token_classification",
    "span",
)


@functools.cache
def built(head="pretraining", *, labels=None, pooler=True, **changes):
    """Returns a model of random weights; it is not to be changed."""
    kind = models_by_head()[head]
    if kind.takes_labels() and not labels:
        labels = ("LABEL_0", "LABEL_1", "LABEL_2")
    model = kind(override(TINY, changes), labels=labels, pooler=pooler)
    rng = np.random.default_rng(len(head) + len(changes))
    for variable in model.weights:
        if "seed" not in variable.path:
            variable.assign(rng.normal(size=variable.shape))
    return model


@pytest.fixture
def saved(tmp_path, tiny_tokenizer):
    """Gives a function that saves a model and says where."""

    def save(head="pretraining", name="source", **changes):
        directory = str(tmp_path / name)
        model = built(head, **changes)
        save_model_directory(
            directory, model, tiny_tokenizer, max_seq_length=16
        )
        return directory

    return save


def contents(directory, *names):
    return [pathlib.Path(directory, name).read_bytes() for name in names]


def converted(from_path, to_format, **options):
    """Returns where a model was converted to, and what was said."""
    to_path = f"{from_path}-{to_format}"
    said = []
    convert(from_path, to_path, to_format, say=said.append, **options)
    return to_path, said


def same_model(one, other, *names):
    files = ("model.safetensors", "spiece.model", "tokenizer_config.json")
    for name in (*files, *names):
        assert contents(one, name) == contents(other, name), name


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_every_mode_there_and_back(saved, shape):
    source = saved(**SHAPES[shape])
    google, _ = converted(source, "google_tf1")
    back, _ = converted(google, "model_directory")
    same_model(source, back, "config.json")
    theirs, said = converted(source, "huggingface")
    again, _ = converted(theirs, "model_directory")
    same_model(source, again)
    # What transformers has no word for is said, and comes back when named.
    config = built(**SHAPES[shape]).config
    words = {n: getattr(config, n) for n in ("sharing", "num_hidden_groups")}
    told = any(f"sharing={config.sharing}" in line for line in said)
    assert told == (config.sharing != "all" or shape == "14 groups of 18")
    if config.sharing != "all":
        back = f"{source}-named"
        convert(theirs, back, "model_directory", changes=words, say=said.append)
        same_model(source, back, "config.json")


@pytest.mark.parametrize("head", GOOGLE_HEADS[2:])
def test_every_head_of_google_there_and_back(saved, head):
    source = saved(head)
    google, _ = converted(source, "google_tf1")
    told = {"head": head} if head == "regression" else {}
    if head == "multiple_choice":
        with pytest.raises(
            UserError, match=r"regression, multiple_choice.*--h"
        ):
            converted(google, "model_directory")
        told = {"head": head}
    back, _ = converted(google, "model_directory", **told)
    same_model(source, back, "config.json")


@pytest.mark.parametrize("head", HUGGINGFACE_HEADS[2:])
def test_every_head_of_transformers_there_and_back(saved, head):
    poolers = {True}
    if head in ("masked_lm", "token_classification", "span"):
        # What transformers has none in travels with and without one.
        poolers.add(False)
    for pooler in poolers:
        source = saved(head, f"source{pooler}", pooler=pooler)
        theirs, said = converted(source, "huggingface")
        assert not any("Not needed" in line for line in said)
        back, _ = converted(theirs, "model_directory")
        same_model(source, back, "config.json")


def test_the_encoder_alone_there_and_back(saved):
    source = saved("none")
    for form in ("google_tf1", "huggingface"):
        back, _ = converted(converted(source, form)[0], "model_directory")
        same_model(source, back, "config.json")


def test_every_head_is_on_one_side_or_refused(saved):
    assert set(models_by_head()) == {"sentence_embedding"}.union(
        GOOGLE_HEADS, HUGGINGFACE_HEADS
    )
    assert set(models_by_head().values()) == set(models().values())
    for form, heads in (
        ("google_tf1", GOOGLE_HEADS),
        ("huggingface", HUGGINGFACE_HEADS),
    ):
        for head in sorted(set(models_by_head()) - set(heads)):
            said = f"has no head {head}, .*; --head=none takes the encoder"
            with pytest.raises(UserError, match=said):
                converted(saved(head, name=head), form)
            place, _ = converted(saved(head, name=head), form, head="none")
            shutil.rmtree(place)


def test_the_checkpoint_has_the_originals_names(saved, tiny_tokenizer):
    place, _ = converted(
        saved("classification", num_hidden_groups=2), "google_tf1"
    )
    assert sorted(os.listdir(place)) == [
        "albert_config.json",
        "checkpoint",
        "model.ckpt-best.data-00000-of-00001",
        "model.ckpt-best.index",
        "spiece.model",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert tf.train.latest_checkpoint(place) == f"{place}/model.ckpt-best"
    shapes = dict(tf.train.list_variables(f"{place}/model.ckpt-best"))
    block = "bert/encoder/transformer/group_1/inner_group_0/"
    assert shapes[f"{block}ffn_1/intermediate/dense/kernel"] == [8, 12]
    assert shapes[f"{block}ffn_1/intermediate/output/dense/kernel"] == [12, 8]
    assert shapes["bert/embeddings/word_embeddings"] == [200, 4]
    assert shapes["output_weights"] == [3, 8]
    assert shapes["global_step"] == []
    # Trunk 9, two groups of 16, the head, the step.
    assert len(shapes) == 9 + 2 * 16 + 2 + 1
    values = json.loads(pathlib.Path(place, "albert_config.json").read_text())
    assert values["num_hidden_groups"] == 2
    assert contents(place, "spiece.model") == [tiny_tokenizer.model_bytes]


def test_the_original_counts_the_groups_of_the_checkpoint(saved):
    place, _ = converted(saved("none", sharing="ffn"), "google_tf1")
    values = json.loads(pathlib.Path(place, "albert_config.json").read_text())
    assert values["num_hidden_groups"] == 3
    assert values["albert_tf"]["num_hidden_groups"] == 1


def google(place, model, changes=None, config=None):
    """Writes a checkpoint as a released folder has it."""
    place.mkdir()
    arrays = stored_arrays(model, "google")
    slots = {}
    for name in ("bert/pooler/dense/kernel", "bert/pooler/dense/bias"):
        slots[f"{name}/adam_m"] = slots[f"{name}/adam_v"] = arrays[name]
    write_checkpoint(
        str(place / "model.ckpt-best"), arrays | slots | (changes or {})
    )
    (place / "checkpoint").unlink()
    (place / "model.ckpt-best.meta").write_bytes(b"a graph")
    values = {
        name: getattr(model.config, name)
        for name in (
            "vocab_size",
            "embedding_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
        )
    }
    values |= {"down_scale_factor": 1, "net_structure_type": 0}
    (place / "albert_config.json").write_text(
        json.dumps(values | (config or {}))
    )
    return place


@pytest.mark.parametrize("given", ["", "/model.ckpt-best", ".index"])
def test_a_released_folder(tmp_path, saved, tiny_tokenizer, given):
    place = google(tmp_path / "albert_tiny", built())
    (place / "30k-clean.model").write_bytes(tiny_tokenizer.model_bytes)
    (place / "30k-clean.vocab").write_text("pieces")
    path = f"{place}{'/model.ckpt-best' if given == '.index' else ''}{given}"
    said = []
    target = str(tmp_path / "target")
    convert(path, target, "model_directory", say=said.append)
    assert said == [
        f"From the Google TF1 checkpoint {place}/model.ckpt-best.",
        f"Wrote {target}: model_directory, AlbertForPretraining.",
    ]
    same_model(saved(), target, "config.json")


def test_tokenizer_json_alone_is_a_tokenizer(saved, tiny_tokenizer):
    source = saved()
    os.remove(f"{source}/spiece.model")
    place, _ = converted(source, "google_tf1")
    back, _ = converted(place, "model_directory")
    text = "The kató, of bupe (1,234)."
    ids = load_model_directory(back).tokenizer.encode(text)
    assert ids == tiny_tokenizer.encode(text)


def test_labels_and_the_vocabulary_are_named(tmp_path, saved, tiny_directory):
    place = str(google(tmp_path / "finetuned", built("classification")))
    said = r"finetuned has no tokenizer.*--tokenizer"
    with pytest.raises(UserError, match=said):
        converted(place, "model_directory")
    labels = ["no", "yes", "maybe"]
    for number, vocabulary in enumerate(
        (tiny_directory, tiny_directory / "spiece.model")
    ):
        target = str(tmp_path / f"target-{number}")
        convert(
            place,
            target,
            "model_directory",
            tokenizer=str(vocabulary),
            labels=labels,
            say=lambda line: None,
        )
        source = saved("classification", labels=tuple(labels))
        same_model(source, target, "config.json")
    _, said = converted(source, "google_tf1")
    assert "names of the classes, ['no', 'yes', 'maybe']." in said[1]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["a", "b"], r"output_weights has shape \[3, 8\].*needs \[2, 8\]"),
        (["a", "b", "b"], r"labels=\['a', 'b', 'b'\] must be names, all dif"),
        (["a", "", "b"], r"labels=\['a', '', 'b'\] must be names, all diff"),
    ],
)
def test_wrong_labels(tmp_path, tiny_directory, labels, said):
    place = str(google(tmp_path / "finetuned", built("classification")))
    options = {"labels": labels, "tokenizer": str(tiny_directory)}
    with pytest.raises(UserError, match=said):
        converted(place, "model_directory", **options)


def test_the_originals_models_all_have_a_pooler(saved):
    theirs, _ = converted(saved("span", pooler=False), "huggingface")
    with pytest.raises(UserError, match="has no pooler, and every model of go"):
        converted(theirs, "google_tf1")
    shapes = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed)
        place, said = converted(theirs, "google_tf1", allow_missing=True)
        assert "pooler/bias, albert/encoder/pooler/kernel" in said[1]
        shapes += contents(place, "model.ckpt-best.data-00000-of-00001")
    assert shapes[0] == shapes[1] != shapes[2]


def test_heads_are_those_of_the_weights_not_only_of_the_class(saved):
    source = saved()
    arrays = safetensors.numpy.load_file(f"{source}/model.safetensors")
    theirs, _ = converted(source, "huggingface")
    rewrite("config.json", theirs, architectures=["AlbertForMaskedLM"])
    back, said = converted(
        theirs, "model_directory", head="pretraining", allow_missing=True
    )
    assert not any("Initialised" in line for line in said)
    found = safetensors.numpy.load_file(f"{back}/model.safetensors")
    assert found.keys() == arrays.keys()
    for name, value in arrays.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    # But classes are not choices, though their weights have the same names.
    one = saved("multiple_choice", "one")
    with pytest.raises(UserError, match="has no head regression"):
        converted(one, "model_directory", head="regression")


def test_beams_that_the_original_has_no_place_for_are_said(
    tmp_path, tiny_tokenizer
):
    model = models_by_head()["answerable_span"](
        TINY, head_options={"start_n_top": 7}
    )
    source = str(tmp_path / "beams")
    save_model_directory(source, model, tiny_tokenizer, max_seq_length=16)
    _, said = converted(source, "google_tf1")
    assert "Has no place there: start_n_top=7." in said


def test_what_is_missing_is_initialised_on_request(saved):
    source = saved("classification")
    with pytest.raises(UserError, match="no head token_class.*--allow_missing"):
        converted(source, "model_directory", head="token_classification")
    with pytest.raises(UserError, match="token_class.* needs .*--labels"):
        converted(
            source,
            "model_directory",
            head="token_classification",
            allow_missing=True,
        )
    place, said = converted(
        source,
        "model_directory",
        head="token_classification",
        labels=["B", "I"],
        allow_missing=True,
    )
    assert said[1:3] == [
        "Initialised: albert/token_classification/classifier/bias, "
        "albert/token_classification/classifier/kernel.",
        "Not needed: classifier.bias, classifier.weight.",
    ]
    assert load_model_directory(place).labels == ["B", "I"]


def test_a_new_head_gets_the_pooler_that_it_reads(saved):
    source = saved("span", pooler=False)
    place, said = converted(
        source,
        "model_directory",
        head="classification",
        labels=["no", "yes"],
        allow_missing=True,
        changes={"sharing": "none"},
    )
    assert "albert/encoder/pooler/bias" in said[1]
    loaded = load_model_directory(place)
    assert loaded.model.encoder.pooler is not None
    assert loaded.labels == ["no", "yes"]


def test_changes_on_the_way(saved):
    source = saved()
    wide, said = converted(
        source,
        "model_directory",
        changes={"sharing": "none", "max_position_embeddings": 40},
    )
    assert (
        "encoder/embeddings/position_embeddings: 16 rows, repeated until "
        "there are 40." in said
    )
    model = load_model_directory(wide).model
    assert model.config == override(
        TINY, {"sharing": "none", "max_position_embeddings": 40}
    )
    assert len(model.encoder.blocks) == 3
    rows = np.array(model.encoder.embeddings.position_embeddings)
    table = np.array(built().encoder.embeddings.position_embeddings)
    np.testing.assert_array_equal(rows[:32], np.tile(table, (2, 1)))
    np.testing.assert_array_equal(rows[32:], table[:8])
    back, _ = converted(
        wide,
        "model_directory",
        changes={"sharing": "all", "max_position_embeddings": 16},
    )
    same_model(source, back, "config.json")


def test_a_changed_model_keeps_its_beams(tmp_path, tiny_tokenizer):
    source = str(tmp_path / "source")
    model = AlbertForAnswerableQuestions(TINY, head_options={"start_n_top": 3})
    save_model_directory(source, model, tiny_tokenizer, max_seq_length=16)
    place, _ = converted(source, "model_directory", changes={"sharing": "ffn"})
    head = load_model_directory(place).model.answerable_span
    assert (head.start_n_top, head.end_n_top) == (3, 5)


def test_what_a_task_needs_is_kept_or_said(saved, tiny_tokenizer):
    directory = saved("answerable_span")
    features = FeatureConfig(max_seq_length=16, null_threshold=1.5)
    record = TaskRecord("SQuAD2.0", features)
    record.write(directory)
    kept, said = converted(directory, "model_directory")
    assert read_task_record(kept, 16) == record
    assert not [line for line in said if "task.json" in line]
    # Once more, over what it has written.
    converted(directory, "model_directory")
    lost, said = converted(directory, "google_tf1")
    assert read_task_record(lost, 16) is None
    assert "Has no place there: task.json, how the model answers SQuAD2.0." in (
        said
    )
    # A new head is of another task.
    other, _ = converted(
        directory, "model_directory", head="none", overwrite=True
    )
    assert read_task_record(other, 16) is None
    # A shorter table of positions takes shorter sequences.
    short, _ = converted(
        directory,
        "model_directory",
        changes={"max_position_embeddings": 8},
        overwrite=True,
    )
    assert load_model_directory(short).features.max_seq_length == 8


def test_merging(saved):
    source = saved(sharing="none")
    options = {"changes": {"sharing": "all", "max_position_embeddings": 8}}
    with pytest.raises(UserError, match="that are to be one differ"):
        converted(source, "model_directory", **options)
    place, _ = converted(source, "model_directory", merge="first", **options)
    loaded = load_model_directory(place)
    assert loaded.max_seq_length == 8
    theirs, ours = (
        np.array(model.encoder.blocks[0].attention.query.kernel)
        for model in (built(sharing="none"), loaded.model)
    )
    np.testing.assert_array_equal(ours, theirs)


def test_what_was_found_is_said(tmp_path, saved):
    source = saved()
    os.makedirs(tmp_path / "run")
    shutil.copytree(source, tmp_path / "run/model")
    theirs, _ = converted(source, "huggingface")
    for path, kind in (
        (source, "model directory"),
        (str(tmp_path / "run"), "run directory"),
        (theirs, "Hugging Face directory"),
    ):
        _, said = converted(path, "google_tf1")
        assert said[0].startswith(f"From the {kind} {path}")


def rewrite(name, directory, **changes):
    path = pathlib.Path(directory, name)
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | changes))


def edit(directory, change):
    path = os.path.join(directory, "model.safetensors")
    arrays = safetensors.numpy.load_file(path)
    change(arrays)
    arrays = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
    safetensors.numpy.save_file(arrays, path)


QUERY = (
    "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.query."
    "weight"
)
FFN = "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight"


def broken_name(d):
    edit(d, lambda a: a.update({"albert.embedings": a.pop(QUERY)}))


def swapped_axis(d):
    edit(d, lambda a: a.update({FFN: a[FFN].T}))


def missing_head(d):
    edit(d, lambda a: [a.pop(n) for n in list(a) if n.startswith("sop")])


def poisoned(d):
    edit(d, lambda a: a[QUERY].__setitem__((1, 1), np.nan))


def pickled(d):
    pathlib.Path(d, "model.safetensors").write_bytes(
        pickle.dumps({"albert.pooler.weight": [1.0] * 1000})
    )


def only_a_pickle(d):
    pickled(d)
    os.rename(f"{d}/model.safetensors", f"{d}/pytorch_model.bin")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            broken_name,
            r"missing: albert\S*query\.weight; unexpected: albert\.embedings",
        ),
        (
            swapped_axis,
            r"ffn\.weight has shape \[8, 12\].*\[12, 8\] .its axes are swapped",
        ),
        (missing_head, r"missing: sop_classifier\.classifier\.bias, sop_\S*w"),
        (poisoned, r"query\.weight holds NaN"),
        (
            lambda d: edit(d, lambda a: a.update(classifier=np.ones(2))),
            "does not fit the model: unexpected: classifier",
        ),
        (pickled, "not a readable safetensors file"),
        (only_a_pickle, r"pytorch_model\.bin is a pickle"),
        (
            lambda d: os.truncate(f"{d}/model.safetensors", 2000),
            "not a readable safetensors file",
        ),
        (
            lambda d: os.truncate(f"{d}/config.json", 50),
            r"config\.json is not valid JSON",
        ),
        (
            lambda d: os.truncate(f"{d}/spiece.model", 500),
            r"spiece\.model is not a whole SentencePiece model",
        ),
        (
            lambda d: rewrite("config.json", d, vocab_size=199),
            "tokenizer has 200 pieces.*vocab_size=199",
        ),
        (
            lambda d: rewrite("config.json", d, albert_tf={"sharing": "some"}),
            "sharing='some' is not one of all, attention",
        ),
        (
            lambda d: rewrite("config.json", d, vocab_size=10**7),
            "they do not belong together",
        ),
        (
            lambda d: [
                os.remove(f"{d}/{name}")
                for name in ("spiece.model", "tokenizer.json")
            ],
            r"has no tokenizer, .*--tokenizer names",
        ),
    ],
)
def test_planted_faults_of_a_directory(tmp_path, saved, damage, said):
    source = saved()
    damage(source)
    for form in ("google_tf1", "huggingface"):
        with pytest.raises(UserError, match=said) as raised:
            converted(source, form)
        assert "\n" not in str(raised.value)
    assert os.listdir(tmp_path) == ["source"]


KERNEL = "bert/encoder/transformer/group_0/inner_group_0/attention_1/self/"
INTERMEDIATE = (
    "bert/encoder/transformer/group_0/inner_group_0/ffn_1/intermediate/dense/"
    "kernel"
)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bert/pooler/dens/kernel": np.ones(3)}, "unexpected: bert/pooler/de"),
        (
            {INTERMEDIATE: np.ones((12, 8))},
            r"dense/kernel has shape \[12, 8\].*axes are swapped",
        ),
        (
            {f"{KERNEL}query/bias": np.full(8, np.inf)},
            "query/bias holds NaN or infinity",
        ),
        ({"cls/squad/output_weights": np.ones((2, 8))}, "pretraining, span;"),
        ({"output_weights": np.ones((1, 8))}, "regression, multiple_choice;"),
    ],
)
def test_planted_faults_of_a_checkpoint(
    tmp_path, tiny_directory, changes, said
):
    place = str(google(tmp_path / "albert", built(), changes))
    with pytest.raises(UserError, match=said):
        converted(place, "model_directory", tokenizer=str(tiny_directory))
    assert os.listdir(tmp_path) == ["albert"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda d: (d / "model.ckpt-best.index").write_bytes(
                pickle.dumps([1.0] * 1000)
            ),
            "not a readable TensorFlow checkpoint",
        ),
        (
            lambda d: os.truncate(d / "model.ckpt-best.index", 99),
            "its index was cut",
        ),
        (
            lambda d: os.truncate(
                d / "model.ckpt-best.data-00000-of-00001", 99
            ),
            "the file was cut",
        ),
        (
            lambda d: (d / "albert_config.json").unlink(),
            r"albert_config\.json is missing",
        ),
        (
            lambda d: rewrite("albert_config.json", d, vocab_size=10**7),
            "they do not belong together",
        ),
        (
            lambda d: rewrite("albert_config.json", d, vocab_size=150),
            "tokenizer has 200 pieces and the model vocab_size=150",
        ),
        (
            lambda d: rewrite(
                "albert_config.json",
                d,
                num_hidden_layers=22,
                num_hidden_groups=22,
            ),
            "google-research/albert spreads num_hidden_groups=22",
        ),
    ],
)
def test_damaged_checkpoints(tmp_path, tiny_directory, damage, said):
    place = google(tmp_path / "albert", built())
    damage(place)
    with pytest.raises(UserError, match=said) as raised:
        converted(str(place), "huggingface", tokenizer=str(tiny_directory))
    assert "\n" not in str(raised.value)
    assert os.listdir(tmp_path) == ["albert"]


def test_what_is_no_source(tmp_path):
    (tmp_path / "albert_base_v2.tar.gz").write_bytes(b"x" * 99)
    (tmp_path / "loop").symlink_to("loop")
    for name, said in (
        ("albert_base_v2.tar.gz", "is an archive; unpack it"),
        ("loop", "loop does not exist"),
        ("nowhere", "nowhere does not exist"),
        ("", "neither a model directory"),
    ):
        with pytest.raises(UserError, match=said):
            convert(str(tmp_path / name), str(tmp_path) + "-to", "huggingface")
    assert not os.path.exists(str(tmp_path) + "-to")


def test_what_may_not_be_written_to(tmp_path, saved, tiny_directory):
    source = saved()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to(source)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thesis.txt").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "to-empty").symlink_to("empty")
    before = sorted(os.walk(tmp_path))
    for name, said in (
        ("source", "lie within each other"),
        ("source/", "lie within each other"),
        ("link", "lie within each other"),
        ("source/deep/inside", "lie within each other"),
        (".", "lie within each other"),
        ("file", "is a file or a link"),
        ("loop", "is a file or a link"),
        ("to-empty", "is a file or a link"),
        ("other", r"other holds thesis\.txt, which no conversion writes"),
    ):
        with pytest.raises(UserError, match=said):
            convert(source, str(tmp_path / name), "google_tf1")
    vocabulary = tmp_path / "other/thesis.txt"
    with pytest.raises(UserError, match="thesis.txt, which is read, lie"):
        convert(
            source,
            str(tmp_path / "other"),
            "google_tf1",
            tokenizer=str(vocabulary),
            overwrite=True,
        )
    assert sorted(os.walk(tmp_path)) == before
    with pytest.raises(UserError, match="no conversion writes"):
        convert(source, str(tmp_path / "other"), "google_tf1", overwrite=True)
    assert vocabulary.read_text() == "mine"


def test_only_its_like_is_replaced(saved):
    source = saved()
    places = {form: f"{source}-{form}" for form in list(TARGETS)[:3]}
    quiet = {"say": lambda line: None}
    for form, place in places.items():
        convert(source, place, form, **quiet)
        before = contents(place, "tokenizer.json")
        convert(source, place, form, **quiet)
        assert contents(place, "tokenizer.json") == before
    for there in places:
        for form in places:
            if there != form:
                said = f"holds something else than {form}"
                with pytest.raises(UserError, match=said):
                    convert(source, places[there], form, **quiet)
    place = places["google_tf1"]
    convert(source, place, "huggingface", overwrite=True, **quiet)
    assert set(os.listdir(place)) == set(os.listdir(places["huggingface"]))
    pathlib.Path(places["huggingface"], "notes.md").write_text("mine")
    with pytest.raises(UserError, match=r"holds notes\.md, which no"):
        convert(source, places["huggingface"], "huggingface", **quiet)


def test_a_failed_conversion_leaves_the_target_as_it_was(saved):
    source = saved()
    place, _ = converted(source, "huggingface")
    before = contents(place, *sorted(os.listdir(place)))
    poisoned(source)
    with pytest.raises(UserError, match="NaN"):
        converted(source, "huggingface")
    assert contents(place, *sorted(os.listdir(place))) == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"to_format": "onnx"}, "to_format='onnx' is not one of model_dir"),
        ({"to_path": ""}, "from_path and to_path must not be empty"),
        ({"from_path": ""}, "from_path and to_path must not be empty"),
        ({"head": "qa"}, "head='qa' is not one of none, pretraining, masked"),
        ({"changes": {"sharing": "some"}}, "sharing='some' is not one of"),
        ({"changes": {"hidden_size": 16}}, "position_embeddings|do not fit"),
        ({"changes": {"num_hidden_layers": 0}}, "num_hidden_layers=0 is below"),
        ({"merge": "sum", "changes": {"sharing": "none"}}, "merge='sum'"),
        ({"labels": ["a"]}, "AlbertForPretraining has no classes"),
        ({"tokenizer": "/nowhere"}, "The tokenizer /nowhere does not exist"),
        (
            {
                "to_format": "google_tf1",
                "changes": {"hidden_act": "gelu_exact"},
            },
            "hidden_act='gelu_exact' has no name in a Google",
        ),
    ],
)
def test_mistaken_options(tmp_path, saved, options, said):
    source = saved()
    paths = {"from_path": source, "to_path": str(tmp_path / "to")}
    with pytest.raises(UserError, match=said):
        convert(**{**paths, "to_format": "model_directory", **options})
    assert os.listdir(tmp_path) == ["source"]


@pytest.mark.parametrize("form", ["huggingface", "google_tf1"])
def test_to_a_bucket_and_back(saved, form):
    source, bucket = saved(sharing="all"), f"ram://convert/{form}"
    quiet = {"say": lambda line: None}
    for _ in range(2):
        convert(source, f"{bucket}/", form, **quiet)
    assert set(files.listdir(bucket)) <= TARGETS[form].files
    convert(bucket, f"{source}-back", "model_directory", **quiet)
    same_model(source, f"{source}-back")
    for other in (bucket, f"{bucket}/deeper", "ram://convert"):
        with pytest.raises(UserError, match="lie within each other"):
            convert(bucket, other, form)
    for other in set(list(TARGETS)[:3]) - {form}:
        with pytest.raises(UserError, match=f"something else than {other}"):
            convert(source, bucket, other, **quiet)


def test_from_this_directory_to_a_bucket(saved, monkeypatch):
    source = saved()
    monkeypatch.chdir(source)
    convert(".", "ram://convert/here", "model_directory", say=lambda line: None)
    convert("ram://convert/here", f"{source}-back", "model_directory", say=len)
    same_model(source, f"{source}-back", "config.json")

"""Weights files: reading, writing, and refusing damaged or unsafe ones."""

import json
import os
import pathlib
import shlex
import shutil
import stat

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from albert_tf.config import UserError
from albert_tf.modeling.weights.weights_file import (
    MAX_HEADER_BYTES,
    open_weights,
    refuse_pickle,
    write_weights,
)
from tests.counted_work import steps_below

WORDS = "albert.embeddings.word_embeddings.weight"
DECODER = "predictions.decoder.weight"
TORCH = pathlib.Path(__file__).parents[2] / "data" / "torch"


def entry(**changes):
    """Returns the header's entry of one float32 number."""
    return {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **changes}


def file_of(tmp_path, header, data=b"\0" * 4, length=None):
    """Writes a safetensors file by hand: any header, any data."""
    if isinstance(header, dict):
        header = json.dumps(header)
    if isinstance(header, str):
        header = header.encode()
    length = len(header) if length is None else length
    path = tmp_path / "model.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + header + data)
    return str(path)


def written(tmp_path, **arrays):
    """Writes a file with the library; `__` in a name stands for a dot."""
    path = str(tmp_path / "model.safetensors")
    arrays = {n.replace("__", "."): np.asarray(v) for n, v in arrays.items()}
    safetensors.numpy.save_file(arrays, path)
    return path


def refused(path):
    """Returns the line that refuses a file, however much is in it."""
    with pytest.raises(UserError) as raised, steps_below(2000):
        open_weights(path)
    text = str(raised.value)
    assert text.startswith(path)
    assert len(text) < len(path) + 500
    assert text[len(path) :].isascii() and text.isprintable()
    return text


def test_written_weights_are_read(tmp_path):
    rng = np.random.default_rng(1)
    arrays = {
        "albert.b": rng.normal(size=(3, 2)).astype("float32"),
        "albert.a": np.float32([np.nan, -0.0, np.inf]),
        "predictions.bias": rng.normal(size=(4,)),
    }
    path = str(tmp_path / "model.safetensors")
    write_weights(path, arrays)
    weights = open_weights(path)
    assert (weights.source, weights.form) == (path, "huggingface")
    assert weights.shapes == {
        "albert.a": (3,),
        "albert.b": (3, 2),
        "predictions.bias": (4,),
    }
    for name, value in arrays.items():
        found = weights.read(name)
        assert found.dtype == np.float32
        assert found.tobytes() == value.astype("float32").tobytes()
        assert found.shape == value.shape
    with safetensors.safe_open(path, framework="np") as file:
        assert file.metadata() == {"format": "pt"}


def test_equal_weights_make_equal_bytes(tmp_path):
    kernel = np.arange(6, dtype="float32").reshape(2, 3)
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    write_weights(one, {"a": kernel, "b": kernel.T})
    write_weights(two, {"b": kernel.T.copy(), "a": kernel.astype(">f8")})
    with open(one, "rb") as first, open(two, "rb") as second:
        assert first.read() == second.read()
    np.testing.assert_array_equal(
        safetensors.numpy.load_file(one)["b"], kernel.T
    )


@pytest.mark.parametrize("form", ["float16", "float32", "float64", "bfloat16"])
def test_every_floating_form_becomes_float32(tmp_path, form):
    kind = np.dtype(getattr(ml_dtypes, form, form))
    value = (np.arange(-7, 8).reshape(5, 3) * 0.3).astype(kind)
    value[0] = [np.nan, np.inf, -0.0]
    if form == "float64":
        value[1] = [1e39, -1e300, 1.5]
    path = written(tmp_path, albert__x=np.zeros(3, "float32"), albert__y=value)
    found = open_weights(path).read("albert.y")
    assert found.dtype == np.float32
    with np.errstate(over="ignore"):
        assert found.tobytes() == value.astype("float32").tobytes()


def test_adapters_that_are_not_merged(tmp_path):
    path = written(
        tmp_path,
        base_model__model__albert__pooler__base_layer__weight=np.eye(2),
        base_model__model__albert__pooler__lora_A__default__weight=np.eye(2),
    )
    assert "with adapters of PEFT that are not merged" in refused(path)
    assert "merge_and_unload()" in refused(path)


def test_a_transposed_matrix_of_torch(tmp_path):
    shutil.copy(TORCH / "transposed.bin", tmp_path / "pytorch_model.bin")
    weights = open_weights(str(tmp_path / "model.safetensors"))
    assert weights.shapes == {"albert.a": (4, 3)}
    expected = np.arange(12, dtype="float32").reshape(3, 4).T
    np.testing.assert_array_equal(weights.read("albert.a"), expected)


def test_a_bare_encoder_gets_its_prefix(tmp_path):
    path = written(
        tmp_path,
        pooler__weight=np.float32([[1, 2]]),
        embeddings__position_ids=np.arange(4)[None],
    )
    weights = open_weights(path)
    assert weights.shapes == {"albert.pooler.weight": (1, 2)}
    assert weights.read("albert.pooler.weight").tolist() == [[1, 2]]


def test_tied_weights_are_compared_and_dropped(tmp_path):
    words = np.float32([[1, np.nan], [0, 3]])
    path = written(tmp_path, **{WORDS: words, DECODER: words})
    weights = open_weights(path)
    weights.check_tied()
    assert set(weights.shapes) == {WORDS}
    assert weights.read(WORDS).tobytes() == words.tobytes()


@pytest.mark.parametrize(
    "others", [{}, {"predictions.bias": np.zeros(2, "float32")}]
)
def test_the_bias_that_transformers_adds_counts(tmp_path, others):
    arrays = {"albert.x": np.float32([0]), **others}
    arrays["predictions.decoder.bias"] = np.float32([4, 5])
    weights = open_weights(written(tmp_path, **arrays))
    weights.check_tied()
    assert weights.read("predictions.bias").tolist() == [4, 5]


def test_tied_weights_that_differ_in_a_bit_are_refused(tmp_path):
    arrays = {WORDS: np.float32([1, 0]), DECODER: np.float32([1, -0.0])}
    weights = open_weights(written(tmp_path, **arrays))
    # Heads of tasks do without the copy.
    assert weights.read(WORDS).tolist() == [1, 0]
    with pytest.raises(UserError, match=f"{DECODER} differs from {WORDS}"):
        weights.check_tied()


def test_tied_weights_of_another_shape_are_refused(tmp_path):
    path = written(
        tmp_path,
        **{WORDS: np.zeros((2, 2), "float32"), DECODER: np.zeros(4, "float32")},
    )
    with pytest.raises(UserError, match=f"{DECODER} differs from {WORDS}"):
        open_weights(path).check_tied()


def test_a_tied_weight_alone_is_dropped(tmp_path):
    zero = np.zeros(1, "float32")
    path = written(tmp_path, **{DECODER: zero, "albert.x": zero})
    assert set(open_weights(path).shapes) == {"albert.x"}


def test_a_link_to_a_file_is_a_file(tmp_path):
    write_weights(str(tmp_path / "blob"), {"albert.x": np.float32([7])})
    link = tmp_path / "model.safetensors"
    link.symlink_to("blob")
    assert open_weights(str(link)).read("albert.x").tolist() == [7]


def test_only_the_array_that_is_asked_for_is_read(tmp_path):
    """The file claims 40 GB of zeros, which it has as a hole."""
    count = 10**10
    header = {
        "albert.x": entry(),
        "albert.y": entry(shape=[count], data_offsets=[4, 4 + 4 * count]),
    }
    path = file_of(tmp_path, header, np.float32([3]).tobytes())
    os.truncate(path, os.path.getsize(path) + 4 * count)
    weights = open_weights(path)
    assert weights.shapes["albert.y"] == (count,)
    assert weights.read("albert.x").tolist() == [3]


def test_a_file_that_is_cut_after_it_was_opened(tmp_path):
    path = written(tmp_path, albert__x=np.ones(4, "float32"))
    weights = open_weights(path)
    os.truncate(path, os.path.getsize(path) - 1)
    with pytest.raises(UserError, match="been cut, albert.x is not there"):
        weights.read("albert.x")
    os.remove(path)
    with pytest.raises(UserError, match="No such file"):
        weights.read("albert.x")


DEEP = 200_000
THIRD = MAX_HEADER_BYTES // 3
ENTRY = json.dumps(entry())
TWICE = '{"a": ' + ENTRY + ', "a": ' + ENTRY + "}"


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        ('{"__metadata__": {"a": "b"}}', b"", "holds no weights"),
        ('{"a":' * DEEP, b"", "recursion limit"),
        (TWICE, b"\0" * 4, "appears twice"),
        ({"a": entry()}, b"\0" * 5, "not fully covered"),
        ({"a": entry(dtype="x\n\x1b" * 500)}, b"\0" * 4, r"`x\\n\\x1bx\\n"),
        ({"a": entry(dtype="I32")}, b"\0" * 4, "albert.a holds I32; .*BF16"),
        (
            {"a": entry(shape=[0, 2**40], data_offsets=[0, 0])},
            b"",
            "has 2 axes or an empty one",
        ),
        ({"a": entry(shape=[1] * 70)}, b"\0" * 4, "has 70 axes"),
        ({"a\0\n\x1b[31mred": entry()}, b"\0" * 4, r"a\\x00\\n\\x1b\[31mred"),
        ({"n" * 10_000: entry()}, b"\0" * 4, "n{100} is no name"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_a_malformed_file_is_refused(tmp_path, header, data, message):
    text = refused(file_of(tmp_path, header, data))
    with pytest.raises(UserError, match=message):
        raise UserError(text)


@pytest.mark.parametrize(
    ("length", "message"),
    [
        (2**64 - 1, "longer than the file"),
        (MAX_HEADER_BYTES + 1, "above the maximum"),
    ],
)
def test_a_header_that_is_too_long(tmp_path, length, message):
    path = file_of(tmp_path, " " * 10, b"", length=length)
    os.truncate(path, 10**10)
    assert f"{length} bytes is {message}" in refused(path)


def names_of(count):
    rows = (
        f'"n{number}":{{"dtype":"F32","shape":[1],'
        f'"data_offsets":[{4 * number},{4 * number + 4}]}}'
        for number in range(count)
    )
    return "{" + ",".join(rows) + "}"


@pytest.mark.parametrize(
    "fill",
    ['{"a": [' + "{}," * (THIRD - 9) + "{}]}", names_of(50_000)],
    ids=["empty objects", "many names"],
)
def test_the_largest_headers_are_refused_with_little_work(tmp_path, fill):
    """Their data are missing by a byte."""
    assert len(fill) <= MAX_HEADER_BYTES
    refused(file_of(tmp_path, fill, b"\0" * 3))


def test_a_header_of_many_names_is_read_name_by_name(tmp_path):
    path = file_of(tmp_path, names_of(20_000), b"\0" * 80_000)
    with steps_below(70 * 20_000):
        assert len(open_weights(path).shapes) == 20_000


def test_pipes_and_devices_are_refused_unopened(tmp_path):
    pipe = str(tmp_path / "model.safetensors")
    os.mkfifo(pipe)
    for path in (pipe, str(tmp_path), "/dev/zero"):
        assert refused(path) == f"{path} is not a regular file."
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    for path in (str(link), str(tmp_path / "nowhere")):
        assert refused(path) == f"{path} is missing."


@pytest.mark.parametrize(
    "names",
    [
        ["a.pt", "config.json", "training_args.bin"],
        ["last.ckpt"],
        ["weights.pth"],
    ],
)
def test_pickles_are_never_opened(tmp_path, names):
    for name in names:
        # Whoever opens a pipe that nobody writes to waits for ever.
        os.mkfifo(tmp_path / name)
    with pytest.raises(UserError) as raised:
        refuse_pickle(str(tmp_path))
    text = str(raised.value)
    assert "\n" not in text
    assert text.startswith(f"{tmp_path}/{names[0]} is a pickle, which can run")
    assert "state_dict, rename it to pytorch_model.bin, of which" in text


@pytest.mark.parametrize(
    "name", ["model.onnx", "openvino_model.bin", "model.tflite"]
)
def test_models_of_other_runtimes(tmp_path, name):
    for other in (name, "config.json", "training_args.bin"):
        (tmp_path / other).touch()
    with pytest.raises(UserError) as raised:
        refuse_pickle(str(tmp_path))
    assert str(raised.value) == (
        f"{tmp_path}/{name} is a model of another runtime, of which no weights "
        "are read here. Name the model that it was made of."
    )


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_pointers_of_git_lfs(tmp_path, name):
    (tmp_path / name).write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7\nsize 9\n"
    )
    with pytest.raises(UserError, match="pointer of Git LFS.* git lfs pull"):
        open_weights(str(tmp_path / "model.safetensors"))


def test_safetensors_of_another_name(tmp_path):
    for name in ("model.fp16.safetensors", "training_args.bin"):
        (tmp_path / name).touch()
    with pytest.raises(
        UserError,
        match=r"fp16\.safetensors is not read under this name, .* Rename it",
    ):
        refuse_pickle(str(tmp_path))


@pytest.mark.parametrize(
    "name",
    ["model-00001-of-00002.safetensors", "pytorch_model-00001-of-00002.bin"],
)
def test_shards_without_their_index(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(
        UserError, match=r"index \(\*\.index\.json\) is missing\. Copy it too"
    ):
        refuse_pickle(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "message", "option"),
    [
        ("tf_model.h5", "transformers 4", "(d, from_tf=True)"),
        ("flax_model.msgpack", "transformers 4", "(d, from_flax=True)"),
    ],
)
def test_the_message_has_a_command_that_converts(
    tmp_path, name, message, option
):
    directory = tmp_path / "it's my $HOME"
    directory.mkdir()
    (directory / name).touch()
    with pytest.raises(UserError, match=message) as raised:
        refuse_pickle(str(directory))
    text = str(raised.value)
    assert "\n" not in text
    end = shlex.quote(str(directory))
    command = text[text.index("python -c") : text.index(end) + len(end)]
    program, _, code, place = shlex.split(command)
    assert (program, place) == ("python", str(directory))
    assert f".from_pretrained{option}.save_pretrained(d, " in code
    compile(code, "the command", "exec")


@pytest.mark.parametrize(
    "names",
    [
        ["config.json", "spiece.model", "model.ckpt-1.index"],
        ["model.safetensors", "pytorch_model.bin", "tf_model.h5"],
        ["model.safetensors.index.json", "training_args.bin"],
        ["pytorch_model.bin", "tf_model.h5"],
    ],
)
def test_other_directories_are_not_refused(tmp_path, names):
    for name in names:
        (tmp_path / name).touch()
    refuse_pickle(str(tmp_path))
    refuse_pickle(str(tmp_path / "nowhere"))


def test_weights_in_a_bucket_are_read_array_by_array(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    words = rng.normal(size=(300, 1000)).astype("float32")
    half = rng.normal(size=7).astype(ml_dtypes.bfloat16)
    path = written(tmp_path, **{WORDS: words, DECODER: words, "b": half})
    bucket = f"file://{path}"
    near, far = open_weights(path), open_weights(bucket)
    assert far.source == bucket
    assert far.shapes == near.shapes == {WORDS: (300, 1000), "b": (7,)}
    assert far.read(WORDS).tobytes() == words.tobytes()
    assert far.read("b").tobytes() == near.read("b").tobytes()
    assert far.fingerprint == near.fingerprint
    os.truncate(path, os.path.getsize(path) - 4)
    with pytest.raises(UserError, match="^file://.*has been cut"):
        [far.read(name) for name in far.shapes]


def test_a_bucket_is_trusted_no_more(tmp_path):
    bucket = f"file://{file_of(tmp_path, {'a': entry()}, bytes(5))}"
    assert "is not a readable safetensors file" in refused(bucket)


def test_a_bucket_without_a_weights_file_is_refused(tmp_path):
    bucket = f"file://{tmp_path}"
    assert "weights is missing" in refused(f"{bucket}/weights")
    assert "is not a regular file" in refused(bucket)
    (tmp_path / "model.pt").touch()
    with pytest.raises(UserError, match=f"^{bucket}/model.pt is a pi"):
        refuse_pickle(bucket)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_the_umask_decides_who_reads_the_weights(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_weights(str(tmp_path / "x"), {"weight": np.zeros(1)})
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "x").st_mode) == mode

"""KERNELS: attention by the kernels of JAX for GPUs and TPUs, one row each.

The weights of all pairs of positions are never in memory. With Keras on JAX a
kernel is called; with TensorFlow it becomes an operation of the program
(XlaCallModule, by jax2tf), which XLA compiles with the rest for the device. JAX
itself stays on the CPU there.
"""

import contextlib
import functools
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import keras
from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.config import ModelConfig, require
from albert_tf.modeling.kernels import ON_TENSORFLOW, with_gradient

_LARGEST_HEAD = 128
# The logit of keys that only fill a block: below that of masked positions.
_FILLED_KEY = -20000.0


def cudnn_attention(
    query: Any,
    key: Any,
    value: Any,
    mask_logits: Any,
    implementation: str = "cudnn",
) -> Any:
    """Returns the context by cuDNN's flash attention, within JAX.

    cuDNN reads the first keys of a row, as many as there are tokens: they are
    put in front. (With a mask that is added to the logits, it also writes the
    gradient of this mask, `[batch, heads, n, seq]`, which takes twice the
    time.)
    """
    import jax
    import jax.numpy as jnp

    is_token = _is_token(mask_logits)
    order = jnp.argsort(~is_token, axis=1, stable=True)
    return jax.nn.dot_product_attention(
        query,
        _reordered(key, order),
        _reordered(value, order),
        key_value_seq_lengths=jnp.sum(is_token, axis=1, dtype=jnp.int32),
        implementation=implementation,
    )


def _is_token(mask_logits: Any) -> Any:
    """Returns the positions that are attended to, `[batch, seq]`.

    In a row without tokens all of them: the softmax of logits with one number
    added to all is that without.
    """
    logits = mask_logits[:, 0, 0]
    return logits == logits.max(axis=1, keepdims=True)


def _reordered(x: Any, order: Any) -> Any:
    """Returns `x` `[batch, seq, ...]` with its positions in another order."""
    import jax
    import jax.numpy as jnp

    def taken(x: Any, order: Any) -> Any:
        return jnp.take_along_axis(x, order[:, :, None, None], axis=1)

    # JAX's own gradient would add up values that have one place each.
    call = jax.custom_vjp(taken)
    call.defvjp(
        lambda x, order: (taken(x, order), order),
        lambda order, found: (taken(found, jnp.argsort(order, axis=1)), None),
    )
    return call(x, order)


def pallas_attention(query: Any, key: Any, value: Any, mask_logits: Any) -> Any:
    """Returns the context by Pallas' flash attention for TPUs, within JAX."""
    import jax.numpy as jnp
    from jax.experimental.pallas.ops.tpu import flash_attention as pallas

    batch, count, _, size = query.shape
    length = key.shape[1]
    is_token = _is_token(mask_logits)
    segments = pallas.SegmentIds(
        q=jnp.ones((batch, count), jnp.int32), kv=is_token.astype(jnp.int32)
    )
    by_heads = (jnp.swapaxes(x, 1, 2) for x in (query, key, value))
    context = pallas.flash_attention(
        *by_heads,
        segment_ids=segments,
        sm_scale=size**-0.5,
        block_sizes=_pallas_blocks(pallas, count, length),
    )
    return jnp.swapaxes(context, 1, 2)


def _pallas_blocks(pallas: Any, count: int, length: int) -> Any:
    """Returns the largest blocks of at most 512 queries and keys."""
    rows, columns = (
        next(size for size in (512, 384, 256, 128, n) if n % size == 0)
        for n in (count, length)
    )
    forward = {"block_q": rows, "block_k_major": columns, "block_k": columns}
    backward = {
        "block_q_major_dkv": rows,
        "block_q_dkv": rows,
        "block_k_major_dkv": columns,
        "block_k_dkv": columns,
        "block_q_dq": rows,
        "block_k_major_dq": columns,
        "block_k_dq": columns,
    }
    return pallas.BlockSizes(block_b=1, **forward, **backward)


class Kernel(NamedTuple):
    """A row of KERNELS.

    Attributes:
        function: JAX's, of queries, keys, values and logits of the mask, shaped
            as those of `attend`; returns the context.
        device: TensorFlow's name of the devices.
        platform: JAX's name of them.
        precisions: the types that it multiplies.
        block: queries, and keys, are padded to multiples of these.
        custom_calls: names in the compiled program.
    """

    function: Callable
    device: str
    platform: str
    precisions: tuple[str, ...]
    block: tuple[int, int]
    custom_calls: tuple[str, ...]


KERNELS = {
    "cudnn": Kernel(
        cudnn_attention,
        "GPU",
        "cuda",
        ("bfloat16", "float16"),
        # JAX refuses odd lengths.
        (2, 2),
        ("__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"),
    ),
    "pallas": Kernel(
        pallas_attention,
        "TPU",
        "tpu",
        ("bfloat16", "float32"),
        (8, 128),
        ("tpu_custom_call",),
    ),
}


def kernel_of_device() -> str:
    """Returns the kernel that is chosen for the device; "": none.

    With Keras on JAX cuDNN's on a GPU, which is faster there. Others are used
    where they are asked for: they have not been run on such devices.
    """
    if keras.backend.backend() != "jax":
        return ""
    import jax

    return "cudnn" if jax.default_backend() == "gpu" else ""


def kernel_problem(name: str, config: ModelConfig, dtype: str) -> str:
    """Returns why a kernel cannot train such a model; "" if it can.

    Args:
        name: the row of KERNELS.
        config: the architecture.
        dtype: in which the layers compute.
    """
    kernel, backend = KERNELS[name], keras.backend.backend()
    rate = config.attention_probs_dropout_prob
    size = config.hidden_size // config.num_attention_heads
    if backend not in ("tensorflow", "jax"):
        return f"needs Keras on TensorFlow or JAX, and this is {backend}"
    if not importlib.util.find_spec("jax"):
        return "needs JAX, not installed here: pip install jax"
    if dtype not in kernel.precisions:
        allowed = " or ".join(kernel.precisions)
        return f"computes in {allowed}, and the precision is {dtype}"
    if rate:
        return (
            f"drops no weights: attention_probs_dropout_prob={rate} must be 0"
        )
    if size % 8 or size > _LARGEST_HEAD:
        return (
            f"takes heads of at most {_LARGEST_HEAD} values, a multiple of 8, "
            f"and these have {size}"
        )
    return ""


def kernel_attention(
    name: str, query: Tensor, key: Tensor, value: Tensor, mask_logits: Tensor
) -> Tensor:
    """Returns the context as `attend`, in memory linear in the length.

    Raises:
        UserError: where the size of the batch is not known beforehand.
    """
    require(
        all(isinstance(size, int) for size in query.shape),
        f"attention={name!r} needs batches of one known size, and these are of "
        "any; set it to plain, or drop the rest of the last batch.",
    )
    mask_logits = ops.cast(mask_logits, query.dtype)
    tensors = pad_to_blocks(KERNELS[name], query, key, value, mask_logits)
    return _backend_function(name)(*tensors)[:, : query.shape[1]]


def pad_to_blocks(
    kernel: Kernel, query: Tensor, *others: Tensor
) -> list[Tensor]:
    """Returns queries, keys, values and logits of the mask, padded."""
    key, value, mask_logits = others
    rows, columns = kernel.block
    return [
        _pad_axis(query, 1, rows),
        _pad_axis(key, 1, columns),
        _pad_axis(value, 1, columns),
        _pad_axis(mask_logits, 3, columns, _FILLED_KEY),
    ]


def _pad_axis(x: Tensor, axis: int, unit: int, value: float = 0.0) -> Tensor:
    """Returns x with values behind, so that the axis is a multiple of unit."""
    missing = -x.shape[axis] % unit
    if not missing:
        return x
    padding = [(0, 0)] * len(x.shape)
    padding[axis] = (0, missing)
    return ops.pad(x, padding, constant_values=value)


@functools.cache
def _backend_function(name: str) -> Callable:
    """Returns the kernel as a function of this backend's tensors."""
    if not ON_TENSORFLOW:
        return KERNELS[name].function
    return with_gradient(
        functools.partial(_as_tensorflow_operation, name, _vjp_forward),
        functools.partial(_as_tensorflow_operation, name, _vjp_backward),
    )


def _vjp_forward(function: Callable, *tensors: Any) -> tuple:
    """Returns the context, and what the gradient needs of the way there."""
    import jax

    *states, mask_logits = tensors
    context, pullback = jax.vjp(
        lambda *states: function(*states, mask_logits), *states
    )
    return context, *jax.tree.leaves(pullback)


def _vjp_backward(function: Callable, gradient: Any, *tensors: Any) -> tuple:
    """Returns the gradients of queries, keys and values.

    `tensors` are those of `_vjp_forward`, then what it has kept.
    """
    import jax

    *states, mask_logits = tensors[:4]

    def pullback(*states: Any) -> Any:
        return jax.vjp(lambda *s: function(*s, mask_logits), *states)[1]

    structure = jax.tree.structure(jax.eval_shape(pullback, *states))
    return jax.tree.unflatten(structure, tensors[4:])(gradient)


def _as_tensorflow_operation(
    name: str, direction: Callable, *tensors: Any
) -> tuple:
    """Returns the results of a direction, as operations of TensorFlow."""
    import jax
    from jax.experimental import jax2tf

    kernel = KERNELS[name]
    # The GPU and its memory are TensorFlow's. JAX has no public switch for one
    # conversion: its first operation would start every device that it finds.
    jax.config.update("jax_platforms", "cpu")
    allowed = map(
        jax.export.DisabledSafetyCheck.custom_call, kernel.custom_calls
    )
    call = jax2tf.convert(
        functools.partial(direction, kernel.function),
        with_gradient=False,
        native_serialization_platforms=(kernel.platform,),
        native_serialization_disabled_checks=(
            jax.export.DisabledSafetyCheck.platform(),
            *allowed,
        ),
    )
    with _checks_left_to_xla():
        return call(*tensors)


@contextlib.contextmanager
def _checks_left_to_xla() -> Iterator[None]:
    """Spares JAX the questions to a GPU of its own, which it does not have.

    XLA asks cuDNN, when it compiles the program for the GPU.
    """
    # The functions are private, but JAX has no public switch: its attention
    # calls them whenever it is traced, also for a device that is not JAX's.
    from jax._src.cudnn import fused_attention_stablehlo as cudnn

    with (
        mock.patch.object(cudnn, "check_cudnn_version", lambda: 0),
        mock.patch.object(cudnn, "check_compute_capability", lambda _: True),
        mock.patch.object(
            cudnn, "is_cuda_compute_capability_equal", lambda _: False
        ),
    ):
        yield

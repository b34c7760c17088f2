"""Normalisations and activations."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug.contract.types import Shape
from onnxplug_ep_cpu.schemas.declare import Call, Required, contrib
from onnxplug_ep_cpu.schemas.shapes import dims, over, same
from onnxplug_kernels.catalogue import FLOATS

SINGLE = ("float16", "bfloat16", "float")
BYTES = ("int8", "uint8")


@contrib(
    "SkipLayerNormalization",
    "input: T, skip: T, gamma: T, beta: T?, bias: T? -> output: T, mean: U?, inv_std_var: U?, input_skip_bias_sum: T?",
    {"epsilon": 1e-12},
    T=SINGLE,
    U=("float",),
    unbound={"U": lambda call: "float"},
)
@contrib(
    "SkipSimplifiedLayerNormalization",
    "input: T, skip: T, gamma: T, bias: T? -> output: T, mean: U?, inv_std_var: U?, input_skip_bias_sum: T?",
    {"epsilon": 1e-12},
    T=SINGLE,
    U=("float",),
    unbound={"U": lambda call: "float"},
)
def skip_normalization(call: Call) -> Sequence[Shape | None]:
    """Shaped like x; statistics have a last axis of 1."""
    x = call.shape(0)
    statistic = x and (*x[:-1], 1)
    return x, statistic, statistic, x


_GROUPS = {"activation": Required(int), "channels_last": 1, "epsilon": 1e-5, "groups": Required(int)}
contrib("GroupNorm", "X: T, gamma: M, beta: M -> Y: T", _GROUPS, T=("float16", "float"), M=("float16", "float"))(same)


@contrib(
    "SkipGroupNorm",
    "X: T, gamma: M, beta: M, skip: T, bias: T? -> Y: T, S: T?",
    _GROUPS,
    T=("float16", "float"),
    M=("float16", "float"),
)
def skip_group_norm(call: Call) -> Sequence[Shape | None]:
    """Both shaped like x."""
    return call.shape(0), call.shape(0)


def _stash(call: Call) -> str:
    return "double" if call.attribute("stash_type") == 11 else "float"


_AXIS = {"axis": -1, "epsilon": 1e-5, "stash_type": 1}
_SIMPLIFIED = "X: T, scale: V -> Y: V, inv_std_var: U?"


@contrib(
    "LayerNormalization",
    "X: T, Scale: V, B: V? -> Y: V, Mean: U?, InvStdDev: U?",
    _AXIS,
    domain="",
    unbound={"U": _stash},
    T=FLOATS,
    V=FLOATS,
    U=("float", "double"),
)
@contrib(
    "SimplifiedLayerNormalization",
    _SIMPLIFIED,
    _AXIS,
    domain="",
    unbound={"U": _stash},
    T=FLOATS,
    V=FLOATS,
    U=("float", "double"),
)
@contrib(
    "SimplifiedLayerNormalization", _SIMPLIFIED, _AXIS, unbound={"U": _stash}, T=FLOATS, V=FLOATS, U=("float", "double")
)
def normalization(call: Call) -> Sequence[Shape | None]:
    """Shaped like x; statistics have ones from the axis on."""
    x = call.shape(0)
    if x is None:
        return (None, None, None)
    axis = call.attribute("axis") % len(x)
    statistic = (*x[:axis], *(1,) * (len(x) - axis))
    return x, statistic, statistic


@contrib(
    "EmbedLayerNormalization",
    "input_ids: T1, segment_ids: T1?, word_embedding: T, position_embedding: T, segment_embedding: T?, gamma: T, "
    "beta: T, mask: T1?, position_ids: T1? -> output: T, mask_index: T1?, embedding_sum: T?",
    {"epsilon": 1e-12, "mask_index_type": int},
    T1=("int32",),
    T=("float16", "float"),
)
@contrib(
    "QEmbedLayerNormalization",
    "input_ids: T1, segment_ids: T1?, word_embedding_quant: T2, position_embedding_quant: T2, segment_embedding: T2?, "
    "gamma_quant: T2, beta_quant: T2, mask: T1?, word_embedding_scale: T, position_embedding_scale: T, "
    "segment_embedding_scale: T?, gamma_scale: T, beta_scale: T, word_embedding_zero_point: T2, "
    "position_embedding_zero_point: T2, segment_embedding_zero_point: T2?, gamma_zero_point: T2, beta_zero_point: T2 "
    "-> layernorm_out: T, mask_index_out: T1",
    {"epsilon": 1e-12},
    T1=("int32",),
    T2=BYTES,
    T=("float",),
)
def embedding(call: Call) -> Sequence[Shape | None]:
    """(batch, length, hidden), (batch,), and the first again."""
    batch, length = dims(call.shape(0), 2)
    y = (batch, length, dims(call.shape(2), 2)[1])
    return y, (batch,), y


contrib("Gelu", "X: T -> Y: T", T=FLOATS)(same)
contrib("BiasGelu", "A: T, B: T -> C: T", T=FLOATS)(same)
contrib("FastGelu", "X: T, bias: T? -> Y: T", T=FLOATS)(same)


@contrib(
    "SwiGLU",
    "gate: T, up: T? -> output: T",
    {"activation_alpha": 1.0, "activation_beta": 0.0, "limit": 0.0, "round_activation": 0},
    T=SINGLE,
)
def swiglu(call: Call) -> Sequence[Shape | None]:
    """Shaped like the gate, or half as wide where it holds both halves."""
    gate = call.shape(0)
    return [gate and (gate if call.element(1) is not None else (*gate[:-1], over(gate[-1], 2)))]


contrib("QuickGelu", "X: T -> Y: T", {"alpha": 1.702}, T=FLOATS)(same)
contrib("BiasAdd", "X: T, bias: T, skip: T -> Y: T", T=("float16", "float"))(same)
contrib(
    "BiasSoftmax",
    "data: T, bias: T -> output: T",
    {"axis": 1, "is_inner_broadcast": Required(int)},
    T=("float16", "float", "double"),
)(same)


@contrib("BiasSplitGelu", "X: T, bias: T -> Y: T", T=("float16", "float"))
def split_gelu(call: Call) -> Sequence[Shape | None]:
    """Half as wide."""
    x = call.shape(0)
    return [x and (*x[:-1], over(x[-1], 2))]


@contrib(
    "BiasDropout",
    "data: T, bias: T, residual: T?, ratio: T1?, training_mode: T2? -> output: T, mask: T2?",
    {"seed": int},
    T=FLOATS,
    T1=FLOATS,
    T2=("bool",),
    unbound={"T2": lambda call: "bool"},
)
def dropout(call: Call) -> Sequence[Shape | None]:
    """Shaped like the data, and so is the mask."""
    return call.shape(0), call.shape(0)

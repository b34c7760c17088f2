"""Matrix products."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from onnxplug.contract.types import Dim, Shape
from onnxplug_ep_cpu.schemas.declare import Call, Required, contrib
from onnxplug_ep_cpu.schemas.norm import BYTES, SINGLE
from onnxplug_ep_cpu.schemas.shapes import dims, product, same, swapped, times
from onnxplug_kernels.catalogue import FLOATS

_TRANSPOSED = {"alpha": 1.0, "transA": 0, "transB": 0}
_BATCHED = {**_TRANSPOSED, "transBatchA": 0, "transBatchB": 0}
_ACTIVATION = {"activation_alpha": float, "activation_beta": float, "activation_gamma": float}


@contrib("FusedMatMul", "A: T, B: T -> Y: T", _BATCHED, T=FLOATS)
@contrib("TransposeMatMul", "A: T, B: T -> Y: T", _TRANSPOSED, T=FLOATS)
@contrib(
    "FusedMatMulActivation",
    "A: T, B: T -> Y: T",
    {**_BATCHED, **_ACTIVATION, "activation": Required(str), "activation_axis": int},
    T=FLOATS,
)
def fused_matmul(call: Call) -> Sequence[Shape | None]:
    """A matrix product of operands that may be transposed."""
    return [product(_arranged(call, 0, "A"), _arranged(call, 1, "B"))]


def _arranged(call: Call, index: int, side: str) -> Shape | None:
    shape = call.shape(index)
    if shape is not None and len(shape) > 2 and call.attribute(f"transBatch{side}"):
        shape = (*shape[1:-1], shape[0], shape[-1])
    return swapped(shape, call.attribute(f"trans{side}"))


_ENTRIES = ("float", "double", "int32", "int64", "uint32", "uint64")


@contrib(
    "SparseToDenseMatMul",
    "A: T, B: T1 -> Y: T1",
    _TRANSPOSED,
    T=tuple(f"sparse_tensor({element})" for element in _ENTRIES),
    T1=_ENTRIES,
)
def sparse_to_dense_matmul(call: Call) -> Sequence[Shape | None]:
    """(rows of A, columns of B)."""
    return [_gemm(call, 0, 1)]


@contrib(
    "FusedGemm",
    "A: T, B: T, C: T? -> Y: T",
    {**_TRANSPOSED, **_ACTIVATION, "beta": 1.0, "activation": str},
    T=("float16", "float", "double", "int32", "int64", "uint32", "uint64"),
)
def fused_gemm(call: Call) -> Sequence[Shape | None]:
    """(rows of A, columns of B)."""
    return [_gemm(call, 0, 1)]


@contrib(
    "QGemm",
    "A: TA, a_scale: T, a_zero_point: TA, B: TB, b_scale: T, b_zero_point: TB, C: TC?, y_scale: T?, "
    "y_zero_point: TYZ? -> Y: TY",
    _TRANSPOSED,
    T=("float",),
    TA=BYTES,
    TB=BYTES,
    TC=("int32",),
    TYZ=BYTES,
    TY=("float", *BYTES),
    unbound={"TY": lambda call: call.element(8) or "float"},
)
def quantized_gemm(call: Call) -> Sequence[Shape | None]:
    """(rows of A, columns of B)."""
    return [_gemm(call, 0, 3)]


def _gemm(call: Call, a: int, b: int) -> Shape | None:
    rows = dims(swapped(call.shape(a), call.attribute("transA")), 2)[0]
    return rows, dims(swapped(call.shape(b), call.attribute("transB")), 2)[1]


@contrib(
    "MatMulIntegerToFloat",
    "A: T1, B: T2, a_scale: T3, b_scale: T3, a_zero_point: T1?, b_zero_point: T2?, bias: T3? -> Y: T3",
    T1=BYTES,
    T2=BYTES,
    T3=("float16", "float"),
)
@contrib(
    "DynamicQuantizeMatMul",
    "A: T1, B: T2, b_scale: T1, b_zero_point: T2?, bias: T1? -> Y: T1",
    T1=("float",),
    T2=BYTES,
)
@contrib(
    "MatMulInteger16",
    "A: T1, B: T2 -> Y: T3",
    T1=("int16", "uint16"),
    T2=("int16", "uint16"),
    T3=("int32", "uint32"),
    unbound={"T3": lambda call: "int32"},
)
def plain_matmul(call: Call) -> Sequence[Shape | None]:
    """A matrix product."""
    return [product(call.shape(0), call.shape(1))]


_NBITS: dict[str, Any] = {
    "K": Required(int),
    "N": Required(int),
    "accuracy_level": 0,
    "bits": 4,
    "block_size": Required(int),
    "weight_prepacked": 0,
}


@contrib(
    "MatMulNBits",
    "A: T1, B: T2, scales: T1, zero_points: T3?, g_idx: T4?, bias: T1? -> Y: T1",
    _NBITS,
    T1=SINGLE,
    T2=("uint8",),
    T3=(*SINGLE, "uint8"),
    T4=("int32",),
)
def matmul_nbits(call: Call) -> Sequence[Shape | None]:
    """(..., N)."""
    a = call.shape(0)
    return [a and (*a[:-1], call.attribute("N"))]


@contrib(
    "MatMulFpQ4",
    "A: T1, B: T2, B_shape: T3 -> Y: T1",
    {"blk_quant_type": 1},
    T1=("float",),
    T2=("uint8",),
    T3=("int64",),
)
def matmul_fp_q4(call: Call) -> Sequence[Shape | None]:
    """(..., N), N being the second number of B_shape."""
    a, wanted = call.shape(0), call.ints(2)
    return [a and (*a[:-1], wanted[1] if wanted else None)]


@contrib(
    "MatMulBnb4",
    "A: T1, B: T2, absmax: T1 -> Y: T1",
    {
        "K": Required(int),
        "N": Required(int),
        "block_size": Required(int),
        "quant_type": Required(int),
        "training_mode": 0,
        "transB": 1,
    },
    T1=SINGLE,
    T2=("uint8",),
)
def matmul_bnb4(call: Call) -> Sequence[Shape | None]:
    """(..., N), or (..., K) for weights that are not transposed."""
    a = call.shape(0)
    return [a and (*a[:-1], call.attribute("N" if call.attribute("transB") else "K"))]


@contrib("GemmFastGelu", "X: T, W: T, bias: T? -> Y: T", T=SINGLE)
def product_gelu(call: Call) -> Sequence[Shape | None]:
    """A matrix product."""
    return [product(call.shape(0), call.shape(1))]


_EXPERTS: dict[str, Any] = {
    "activation_alpha": 1.0,
    "activation_beta": 0.0,
    "activation_type": "relu",
    "k": 1,
    "normalize_routing_weights": 0,
    "swiglu_fusion": 0,
    "swiglu_limit": float,
    "swiglu_limit_after_activation": 0,
    "use_sparse_mixer": 0,
}

contrib(
    "MoE",
    "input: T, router_probs: T, fc1_experts_weights: T, fc1_experts_bias: T?, fc2_experts_weights: T, "
    "fc2_experts_bias: T?, fc3_experts_weights: T?, fc3_experts_bias: T? -> output: T",
    _EXPERTS,
    T=SINGLE,
)(same)
contrib(
    "QMoE",
    "input: T, router_probs: T, fc1_experts_weights: T1, fc1_scales: T2?, fc1_experts_bias: T?, "
    "fc2_experts_weights: T1, fc2_scales: T2?, fc2_experts_bias: T?, fc3_experts_weights: T1?, fc3_scales: T2?, "
    "fc3_experts_bias: T?, fc1_zero_points: T1?, fc2_zero_points: T1?, fc3_zero_points: T1?, router_weights: T?, "
    "fc1_global_scale: T4?, fc2_global_scale: T4?, fc1_act_scale: T4?, fc2_act_scale: T4?, fc1_act_block_scale: T2?, "
    "fc2_act_block_scale: T2? -> output: T",
    {
        **_EXPERTS,
        "accuracy_level": 0,
        "block_size": int,
        "expert_weight_bits": 4,
        **{f"fc{n}_expert_weight_bits": int for n in (1, 2, 3)},
        "quant_type": "int",
        "weights_prepacked": -1,
    },
    T=SINGLE,
    T1=("uint8", "float8e4m3fn"),
    T2=(*SINGLE, "float8e4m3fn", "float8e8m0"),
    T4=("float",),
)(same)


@contrib(
    "MoEGroupRouter",
    "logits: T, expert_bias: TF, projection_weight: T? -> router_probs: T?, selection_scores: TF?, router_weights: TF?",
    {"group_topk": 2, "n_group": 1, "router_sentinel": -10000.0, "top_k": Required(int), "topk_group": 1},
    T=SINGLE,
    TF=("float",),
)
def group_router(call: Call) -> Sequence[Shape | None]:
    """(tokens, experts), thrice."""
    logits, (experts,) = call.shape(0), dims(call.shape(1), 1)
    one: Dim = 1
    tokens = None if logits is None else functools.reduce(times, logits[:-1], one)
    return [(tokens, experts)] * 3


@contrib("CDist", "A: T, B: T -> C: T", {"metric": "sqeuclidean"}, T=("float", "double"))
def distances(call: Call) -> Sequence[Shape | None]:
    """(rows of A, rows of B)."""
    return [(dims(call.shape(0), 2)[0], dims(call.shape(1), 2)[0])]

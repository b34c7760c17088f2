"""Mixtures of experts of domain ``com.microsoft``: each row goes through the networks that its router scores choose."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from onnxplug_kernels.activations import sigmoid
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.contrib_activation import fast_gelu
from onnxplug_kernels.ops.contrib_matmul import nbits_weights, unpacked
from onnxplug_kernels.precision import narrow, widen
from onnxplug_kernels.refusals import INVALID_ARGUMENT, Refusal

MS = "com.microsoft"
JITTER = 0.01
"""How far below the best score, as a share of it, the sparse mixer still counts another."""

_ACTIVATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "relu": lambda xp, x: xp.maximum(x, xp.zeros_like(x)),
    "gelu": fast_gelu,
    "silu": lambda xp, x: x * sigmoid(xp, x),
    "identity": lambda xp, x: x,
}
Layer = Callable[[Any, int], Any]
"""Rows and the number of an expert -> what a layer of that expert makes of them."""


@op("MoE", 1, domain=MS)
def moe(
    xp: Any,
    x: Any,
    router_probs: Any,
    fc1: Any,
    fc1_bias: Any,
    fc2: Any,
    fc2_bias: Any = None,
    fc3: Any = None,
    fc3_bias: Any = None,
    **attributes: Any,
) -> Any:
    """x (..., hidden) through the best experts by ``router_probs`` (rows, experts), which are logits. Layers are (experts, out, in), or
    (experts, in, out) where only that fits, as the operator once had it."""
    layers = [_dense(xp, *each) for each in ((fc1, fc1_bias), (fc2, fc2_bias), (fc3, fc3_bias))]
    return _mixed(xp, x, router_probs, None, layers, **attributes)


@op("QMoE", 1, domain=MS, T1=("uint8",), T2=("float", "float16", "bfloat16"), T4=())
def qmoe(
    xp: Any,
    x: Any,
    router_probs: Any,
    fc1: Any,
    fc1_scales: Any,
    fc1_bias: Any,
    fc2: Any,
    fc2_scales: Any,
    fc2_bias: Any = None,
    fc3: Any = None,
    fc3_scales: Any = None,
    fc3_bias: Any = None,
    fc1_zero_points: Any = None,
    fc2_zero_points: Any = None,
    fc3_zero_points: Any = None,
    router_weights: Any = None,
    *further: Any,
    expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int = 0,
    fc2_expert_weight_bits: int = 0,
    fc3_expert_weight_bits: int = 0,
    block_size: int = 0,
    quant_type: str = "int",
    weights_prepacked: int = -1,
    accuracy_level: int = 0,
    **attributes: Any,
) -> Any:
    """MoE with weights of 2, 4 or 8 bits, packed lowest bits first along the last axis, with a scale for each output or each block of
    inputs. ``router_weights`` are what the experts chosen count (nothing where those to be normalized add up to 0); otherwise it is
    the softmax of their scores among the chosen, whatever ``normalize_routing_weights`` says, as in onnxruntime on CPUs.
    ``accuracy_level`` may be exceeded, and is.
    """
    if quant_type != "int" or weights_prepacked > 0 or any(v is not None for v in further):
        raise ValueError(
            f"quant_type is {quant_type!r}, weights_prepacked {weights_prepacked}; only packed integers are portable"
        )
    parts = [
        (fc1, fc1_scales, fc1_zero_points, fc1_bias, fc1_expert_weight_bits),
        (fc2, fc2_scales, fc2_zero_points, fc2_bias, fc2_expert_weight_bits),
        (fc3, fc3_scales, fc3_zero_points, fc3_bias, fc3_expert_weight_bits),
    ]
    layers = [
        _packed(xp, w, scales, zeros, bias, bits or expert_weight_bits, block_size)
        for w, scales, zeros, bias, bits in parts
    ]
    if router_weights is None:
        attributes["normalize_routing_weights"] = 1
    return _mixed(xp, x, router_probs, router_weights, layers, **attributes)


def _dense(xp: Any, weights: Any, bias: Any) -> Layer | None:
    if weights is None:
        return None

    def layer(x: Any, expert: int) -> Any:
        w = widen(xp, weights[expert, ...])
        if w.shape[-1] == x.shape[-1]:
            w = xp.matrix_transpose(w)
        return _biased(xp, xp.matmul(x, w), bias, expert)

    return layer


def _packed(xp: Any, weights: Any, scales: Any, zeros: Any, bias: Any, bits: int, block_size: int) -> Layer | None:
    if weights is None:
        return None
    if scales.ndim == 2:  # one for each output, whatever the blocks
        block_size = 0

    def layer(x: Any, expert: int) -> Any:
        depth, columns = x.shape[-1], weights.shape[1]
        zero = None if zeros is None else zeros[expert, ...]
        if zero is not None and block_size == 0:  # one for each output, packed along the outputs
            zero = widen(xp, xp.astype(unpacked(xp, zero, bits)[:columns], xp.float32))
        w = nbits_weights(
            xp, weights[expert, ...], scales[expert, ...], zero, columns=columns, depth=depth, block_size=block_size or depth, bits=bits
        )  # fmt: skip
        return _biased(xp, xp.matmul(x, xp.matrix_transpose(w)), bias, expert)

    return layer


def _biased(xp: Any, y: Any, bias: Any, expert: int) -> Any:
    return y if bias is None else y + widen(xp, bias[expert, ...])


def _mixed(
    xp: Any,
    x: Any,
    router_probs: Any,
    router_weights: Any,
    layers: Any,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float = math.inf,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0,
) -> Any:
    if swiglu_limit_after_activation not in (0, 1) or (swiglu_limit_after_activation and activation_type != "swiglu"):
        raise ValueError(
            f"swiglu_limit_after_activation is {swiglu_limit_after_activation} for activation_type {activation_type!r}; it must "
            "be 0, or 1 for swiglu"
        )
    if use_sparse_mixer and k != 2:
        raise ValueError(f"k is {k}; the sparse mixer chooses two experts")
    first, second, third = layers
    if x.ndim not in (2, 3):
        raise Refusal(f"Input 'input' is expected to have 2 or 3 dimensions, got {x.ndim}", INVALID_ARGUMENT)
    rows = xp.reshape(widen(xp, x), (-1, x.shape[-1]))
    chosen, shares = _chosen(xp, router_probs, router_weights, k, use_sparse_mixer, normalize_routing_weights)

    def activated(y: Any, gate: Any) -> Any:
        if activation_type == "swiglu":
            scales, limit = (activation_alpha, activation_beta), (swiglu_limit, bool(swiglu_limit_after_activation))
            return _swiglu(xp, *_halves(y, gate, swiglu_fusion == 1), *scales, *limit)
        if activation_type not in _ACTIVATIONS:
            raise ValueError(
                f"activation_type is {activation_type!r}; it must be swiglu or one of {', '.join(_ACTIVATIONS)}"
            )
        y = _ACTIVATIONS[activation_type](xp, y)
        return y if gate is None else y * gate

    # Pairs of a row and an expert, those of an expert beside each other.
    expert = xp.reshape(chosen, (-1,))
    order = xp.argsort(expert, stable=True)
    taken, parts, start = xp.take(rows, order // k, axis=0), [], 0
    for number in range(router_probs.shape[1]):
        stop = start + int(xp.sum(xp.astype(expert == number, xp.int64)))
        if stop > start:
            given = taken[start:stop, :]
            gate = None if third is None else third(given, number)
            parts.append(second(activated(first(given, number), gate), number))
        start = stop
    if not parts:
        return xp.zeros(x.shape, dtype=x.dtype)
    back = xp.argsort(order, stable=True)
    y = xp.reshape(xp.take(xp.concat(parts, axis=0), back, axis=0), (rows.shape[0], k, -1))
    return narrow(xp, xp.reshape(xp.sum(y * shares[..., None], axis=1), x.shape), x.dtype)


def _chosen(
    xp: Any, router_probs: Any, router_weights: Any, k: int, use_sparse_mixer: int, normalize: int
) -> tuple[Any, Any]:
    """Numbers of the experts of each row, and what each expert's result counts, both (rows, k)."""
    scores = widen(xp, router_probs)
    chosen, shares = _sparse(xp, scores, k) if use_sparse_mixer else _best(xp, scores, k)
    if router_weights is not None:
        shares = xp.take_along_axis(widen(xp, router_weights), chosen, axis=1)
    if normalize and not use_sparse_mixer:
        total = xp.sum(shares, axis=1, keepdims=True)
        shares = xp.where(total == 0, xp.zeros_like(shares), shares / xp.where(total == 0, xp.ones_like(total), total))
    return chosen, shares


def _halves(y: Any, gate: Any, interleaved: bool) -> tuple[Any, Any]:
    """What goes through the sigmoid and what it is multiplied by: two layers' results, or the columns of one's."""
    if gate is not None:
        return y, gate
    half = y.shape[-1] // 2
    return (y[:, ::2], y[:, 1::2]) if interleaved else (y[:, :half], y[:, half:])


def _swiglu(xp: Any, y: Any, gate: Any, alpha: float, beta: float, limit: float, limit_after: bool) -> Any:
    """SwiGLU; a finite ``limit`` bounds the gate on both sides, and ``y`` from above before or after its activation."""
    limited = math.isfinite(limit)
    if limited:
        gate = xp.clip(gate, -limit, limit)
    if limited and not limit_after:
        y = xp.clip(y, None, limit)
    y = y * sigmoid(xp, alpha * y)
    if limited and limit_after:
        y = xp.clip(y, None, limit)
    return y * (gate + beta)


def _best(xp: Any, scores: Any, k: int) -> tuple[Any, Any]:
    """The experts of the ``k`` highest scores of each row, the last of equal ones as in onnxruntime, and their softmax among all."""
    chosen = xp.flip(xp.argsort(scores, axis=1, stable=True), axis=1)[:, :k]
    exponentials = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
    shares = exponentials / xp.sum(exponentials, axis=1, keepdims=True)
    return chosen, xp.take_along_axis(shares, chosen, axis=1)


def _sparse(xp: Any, scores: Any, k: int) -> tuple[Any, Any]:
    """One expert after the other (SparseMixer, Liu et al., 2023): the best of what is left, and its softmax among those near it."""
    left, chosen, shares = scores, [], []
    for _ in range(k):
        best = xp.max(left, axis=1, keepdims=True)
        near = (best - scores) / xp.maximum(xp.abs(scores), best) <= 2 * JITTER
        exponentials = xp.where(near, xp.exp(left - best), xp.zeros_like(left))
        index = xp.argmax(left, axis=1, keepdims=True)
        chosen.append(index)
        shares.append(1 / xp.sum(exponentials, axis=1, keepdims=True))
        left = xp.where(xp.arange(scores.shape[1])[None, :] == index, -xp.inf, left)
    return xp.concat(chosen, axis=1), xp.concat(shares, axis=1)

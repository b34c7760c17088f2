"""cuDNN's graph of an attention: without a mask, with the causal one, or with one of finite numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cudnn

from onnxplug_kernel_text.layout import dense
from onnxplug_kernel_text.nodes.attention import Problem

Q, K, V, Y, BIAS = range(1, 6)
"""Identifiers of the tensors: keys of what a plan is executed with."""

_STEP = 8
"""What the elements of a key and of a value must be a multiple of."""
Four = tuple[int, int, int, int]
_TYPES = {
    "float16": cudnn.data_type.HALF,
    "bfloat16": cudnn.data_type.BFLOAT16,
    "float32": cudnn.data_type.FLOAT,
}
_NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}


@dataclass(frozen=True)
class Tensor:
    """Sizes and strides in the order (batch, heads, rows, columns)."""

    shape: Four
    strides: Four


@dataclass(frozen=True)
class Attention:
    """softmax(scale Q K' + bias) V; the bias is of float32. ``causal``: the last query sees every key, each one before it one key less."""

    dtype: str
    q: Tensor
    k: Tensor
    v: Tensor
    y: Tensor
    scale: float
    causal: bool
    bias: Tensor | None = None

    @classmethod
    def of(cls, problem: Problem) -> Attention | None:
        """An attention as cuDNN takes it; None for what is left to the generated kernel: windows, caps, and masks that may hide every key,
        for what cuDNN gives then is not documented."""
        batch, heads, kv_heads, queries, keys, size, value_size = problem.shape
        plain = problem.lengths is None and not problem.cap and problem.left < 0
        causal = problem.right == 0 and problem.offset == keys - queries
        if problem.type not in _NAMES or not plain or (problem.right >= 0 and not causal):
            return None
        bias, mask = None, problem.mask
        if mask is not None:
            if (
                not problem.finite
                or causal
                or problem.mask_type != "f32"
                or problem.mask_keys != keys
                or mask.strides[3] != 1
            ):
                return None
            sizes = (n if stride else 1 for n, stride in zip((batch, heads, queries), mask.strides, strict=False))
            bias = Tensor((*sizes, keys), mask.strides)  # type: ignore[arg-type]
        if size % _STEP or value_size % _STEP or problem.k.strides[3] != 1:
            return None
        return cls(
            _NAMES[problem.type],
            Tensor((batch, heads, queries, size), problem.q.strides),
            Tensor((batch, kv_heads, keys, size), problem.k.strides),
            Tensor((batch, kv_heads, keys, value_size), problem.v.strides),
            Tensor((batch, heads, queries, value_size), problem.y.strides),
            problem.scale,
            causal,
            bias,
        )

    def graph(self, **place: Any) -> Any:
        """The graph; ``place`` as of a convolution's."""
        made = cudnn.pygraph(
            io_data_type=_TYPES[self.dtype],
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            **place,
        )
        operands = {}
        for name, uid, tensor in (("q", Q, self.q), ("k", K, self.k), ("v", V, self.v)):
            operands[name] = made.tensor(name=name, dim=list(tensor.shape), stride=list(tensor.strides))
            operands[name].set_uid(uid)
        if self.bias is not None:
            operands["bias"] = made.tensor(
                name="bias", dim=list(self.bias.shape), stride=_broadcast(self.bias), data_type=cudnn.data_type.FLOAT
            )
            operands["bias"].set_uid(BIAS)
        band: dict[str, Any] = {}
        if self.causal:
            band = {
                "diagonal_alignment": cudnn.diagonal_alignment.BOTTOM_RIGHT,
                "diagonal_band_right_bound": 0,
            }
        y, _ = made.sdpa(name="sdpa", **operands, generate_stats=False, attn_scale=self.scale, **band)
        y.set_output(True).set_dim(list(self.y.shape)).set_stride(list(self.y.strides))
        y.set_uid(Y)
        return made

    def sizes(self) -> dict[int, int]:
        """Elements of each tensor by identifier."""
        tensors = ((Q, self.q), (K, self.k), (V, self.v), (Y, self.y), (BIAS, self.bias))
        return {uid: _span(t) for uid, t in tensors if t is not None}


def _broadcast(tensor: Tensor) -> list[int]:
    """Strides in which dimensions of one entry have that of a dense tensor: cuDNN takes no zeros."""
    return [s or d for s, d in zip(tensor.strides, dense(tensor.shape), strict=True)]


def _span(tensor: Tensor) -> int:
    """Elements from the first of a tensor to its last."""
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True))

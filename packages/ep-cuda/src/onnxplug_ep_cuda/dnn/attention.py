"""cuDNN's graph of an attention: queries, keys and values of 16 bits on tensor cores, without a mask but the causal one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cudnn

from onnxplug_ep_cuda.codegen.attention import Problem

Q, K, V, Y = range(1, 5)
"""Identifiers of the tensors: keys of what a plan is executed with."""

_STEP = 8
"""What the elements of a key and of a value must be a multiple of."""
Four = tuple[int, int, int, int]
_TYPES = {"f16": cudnn.data_type.HALF, "bf16": cudnn.data_type.BFLOAT16}


@dataclass(frozen=True)
class Tensor:
    """Sizes and strides in the order (batch, heads, rows, columns)."""

    shape: Four
    strides: Four


@dataclass(frozen=True)
class Attention:
    """softmax(scale Q K') V; ``causal``: the last query sees every key, each one before it one key less."""

    dtype: str
    q: Tensor
    k: Tensor
    v: Tensor
    y: Tensor
    scale: float
    causal: bool

    @classmethod
    def of(cls, problem: Problem) -> Attention | None:
        """An attention as cuDNN takes it; None for what is left to the generated kernel: float32, masks, windows, caps."""
        batch, heads, kv_heads, queries, keys, size, value_size = problem.shape
        plain = problem.mask is None and problem.lengths is None and not problem.cap and problem.left < 0
        causal = problem.right == 0 and problem.offset == keys - queries
        if problem.type not in _TYPES or not plain or (problem.right >= 0 and not causal):
            return None
        if size % _STEP or value_size % _STEP or problem.k.strides[3] != 1:
            return None
        return cls(
            problem.type,
            Tensor((batch, heads, queries, size), problem.q.strides),
            Tensor((batch, kv_heads, keys, size), problem.k.strides),
            Tensor((batch, kv_heads, keys, value_size), problem.v.strides),
            Tensor((batch, heads, queries, value_size), problem.y.strides),
            problem.scale,
            causal,
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
        return {uid: _span(t) for uid, t in ((Q, self.q), (K, self.k), (V, self.v), (Y, self.y))}


def _span(tensor: Tensor) -> int:
    """Elements from the first of a tensor to its last."""
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True))

"""Operators that move elements: each output is filled from views of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnxplug.contract import Into


def forms() -> Mapping[tuple[str, str], Callable[..., Into | None]]:
    """The writing forms of these operators."""
    return {("", "Concat"): concat, ("", "Expand"): expand, ("", "Split"): split, ("", "Transpose"): transpose}


def transpose(inputs: Any, outputs: Any, *, perm: Sequence[int] | None = None) -> Into:
    """``xp.permute_dims`` into the output."""
    order = tuple(perm) if perm is not None else tuple(range(len(inputs[0].shape)))[::-1]

    def call(x: Any, y: Any) -> None:
        y[...] = x.transpose(order)

    return Into(call)


def concat(inputs: Any, outputs: Any, *, axis: int = 1) -> Into | None:
    """Each input into its part of the output."""
    if any(spec is None for spec in inputs):
        return None
    spans = parts([spec.shape[axis] for spec in inputs], axis, len(outputs[0].shape))

    def call(*operands: Any) -> None:
        y = operands[-1]
        for x, span in zip(operands, spans, strict=False):
            y[span] = x

    return Into(call)


def split(inputs: Any, outputs: Any, *, axis: int = 0, **_: Any) -> Into | None:
    """Each output from its part of the input; the plan knows their sizes."""
    if any(spec is None for spec in outputs):
        return None
    spans = parts([spec.shape[axis] for spec in outputs], axis, len(inputs[0].shape))
    count = len(inputs)

    def call(*operands: Any) -> None:
        for y, span in zip(operands[count:], spans, strict=True):
            y[...] = operands[0][span]

    return Into(call)


def expand(inputs: Any, outputs: Any) -> Into | None:
    """The input broadcast to the output's shape, which inference may tell even of a shape, known to a run alone, that does not fit."""
    if inputs[1].constant is None:
        return None

    def call(x: Any, shape: Any, y: Any) -> None:
        y[...] = x

    return Into(call)


def parts(sizes: Sequence[int], axis: int, rank: int) -> list[tuple[slice, ...]]:
    """Where blocks of these sizes lie, one behind the other, along ``axis``."""
    before = (slice(None),) * (axis % rank)
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return [(*before, slice(start, start + size)) for start, size in zip(starts, sizes, strict=True)]

"""A chain and the shapes of its inputs, as kernels: one for each stage.

Nothing here needs CUDA: a ``Program`` is text, names of tensors, numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnxplug.contract import NodeView, TensorSpec
from onnxplug_kernel_text.elementwise import Operand, elementwise
from onnxplug_kernel_text.layout import broadcast, dense, space
from onnxplug_kernel_text.nodes.chains import Stage, output_shapes, scratch, stages, text
from onnxplug_kernel_text.types import APART

ALIGNMENT = 256
LONGEST = 48
"""Nodes of one kernel: more would not keep their values in registers."""
_BLOCK = 256
_ROWS = 32
"""From this extent of the last dimension on, threads of a block walk along it: no division for each element."""
_GRID_Y = 65536
_I32 = 2**31 - 4096


@dataclass(frozen=True)
class KernelCall:
    """One launch: a function of the program's text, the tensors it takes by name, its further arguments, its extent in blocks and
    threads."""

    name: str
    tensors: tuple[str, ...]
    scalars: tuple[np.integer, ...]
    grid: tuple[int, int]
    block: int


@dataclass(frozen=True)
class Program:
    """Kernels in the order they run; ``places`` are the offsets in scratch memory of what stays inside."""

    text: str
    calls: tuple[KernelCall, ...]
    shapes: Mapping[str, tuple[int, ...]]
    places: Mapping[str, int]
    workspace: int


def lower(
    nodes: Sequence[NodeView],
    specs: Mapping[str, TensorSpec],
    constants: Mapping[str, np.ndarray],
    outputs: Sequence[str],
) -> Program:
    """The program of a chain. ``specs`` has the chain's inputs, ``constants`` the initializers it reads."""
    shapes = output_shapes(
        nodes, {name: spec.shape for name, spec in specs.items()} | {n: a.shape for n, a in constants.items()}
    )
    staged = stages(nodes, shapes, outputs, LONGEST)
    literals = {name: array.reshape(-1)[0].item() for name, array in constants.items() if array.size == 1}
    found = [
        _kernel(f"chain{number}", stage, shapes, literals)
        for number, stage in enumerate(staged)
        if 0 not in stage.shape
    ]
    inner = [{name: type_ for name, type_ in stage.leaves.items() if name not in outputs} for stage in staged]
    places, workspace = scratch(staged, shapes, inner, ALIGNMENT)
    # Each node rounds by itself, as it would alone: a difference of equal products is zero, and its root a number.
    return Program(
        APART + "\n".join(text for text, _ in found), tuple(call for _, call in found), shapes, places, workspace
    )


def _kernel(
    name: str, stage: Stage, shapes: Mapping[str, tuple[int, ...]], literals: Mapping[str, float]
) -> tuple[str, KernelCall]:
    """The text of a stage and its launch."""
    written = text(stage, literals)
    types = [*written.read.values(), *stage.leaves.values()]
    stores = [f"y{n} = {written.results[made]};" for n, made in enumerate(stage.leaves)]
    walks = [broadcast(shapes[tensor], stage.shape) for tensor in written.read] + [dense(stage.shape)] * len(stores)
    walked = space(stage.shape, walks)
    index = "i32" if walked.points < _I32 else "i64"
    rows = len(walked.shape) > 1 and walked.shape[-1] >= _ROWS and walked.points // walked.shape[-1] < _GRID_Y
    operands = [Operand(type_, pattern) for type_, pattern in zip(types, walked.patterns, strict=True)]
    first, body = len(written.read), " ".join([*written.lines, *stores])
    source = elementwise(name, operands[:first], operands[first:], body, index=index, rows=rows)
    number_type = np.int32 if index == "i32" else np.int64
    scalars = tuple(number_type(scalar) for scalar in walked.scalars)
    wide = walked.shape[-1] if rows else walked.points
    block = min(_BLOCK, -(-wide // _ROWS) * _ROWS)
    grid = (-(-wide // block), walked.points // walked.shape[-1] if rows else 1)
    return source, KernelCall(name, (*written.read, *stage.leaves), scalars, grid, block)

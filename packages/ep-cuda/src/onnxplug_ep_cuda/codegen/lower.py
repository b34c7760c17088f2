"""A chain and the shapes of its inputs, as kernels: nodes of one output shape are one kernel, which reads and writes each tensor once.

Nothing here needs CUDA: a ``Program`` is text, names of tensors, numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnxplug.contract import NodeView, Storage, TensorSpec, assign_offsets
from onnxplug_ep_cuda.codegen.chains import element
from onnxplug_kernel_text.elementwise import Operand, elementwise
from onnxplug_kernel_text.expression import statements
from onnxplug_kernel_text.layout import broadcast, dense, space
from onnxplug_kernel_text.types import OF_ELEMENT, literal

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


@dataclass
class _Stage:
    """Nodes of one output shape that become one kernel."""

    shape: tuple[int, ...]
    nodes: list[NodeView] = field(default_factory=list)


def output_shapes(nodes: Sequence[NodeView], given: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Shapes of all values of a chain for those of its inputs and constants. ValueError where they do not fit."""
    shapes = dict(given)
    for node in nodes:
        names = [value.name for value in node.inputs if value is not None]
        if node.op_type == "CastLike":
            names = names[:1]
        elif node.op_type == "PRelu":  # the slope is broadcast to the input, never the other way round
            np.broadcast_shapes(*(shapes[name] for name in names))
            names = names[:1]
        output = node.outputs[0]
        assert output is not None
        shapes[output.name] = np.broadcast_shapes(*(shapes[name] for name in names))
    return shapes


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
    stages, of_node = _stages(nodes, shapes)
    leaves = _leaving(nodes, of_node, outputs)
    texts, calls, storages = [], [], dict[str, Storage]()
    for number, stage in enumerate(stages):
        text, call = _kernel(f"chain{number}", stage, shapes, constants, leaves)
        if call is None:
            continue
        texts.append(text)
        calls.append(call)
        for name in call.tensors:
            if name in storages:
                storages[name].last = number
            elif name in leaves and name not in outputs:
                nbytes = math.prod(shapes[name]) * leaves[name].itemsize
                storages[name] = Storage(nbytes, number, number)
    workspace = assign_offsets(list(storages.values()), ALIGNMENT)
    places = {name: storage.offset for name, storage in storages.items()}
    return Program("\n".join(texts), tuple(calls), shapes, places, workspace)


def _stages(nodes: Sequence[NodeView], shapes: Mapping[str, tuple[int, ...]]) -> tuple[list[_Stage], dict[str, int]]:
    """Nodes sorted into stages such that what a node reads is made in its own stage or an earlier one; values by stage."""
    stages: list[_Stage] = []
    made: dict[str, int] = {}
    for node in nodes:
        output = node.outputs[0]
        assert output is not None
        shape = shapes[output.name]
        earliest = max((made.get(value.name, 0) for value in node.inputs if value is not None), default=0)
        home = next(
            (n for n in range(earliest, len(stages)) if stages[n].shape == shape and len(stages[n].nodes) < LONGEST),
            None,
        )
        if home is None:
            home = len(stages)
            stages.append(_Stage(shape))
        stages[home].nodes.append(node)
        made[output.name] = home
    return stages, made


def _leaving(nodes: Sequence[NodeView], stage_of: Mapping[str, int], outputs: Sequence[str]) -> dict[str, np.dtype]:
    """Values that a kernel must write, with their dtypes: the chain's outputs, and what a later stage reads."""
    leaves = {}
    for node in nodes:
        for value in (*node.inputs, *node.outputs):
            if value is None or value.name not in stage_of or value.dtype is None:
                continue
            later = value.name in (v.name for v in node.inputs if v is not None) and (
                stage_of[node.outputs[0].name] != stage_of[value.name]  # type: ignore[union-attr]
            )
            if later or value.name in outputs:
                leaves[value.name] = value.dtype
    return leaves


def _kernel(
    name: str,
    stage: _Stage,
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, np.ndarray],
    leaves: Mapping[str, np.dtype],
) -> tuple[str, KernelCall | None]:
    """The text of a stage and its launch; no launch where there is nothing to compute."""
    if 0 in stage.shape:
        return "", None
    known: dict[str, str] = {}  # value -> variable or literal
    read: dict[str, str] = {}  # tensor -> type
    lines: list[str] = []
    written: dict[str, str] = {}
    for number, node in enumerate(stage.nodes):
        values, types = [], []
        given = node.inputs[:1] if node.op_type == "CastLike" else node.inputs
        for value in given:
            assert value is not None
            type_ = OF_ELEMENT[str(element(value))]
            if value.name not in known:
                constant = constants.get(value.name)
                if constant is not None and constant.size == 1:
                    known[value.name] = literal(constant.reshape(-1)[0].item(), type_)
                else:
                    known[value.name] = f"x{len(read)}"
                    read[value.name] = type_
            values.append(known[value.name])
            types.append(type_)
        output = node.outputs[0]
        assert output is not None
        result = OF_ELEMENT[str(element(output))]
        lines += statements(f"t{number}", node.op_type, values, types, result, node.attributes)
        known[output.name] = f"t{number}"
        if output.name in leaves:
            lines.append(f"y{len(written)} = t{number};")
            written[output.name] = result
    walks = [broadcast(shapes[tensor], stage.shape) for tensor in read] + [dense(stage.shape)] * len(written)
    walked = space(stage.shape, walks)
    index = "i32" if walked.points < _I32 else "i64"
    rows = len(walked.shape) > 1 and walked.shape[-1] >= _ROWS and walked.points // walked.shape[-1] < _GRID_Y
    operands = [
        Operand(type_, pattern)
        for type_, pattern in zip([*read.values(), *written.values()], walked.patterns, strict=True)
    ]
    text = elementwise(name, operands[: len(read)], operands[len(read) :], " ".join(lines), index=index, rows=rows)
    number_type = np.int32 if index == "i32" else np.int64
    scalars = tuple(number_type(scalar) for scalar in walked.scalars)
    wide = walked.shape[-1] if rows else walked.points
    block = min(_BLOCK, -(-wide // _ROWS) * _ROWS)
    grid = (-(-wide // block), walked.points // walked.shape[-1] if rows else 1)
    return text, KernelCall(name, (*read, *written), scalars, grid, block)

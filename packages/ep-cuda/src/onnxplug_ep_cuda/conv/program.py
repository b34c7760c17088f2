"""A region of convolutions and the shapes of its values, as steps over channels-last tensors. Nothing here needs CUDA.

Tensors of the region's edge come and go as (N, C, *spatial); between, all lie in the scratch memory of the run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnxplug.contract import NodeView, Storage, TensorSpec, assign_offsets
from onnxplug_ep_cuda.codegen.launch import integers, text_type
from onnxplug_ep_cuda.codegen.lower import ALIGNMENT, KernelCall, lower
from onnxplug_ep_cuda.conv.groups import CONVOLUTIONS, POOLS
from onnxplug_ep_cuda.conv.problem import Clip, Convolution, nhwc
from onnxplug_kernel_text.elementwise import Operand, elementwise
from onnxplug_kernel_text.layout import dense, space
from onnxplug_kernel_text.pool import pooling
from onnxplug_kernel_text.types import raw
from onnxplug_kernels.windows import windows

_BLOCK = 256
EDGE = "edge of "
"""Before the name of a value: the tensor as it is outside of the region."""
INNER = "inside "
"""Before a name that a step has for itself."""


@dataclass(frozen=True)
class Kernels:
    """Generated kernels with one text."""

    text: str
    calls: tuple[KernelCall, ...]


@dataclass(frozen=True)
class Convolve:
    """One convolution, with its operands by name."""

    problem: Convolution
    x: str
    w: str
    bias: str | None
    residual: str | None
    y: str

    @property
    def tensors(self) -> tuple[str, ...]:
        return tuple(n for n in (self.x, self.w, self.bias, self.residual, self.y) if n is not None)


Step = Kernels | Convolve


@dataclass(frozen=True)
class Program:
    """Steps in order; ``places``: offsets of tensors in scratch memory."""

    steps: tuple[Step, ...]
    places: Mapping[str, int]
    workspace: int


def program(
    nodes: Sequence[NodeView],
    specs: Mapping[str, TensorSpec],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> Program:
    """The program of a region. ``specs`` has every value of it that is no constant."""
    if any(0 in specs[name].shape for name in outputs):  # an empty batch: nothing is computed anywhere
        return Program((), {}, 0)
    return _Lowering(nodes, specs, inputs, outputs).program()


class _Lowering:
    def __init__(
        self, nodes: Sequence[NodeView], specs: Mapping[str, TensorSpec], inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        self._nodes, self._specs, self._inputs, self._outputs = nodes, specs, inputs, outputs
        self._readers: dict[str, list[NodeView]] = {}
        for node in nodes:
            for name in {v.name for v in node.inputs if v is not None}:
                self._readers.setdefault(name, []).append(node)
        self._ready = set(inputs)
        self._done: set[int] = set()
        self._waiting: list[NodeView] = []
        self._steps: list[Step] = []
        self._storages: dict[str, Storage] = {}

    def program(self) -> Program:
        for name in self._inputs:
            self._turn(name, inward=True)
        for node in self._nodes:
            if id(node) in self._done:
                continue
            if node.op_type in CONVOLUTIONS:
                self._flush()
                self._conv(node)
            elif node.op_type in POOLS:
                self._flush()
                self._pool(node)
            else:
                self._waiting.append(node)
        self._flush()
        for name in self._outputs:
            self._turn(name, inward=False)
        workspace = assign_offsets(list(self._storages.values()), ALIGNMENT)
        places = {name: storage.offset for name, storage in self._storages.items()}
        return Program(tuple(self._steps), places, workspace)

    def _append(self, step: Step, tensors: Sequence[str], held: Mapping[str, int]) -> None:
        """Add a step; ``held``: bytes of the tensors that are in scratch memory."""
        number = len(self._steps)
        self._steps.append(step)
        for name in tensors:
            if name in self._storages:
                self._storages[name].last = number
            elif name in held:
                self._storages[name] = Storage(held[name], number, number)

    def _held(self, *names: str) -> dict[str, int]:
        return {name: self._specs[name].nbytes for name in names}

    def _turn(self, name: str, *, inward: bool) -> None:
        """Copy a tensor of the edge to channels last, or back."""
        spec, rank = self._specs[name], len(self._specs[name].shape)
        plain, (first, *steps, of_channel) = dense(spec.shape), dense(nhwc(spec.shape))
        last = (first, of_channel, *steps)
        # Threads run along what they write: reads that are scattered are served by the caches, scattered writes are not.
        order = (0, *range(2, rank), 1) if inward else tuple(range(rank))
        walks = [tuple(s[k] for k in order) for s in ((plain, last) if inward else (last, plain))]
        walked = space(tuple(spec.shape[k] for k in order), walks)
        type_ = raw(spec.dtype.itemsize)
        operands = [Operand(type_, pattern) for pattern in walked.patterns]
        text = elementwise("turn", operands[:1], operands[1:], "y0 = x0;", index="i64")
        tensors = (EDGE + name, name) if inward else (name, EDGE + name)
        grid = (-(-walked.points // _BLOCK), 1)
        call = KernelCall("turn", tensors, integers(*walked.scalars), grid, _BLOCK)  # type: ignore[arg-type]
        self._append(Kernels(text, (call,)), tensors, self._held(name))

    def _conv(self, node: NodeView) -> None:
        x, w, *rest = node.inputs
        y = node.outputs[0]
        assert x is not None and w is not None and w.constant is not None and y is not None
        bias = rest[0] if rest else None
        weights = TensorSpec(w.constant.dtype, w.constant.shape)
        problem = Convolution.of(node, self._specs[x.name], weights, bias=bias is not None)
        made, residual = y.name, None
        reader = self._only_reader(made)
        if reader is not None and reader.op_type == "Add" and not problem.transposed:
            residual = self._residual(reader, made)
            if residual is not None:
                problem = replace(problem, residual=True)
                made = self._absorb(reader)
                reader = self._only_reader(made)
        if reader is not None and (clip := _clip(reader)) is not None:
            problem = replace(problem, clip=clip)
            made = self._absorb(reader)
        step = Convolve(problem, x.name, w.name, None if bias is None else bias.name, residual, made)
        self._append(step, step.tensors, self._held(made))
        self._ready.add(made)

    def _only_reader(self, name: str) -> NodeView | None:
        """The node that alone reads a value which nobody outside wants."""
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self._outputs else None

    def _residual(self, add: NodeView, own: str) -> str | None:
        """The other operand of an Add, if it has the same shape and is there already."""
        names = [v.name for v in add.inputs if v is not None]
        other = names[1] if names[0] == own else names[0]
        ready = other != own and other in self._ready and self._specs[other].shape == self._specs[own].shape
        return other if ready else None

    def _absorb(self, node: NodeView) -> str:
        """The output of a node that a convolution computes along with its own."""
        self._done.add(id(node))
        output = node.outputs[0]
        assert output is not None
        return output.name

    def _pool(self, node: NodeView) -> None:
        x, y = node.inputs[0], node.outputs[0]
        assert x is not None and y is not None
        spec, made, a = self._specs[x.name], self._specs[y.name], node.attributes
        whole = node.op_type.startswith("Global")
        names = ("strides", "dilations", "pads", "auto_pad", "ceil_mode")
        given = {} if whole else {n: a[n] for n in names if n in a}
        moves = windows(spec.shape[2:], spec.shape[2:] if whole else a["kernel_shape"], **given)
        mean = "Average" in node.op_type
        text = pooling("pool", text_type(spec.dtype), mean=mean, include=bool(a.get("count_include_pad", 0)))
        sizes = (*moves.kernel, *moves.strides, *moves.dilations, *moves.begins, *moves.ends)
        points = math.prod(made.shape)
        scalars = integers(points, spec.shape[1], *spec.shape[2:], *made.shape[2:], *sizes)
        call = KernelCall("pool", (x.name, y.name), scalars, (-(-points // _BLOCK), 1), _BLOCK)  # type: ignore[arg-type]
        self._append(Kernels(text, (call,)), call.tensors, self._held(y.name))
        self._ready.add(y.name)

    def _flush(self) -> None:
        """Make kernels of the element-wise nodes that wait."""
        nodes, self._waiting = self._waiting, []
        if not nodes:
            return
        made = [v.name for node in nodes for v in node.outputs if v is not None]
        wanted = [n for n in made if n in self._outputs or any(r not in nodes for r in self._readers.get(n, ()))]
        specs, constants, rank = {}, {}, len(self._specs[made[0]].shape)
        for value in (v for node in nodes for v in node.inputs if v is not None):
            if value.constant is not None:
                constants[value.name] = channels_last(value.constant, rank)
            elif value.name not in made:
                spec = self._specs[value.name]
                specs[value.name] = TensorSpec(spec.dtype, nhwc(spec.shape))
        found = lower(nodes, specs, constants, wanted)
        number = len(self._steps)
        calls = tuple(
            replace(c, tensors=tuple(f"{INNER}{number} {t}" if t in found.places else t for t in c.tensors))
            for c in found.calls
        )
        held = self._held(*wanted) | {f"{INNER}{number} {name}": self._specs[name].nbytes for name in found.places}
        self._append(Kernels(found.text, calls), [t for c in calls for t in c.tensors], held)
        self._ready.update(wanted)


def _clip(node: NodeView) -> Clip | None:
    """The bounds of an activation that cuts values off, None for other nodes."""
    if node.op_type == "Relu":
        return Clip(0.0, None)
    if node.op_type != "Clip":
        return None
    bounds = [node.attributes.get("min"), node.attributes.get("max")]
    for position, value in enumerate(node.inputs[1:3]):
        if value is not None and value.constant is not None:
            bounds[position] = float(value.constant.reshape(()))
    return Clip(*bounds) if bounds[0] is not None else None


def channels_last(array: np.ndarray, rank: int) -> np.ndarray:
    """A constant that is broadcast from the right to (N, C, *spatial) of ``rank`` dimensions, for tensors that lie channels last."""
    if array.size == 1:
        return array
    whole = array.reshape((1,) * (rank - array.ndim) + array.shape)
    return np.ascontiguousarray(whole.transpose(0, *range(2, rank), 1))

"""Splitting tensors into lines for the kernels of ``kernels.rows``: which way vectors run, which dimensions are loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field

from onnxplug.contract import ValueView
from onnxplug.contract.records import record
from onnxplug.contract.sizes import greatest, least, portion
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.base import Kernel
from onnxplug_ep_cpu.codegen.kernels.rows import Operand
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.loops import write_map
from onnxplug_ep_cpu.codegen.lower.pending import DoubleAnchor, Pending
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor

BLOCK = 4096
"""Elements of one item."""
MANY = 4
"""Vectors' worth of short lines that are laid side by side first."""
Dim = tuple[int, ...]
"""Size, then each tensor's stride."""


@record(slots=True)
class Lines:
    """Tensors of one (broadcast) shape, seen as lines."""

    tensors: Sequence[Tensor]
    along: bool
    axis: Dim
    rows: Dim
    outer: list[Dim]

    def operands(self, numbers: Sequence[int]) -> tuple[Operand, ...]:
        """How the kernel reads the tensors of these numbers."""
        lanes = self.axis if self.along else self.rows
        return tuple((self.tensors[n].element, "v" if lanes[1 + n] == 1 else "s") for n in numbers)

    def call(self, b: Lowering, kernel: Kernel, cost: float, more: Sequence[int] = (), together: int = 2) -> None:
        """Append the call; ``cost`` is the vector instructions for an element, ``more`` are further arguments. An item has
        ``together`` vectors of lines at least where they lie side by side."""
        count, rows = self.axis[0], self.rows[0]
        lanes = b.target.lanes
        if self.along:
            block = portion(rows, BLOCK // greatest(count, 1))
        else:
            block = least(rows, lanes * greatest(together, 4 * BLOCK // greatest(1, count * lanes)))
        blocks = -(-rows // block)
        args: list[int | Ref] = [count, rows, block, blocks, *(d[0] for d in self.outer)]
        for n, tensor in enumerate(self.tensors):
            unit = tensor.itemsize
            args += [tensor.ref, self.axis[1 + n] * unit, self.rows[1 + n] * unit]
            args += [d[1 + n] * unit for d in self.outer]
        args += more
        outer = math.prod(d[0] for d in self.outer)
        work = outer * rows * (count * cost * 0.3 / lanes + 8.0)
        b.program.call(kernel, args, blocks * outer, work, even=False)


def split(tensors: Sequence[Tensor], axes: Sequence[int], main: int = 0) -> Lines | None:
    """Lines along ``axes`` of tensors of one shape; tensor ``main`` has no stride 0. None where they cannot be had without
    copies: the axes do not merge to one, or nothing is contiguous."""
    shape = tensors[main].shape
    dims = [(n, *(t.strides[d] for t in tensors)) for d, n in enumerate(shape)]
    at = 1 + main
    axis = _merged([dims[d] for d in sorted(axes) if shape[d] != 1], at)
    rest = _merged([dims[d] for d in range(len(shape)) if d not in axes and shape[d] != 1], at)
    one: Dim = (1, *[0] * len(tensors))
    if len(axis) > 1:
        return None
    if axis and axis[0][at] == 1 and all(s in (0, 1) for s in axis[0][1:]):
        rows = rest.pop() if rest else one
        return Lines(tensors, True, axis[0], rows, rest)
    if rest and rest[-1][at] == 1 and all(s in (0, 1) for s in rest[-1][1:]):
        rows = rest.pop()
        return Lines(tensors, False, axis[0] if axis else one, rows, rest)
    if axis:
        return None
    rows = rest.pop() if rest else one
    return Lines(tensors, True, (1, *[1] * len(tensors)), rows, rest)


def _merged(dims: Sequence[Dim], at: int) -> list[Dim]:
    """Dimensions by falling stride of the tensor ``at``, neighbours merged where every tensor allows it."""
    merged: list[Dim] = []
    for dim in sorted(dims, key=lambda d: -d[at]):
        if merged and all(a == s * dim[0] for a, s in zip(merged[-1][1:], dim[1:], strict=True)):
            merged[-1] = (merged[-1][0] * dim[0], *dim[1:])
        else:
            merged.append(dim)
    return merged


Make = Callable[[Lines, ex.Expr, ex.Expr, tuple[Operand, ...], tuple[Operand, ...]], Kernel]
"""A kernel from the lines, the expression of its first operands, the one of its result, and how it reads the operands of each."""


def across(b: Lowering, tensor: Tensor, axes: Sequence[int]) -> Ints | None:
    """The order of dimensions that lays lines along ``axes`` side by side, where they lie lengthwise, are many and shorter than a
    vector, which would be half empty for each; else None."""
    others = [d for d in range(len(tensor.shape)) if d not in axes]
    if math.prod(tensor.shape[d] for d in axes) >= b.target.lanes:
        return None
    lengthwise = (
        min((d for d, n in enumerate(tensor.shape) if n != 1), key=lambda d: tensor.strides[d], default=-1) in axes
    )
    many = math.prod(tensor.shape[d] for d in others) >= MANY * b.target.lanes
    return (*axes, *others) if lengthwise and many else None


@record(slots=True)
class Work:
    """Lines along ``axes`` made by ``make`` from ``expr`` of ``leaves``; ``others`` are results besides the one of full shape."""

    b: Lowering
    axes: Sequence[int]
    expr: ex.Expr
    leaves: list[Tensor]
    make: Make
    cost: float
    others: list[Tensor] = field(default_factory=list)
    element: str = "float32"

    def write(self, post: ex.Expr, further: list[Tensor], target: Tensor) -> None:
        """target = post(result, further), by way of copies where the layouts do not suit."""
        if target.size == 0:
            return
        b = self.b
        dims = range(len(target.shape))
        order = across(b, target, self.axes)
        if order is None and self._call(target, self.expr, self.leaves, post, further):
            return
        x = b.scratch(target.shape, order or sorted(dims, key=lambda d: (-target.strides[d], d)), self.element)
        write_map(b.program, b.target, self.expr, self.leaves, x)
        if order is None and self._call(target, ex.IDENTITY, [x], post, further):
            return
        made, dense = (
            (b.scratch(target.shape, order, self.element), x)
            if order
            else (b.scratch(target.shape, element=self.element), b.copied(x, dims))
        )
        if not self._call(made, ex.IDENTITY, [dense], ex.IDENTITY, []):
            raise Unsupported("the axes of a line do not lie together")
        write_map(b.program, b.target, post, [made, *further], target)

    def _call(self, target: Tensor, expr: ex.Expr, leaves: list[Tensor], post: ex.Expr, further: list[Tensor]) -> bool:
        tensors = [t.broadcast(target.shape) for t in (target, *self.others, *leaves, *further)]
        lines = split(tensors, self.axes)
        if lines is None:
            return False
        first = 1 + len(self.others)
        middle = first + len(leaves)
        kernel = self.make(
            lines, expr, post, lines.operands(range(first, middle)), lines.operands(range(middle, len(tensors)))
        )
        lines.call(self.b, kernel, self.cost + 0.5 * ex.cost(expr) + 0.5 * ex.cost(post))
        return True

    def pending(self, shape: Ints, order: Ints, post: ex.Expr = ex.IDENTITY, further: Sequence[Tensor] = ()) -> Pending:
        """The result as a value that element-wise nodes may still work on."""

        def takes(leaf: Tensor) -> bool:
            return len(leaf.shape) <= len(shape) and leaf.broadcast(shape).strides[order[-1]] in (0, 1)

        write = self.write if self.element == "float32" else DoubleAnchor(self.write)
        return Pending(shape, post, [None, *further], write, takes, order, self.element)


def source(b: Lowering, x: ValueView) -> tuple[ex.Expr, list[Tensor], Ints]:
    """What a line kernel reads for ``x``: an expression over tensors, and the order their dimensions lie in."""
    held = b.pending(x)
    if isinstance(held, Pending) and held.anchor is None:
        return held.expr, [t for t in held.leaves if t is not None], held.natural()
    tensor = b.read(x)
    return ex.IDENTITY, [tensor], Pending(tensor.shape, ex.IDENTITY, [tensor]).natural()

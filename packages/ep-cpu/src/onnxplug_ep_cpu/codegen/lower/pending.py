"""Values that are not written yet, and the calls that write them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

from onnxplug.contract import NodeView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.loops import write_map
from onnxplug_ep_cpu.codegen.lower.memory import scratch
from onnxplug_ep_cpu.codegen.program import Program
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor

Anchor = Callable[[ex.Expr, list[Tensor], Tensor], None]
"""Makes the calls that write an expression of what a kernel computes, and of further leaves."""


@record(slots=True, eq=False)
class Pending:
    """A value not written yet: ``expr`` over ``leaves``. With ``anchor``, leaf 0 is what the kernel itself computes, and
    ``anchor(expr, leaves[1:], target)`` makes the calls that write ``target``; ``takes`` says whether it can read a further
    leaf; ``order`` is the layout it writes; ``element`` NumPy's name of its type; ``cheap``: every reader may compute it
    again."""

    shape: Ints
    expr: ex.Expr
    leaves: list[Tensor | None]
    anchor: Anchor | None = None
    takes: Callable[[Tensor], bool] | None = None
    order: Ints | None = None
    element: str = "float32"
    cheap: bool = False
    padding: tuple[Tensor, Ints] | None = None
    """The value is this tensor with zeros around it, beginning with so many in each dimension."""
    banded: Callable[[int, int], Pending] | None = None
    """Makes a pending value of what the kernel computes of an image's rows, from one to before another."""
    nodes: tuple[NodeView, ...] = ()
    """Whose work it is, that of the anchor first."""

    def natural(self) -> Ints:
        """The layout of the largest operand."""
        full = [t for t in self.leaves if t is not None and t.shape == self.shape and 0 not in t.strides]
        if not full:
            return tuple(range(len(self.shape)))
        strides = full[0].strides
        return tuple(
            sorted(range(len(self.shape)), key=lambda d: (-strides[d] if self.shape[d] != 1 else -math.inf, d))
        )

    @property
    def layout(self) -> Ints:
        """The order in which the dimensions of what is written lie."""
        return self.order or self.natural()

    def write(self, program: Program, target: Target, tensor: Tensor) -> None:
        """Calls that write the value where it belongs; none where it has no elements, of which kernels need not know."""
        if not tensor.size:
            return
        before = program.nodes
        program.turn_to(self.nodes or before)
        self._emit_calls(program, target, tensor)
        program.turn_to(before)

    def _emit_calls(self, program: Program, target: Target, tensor: Tensor) -> None:
        if self.anchor is not None and self.element not in getattr(self.anchor, "elements", ("float32",)):
            order = sorted(range(len(tensor.shape)), key=lambda d: (-tensor.strides[d], d))
            made = scratch(tensor.shape, order, getattr(self.anchor, "made", "float32"))
            self.anchor(ex.IDENTITY, [], made)
            leaves = [made, *(leaf for leaf in self.leaves[1:] if leaf is not None)]
            write_map(program, target, self.expr, leaves, tensor)
        elif self.anchor is not None:
            self.anchor(self.expr, [leaf for leaf in self.leaves[1:] if leaf is not None], tensor)
        else:
            write_map(program, target, self.expr, [t for t in self.leaves if t is not None], tensor)


@record(frozen=True, slots=True)
class DoubleAnchor:
    """Makes the calls of a kernel that computes in float64."""

    anchor: Anchor
    elements: ClassVar[tuple[str, ...]] = ("float64",)
    made: ClassVar[str] = "float64"

    def __call__(self, expr: ex.Expr, leaves: list[Tensor], target: Tensor) -> None:
        self.anchor(expr, leaves, target)

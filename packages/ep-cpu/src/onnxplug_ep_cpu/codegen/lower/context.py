"""Lowering: from the nodes of a region, with every shape known, to the kernel calls of a program.

A value is a tensor, or *pending*: an expression over tensors, or the result of a kernel that can still take element-wise work
into its end. A pending value grows while element-wise nodes are its only readers and is written when something else reads it;
so chains of element-wise nodes become one loop, and a bias, residual or activation part of the product before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from onnxplug.contract import NodeView, TensorSpec, ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.lower.joins import Joins
from onnxplug_ep_cpu.codegen.lower.loops import copy, write_map
from onnxplug_ep_cpu.codegen.packer import Packer
from onnxplug_ep_cpu.codegen.program import ALIGNMENT, Buffer, Program
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, channels_last, dense_strides, element_of, follows
from onnxplug_ep_cpu.codegen.undecided import Open, Undecided

if TYPE_CHECKING:
    from onnxplug_ep_cpu.codegen.prepared import Prepared

Made = TypeVar("Made")


def _without_subnormals() -> ex.Expr:
    build = ex.Build()
    x = build("leaf", 0)
    small = build("less", build("abs", x), build("const", float(np.finfo(np.float32).tiny)))
    return build.finish(build("where", small, build("const", 0.0), x))


WITHOUT_SUBNORMALS = _without_subnormals()
"""The number, or zero for one that is smaller than float32 holds with all its digits."""


class Unsupported(Exception):
    """The region cannot be generated for these shapes; the text is the reason."""


@record(slots=True, eq=False)
class Pending:
    """A value not written yet: ``expr`` over ``leaves``. With ``anchor``, leaf 0 is what the kernel itself computes, and
    ``anchor(expr, leaves[1:], target)`` makes the calls that write ``target``; ``takes`` says whether it can read a further
    leaf; ``order`` is the layout it writes; ``element`` NumPy's name of its type; ``cheap``: every reader may compute it
    again."""

    shape: Ints
    expr: ex.Expr
    leaves: list[Tensor | None]
    anchor: Callable[[ex.Expr, list[Tensor], Tensor], None] | None = None
    takes: Callable[[Tensor], bool] | None = None
    order: Ints | None = None
    element: str = "float32"
    cheap: bool = False
    padding: tuple[Tensor, Ints] | None = None
    """The value is this tensor with zeros around it, beginning with so many in each dimension."""
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


@record(frozen=True, slots=True)
class DoubleAnchor:
    """Makes the calls of a kernel that computes in float64."""

    anchor: Callable[[ex.Expr, list[Tensor], Tensor], None]
    elements: ClassVar[tuple[str, ...]] = ("float64",)
    made: ClassVar[str] = "float64"

    def __call__(self, expr: ex.Expr, leaves: list[Tensor], target: Tensor) -> None:
        self.anchor(expr, leaves, target)


@record(slots=True)
class Lowering:
    """What lowerings work with; one per bind."""

    program: Program
    target: Target
    threads: int
    specs: dict[str, TensorSpec]
    prepared: Prepared
    packer: Packer
    """Packs constants while nodes are lowered."""
    values: dict[str, Tensor | Pending] = field(default_factory=dict)
    outputs: dict[str, Buffer] = field(default_factory=dict)
    """Values that leave the region, by name."""
    singles: dict[str, np.ndarray] = field(default_factory=dict)
    """Constants of half precision as float32."""
    made: dict[Any, Tensor] = field(default_factory=dict)
    """What lowerings made of operands and may use again."""
    tables: dict[Any, Any] = field(default_factory=dict)
    """What lowerings made of sizes alone."""
    filling: Program | None = None
    """Where an operand that is no constant is being packed."""
    joins: Joins = field(default_factory=Joins)
    """Where parts of concatenations had better be written."""
    open: Open = field(default_factory=Open)
    """Arrays that another bind of the program may have otherwise."""

    words: dict[str, np.ndarray] = field(default_factory=dict)
    """Values that are strings -> the list their elements are places in; the program computes the places."""

    @property
    def packing(self) -> Program:
        """Copies of constants, which run while the region is bound; of computed operands, copies in each run."""
        return self.filling or self.packer.program

    def aside(self) -> Lowering:
        """For a program apart from the region's, which packs constants for itself."""
        packer = Packer(self.target, self.threads, self.packer.pool)
        return Lowering(Program(), self.target, self.threads, self.specs, self.prepared.aside(), packer)

    # ---- what is known

    def is_computed(self, value: ValueView) -> bool:
        """Whether the program makes the value: shapes do not decide it."""
        spec = self.specs.get(value.name)
        return spec is None or spec.constant is None

    def shape(self, value: ValueView) -> Ints:
        """The value's shape; Unsupported when shapes do not decide it."""
        spec = self.specs.get(value.name)
        if spec is None:
            raise Unsupported(f"the shape of '{value.name}' depends on data")
        return spec.shape

    def element(self, value: ValueView) -> str:
        """NumPy's name of the value's element type; half precision is computed in float32."""
        assert value.dtype is not None
        return "float32" if value.dtype == np.float16 else element_of(value.dtype)

    def is_constant(self, value: ValueView) -> bool:
        """Whether the value is constant or decided by shapes; the array is not looked at, it may have been packed and let go."""
        spec = self.specs.get(value.name)
        return value.name in self.prepared.constant or (spec is not None and spec.constant is not None)

    def constant(self, value: ValueView | None) -> np.ndarray | None:
        """The array of a value that is constant or that shapes decide, else None."""
        if value is None:
            return None
        array = value.constant
        if array is None:
            spec = self.specs.get(value.name)
            array = None if spec is None else spec.constant
            self.open.look(value.name)
        if array is None or array.dtype != np.float16:
            return array
        if value.name not in self.singles:
            self.singles[value.name] = array.astype(np.float32)
        return self.singles[value.name]

    def numbers(self, value: ValueView) -> list[int] | None:
        """The integers of a value that is constant or that shapes decide, in row-major order, else None."""
        followed = self.open.numbers.get(value.name)
        if followed is not None:
            return followed
        array = self.constant(value)
        return None if array is None else [int(n) for n in array.reshape(-1)]

    def uses(self, value: ValueView) -> int:
        """How often the value is read, by nodes of the region or by others."""
        return self.prepared.uses.get(value.name, 0) + (value.name in self.outputs)

    # ---- reading

    def read(self, value: ValueView) -> Tensor:
        """The value in memory, with whatever strides it has."""
        held = self.values.get(value.name)
        if held is None and value.name in self.open.arrays and math.prod(self.shape(value)) != 1:
            held = self._undecided(value)
        if held is None:
            array = self.constant(value)
            if array is None:
                raise Unsupported(f"'{value.name}' has not been computed")
            held = self.prepared.constants.get(value.name) if array is value.constant else None
            if held is None:
                held = self.tensor_of(array)
            if array is value.constant:
                self.prepared.constants[value.name] = held
            self.values[value.name] = held
        if isinstance(held, Pending):
            held = self.values[value.name] = self._write(held, value)
        if held.element == "float16":
            half, held = held, self.scratch(held.shape)
            write_map(self.program, self.target, ex.IDENTITY, [half], held)
            self.values[value.name] = held
        return held

    def lies(self, value: ValueView) -> Tensor:
        """The value in memory as it lies there: half precision is not converted, for those who only move it."""
        held = self.values.get(value.name)
        if isinstance(held, Tensor):
            return held
        if held is None and value.constant is not None and value.constant.dtype == np.float16:
            return self.tensor_of(value.constant)
        return self.read(value)

    def _undecided(self, value: ValueView) -> Tensor | None:
        """A tensor over an array that is found when the program is filled in; None for types that are converted first."""
        element, shape = self.element(value), self.shape(value)
        if value.dtype == np.float16 or element not in SIZES:
            return None
        tensor = Tensor(Undecided(self.open, value.name), shape, dense_strides(shape), element=element)
        self.values[value.name] = tensor
        return tensor

    def unread(self, value: ValueView) -> tuple[Tensor, Callable[[Tensor], Tensor | Pending]]:
        """For operators that only move elements: a tensor to move and what makes the result of it. What is cheap to compute of
        one tensor (numbers being dequantized) is computed behind the move, where it may be undone."""
        held = self.values.get(value.name)
        if isinstance(held, Pending) and held.cheap and len(held.leaves) == 1 and held.leaves[0] is not None:
            kept = held
            return held.leaves[0], lambda moved: replace(kept, shape=moved.shape, leaves=[moved])
        return self.lies(value), lambda moved: moved

    def dense(self, value: ValueView) -> Tensor:
        """The value in row-major order."""
        tensor = self.read(value)
        return tensor if tensor.is_dense else self.copied(tensor, range(len(tensor.shape)))

    def in_order(self, value: ValueView, order: Sequence[int]) -> Tensor:
        """The value with its dimensions lying in ``order``, without gaps; a copy once made serves later readers."""
        tensor = self.read(value)
        if follows(tensor.shape, tensor.strides, order):
            return tensor
        tensor = self.values[value.name] = self.copied(tensor, order)
        return tensor

    def channels_last(self, value: ValueView) -> Tensor:
        """The value with channels innermost."""
        tensor = self.read(value)
        return tensor if tensor.is_channels_last else self.in_order(value, channels_last(len(tensor.shape)))

    def copied(self, tensor: Tensor, order: Sequence[int]) -> Tensor:
        """A copy in scratch memory with the dimensions in ``order``."""
        made = self.scratch(tensor.shape, order, tensor.element)
        copy(self.program, self.target, tensor, made)
        return made

    def tensor_of(self, array: np.ndarray) -> Tensor:
        """A constant as a tensor; it must outlive the program."""
        return self.lying(np.require(array, requirements=("C", "A")).reshape(array.shape))

    @staticmethod
    def lying(array: np.ndarray) -> Tensor:
        """A constant as it lies, with whatever strides it has; it must outlive the program."""
        element = element_of(array.dtype)
        if element not in SIZES:
            raise Unsupported(f"constants of type {element} are not generated")
        buffer = Buffer("constant", array.nbytes, array=array)
        strides = tuple(s // array.itemsize for s in array.strides)
        return Tensor(
            buffer,
            array.shape,
            dense_strides(array.shape) if array.flags.c_contiguous else strides,
            element=element,
        )

    def zeros(self, count: int) -> Tensor:
        """At least ``count`` zeros: what a row of padding reads."""
        return self.tensor_of(self.prepared.zeros(count))

    def pack(
        self,
        value: ValueView,
        form: object,
        shape: Ints,
        fill: Callable[[Tensor, Tensor], None],
        element: str = "float32",
    ) -> Tensor:
        """A constant in another form, made once per session: ``fill(source, result)`` adds calls to ``packing``; what they
        leave is zero, and the constant itself may go. A matrix is not made row-major first. What is no constant is brought
        into the form by each run."""
        if value.name not in self.prepared.constant:
            return self._packed_anew(value, shape, fill, element)
        held = self.prepared.held(value, form)
        if held is None:
            array = self.constant(value)
            assert array is not None
            held = self.prepared.hold(value, form, shape, element)
            matrix = array.ndim == 2 and min(array.strides) > 0
            fill(self.lying(array) if matrix else self.tensor_of(array), self.tensor_of(held))
            if element == "float32":  # a product of a subnormal takes a hundred times as long, and changes no sum
                write_map(self.packing, self.target, WITHOUT_SUBNORMALS, [self.tensor_of(held)], self.tensor_of(held))
            self.singles.pop(value.name, None)
            self.packer.packs(value, array.nbytes)
        return self.tensor_of(held)

    def once(self, key: Any, make: Callable[[], Made]) -> Made:
        """What ``make`` makes of the sizes in ``key``: layers of the same sizes share it."""
        if key not in self.tables:
            self.tables[key] = make()
        found: Made = self.tables[key]
        return found

    def _packed_anew(
        self, value: ValueView, shape: Ints, fill: Callable[[Tensor, Tensor], None], element: str
    ) -> Tensor:
        source, result = self.dense(value), self.scratch(shape, element=element)
        nothing = self.tensor_of(np.zeros(1, element))
        write_map(self.program, self.target, ex.IDENTITY, [nothing], result)
        self.filling = self.program
        try:
            fill(source, result)
        finally:
            self.filling = None
        return result

    # ---- writing

    def scratch(self, shape: Ints, order: Sequence[int] | None = None, element: str = "float32") -> Tensor:
        """Fresh memory of the run's workspace."""
        slack = ALIGNMENT if element in ("int16", "int8", "uint8") else 0  # integer products read pairs and quads
        buffer = Buffer("scratch", max(1, math.prod(shape)) * SIZES[element] + slack)
        return Tensor(buffer, shape, dense_strides(shape, order), element=element)

    def output(self, value: ValueView, order: Sequence[int] | None = None, element: str = "float32") -> Tensor:
        """Where to write a value whose dimensions the kernel lays in ``order``: its part of a concatenation, the region's
        output, or scratch memory. The dimension innermost in ``order`` has stride 1; others may have gaps."""
        shape = self.shape(value)
        order = tuple(order if order is not None else range(len(shape)))
        place = self.joins.place(self, value, order, element)
        if place is None:
            converted = value.dtype == np.float16 and element != "float16"
            buffer = None if converted else self.outputs.get(value.name)
            if buffer is not None and follows(shape, dense_strides(shape, order), range(len(shape))):
                place = Tensor(buffer, shape, dense_strides(shape), element=element)
            else:
                place = self.scratch(shape, order, element)
        self.values[value.name] = place
        return place

    def define(self, value: ValueView, tensor: Tensor | Pending) -> None:
        """The value is this view, or what is cheap to compute of one."""
        self.values[value.name] = tensor

    def number(self, value: ValueView) -> dict[str, int]:
        """The numbers, from 1 on, that words of an operand of the region get; what is not among them is 0."""
        tensor = self.values.get(value.name)
        if not isinstance(tensor, Tensor) or tensor.buffer.kind != "input":
            raise Unsupported(f"'{value.name}' is strings that are made in the region")
        return self.prepared.numbers.setdefault(value.name, {})

    def spell(self, value: ValueView, places: Tensor, words: list[str]) -> None:
        """The value is strings: those that ``places`` (int64) have in a list."""
        self.specs[value.name] = TensorSpec(np.dtype(np.int64), places.shape)
        table = self.words[value.name] = np.empty(len(words), object)
        table[:] = words
        self.values[value.name] = places

    def pend(self, value: ValueView, pending: Pending) -> None:
        """The value is written when it is read; at once if more than one reader would compute it."""
        nodes = self.program.nodes
        read = [self.values.get(v.name) for node in nodes for v in node.inputs if v is not None]
        merged = [held for held in read if isinstance(held, Pending)]
        merged.sort(key=lambda held: held.anchor is None)
        pending.nodes = (*(node for held in merged for node in held.nodes), *nodes)
        self.values[value.name] = pending
        if self.uses(value) != 1 and not pending.cheap:
            self.read(value)

    def pending(self, value: ValueView) -> Tensor | Pending:
        """The value as an element-wise reader takes it over."""
        held = self.values.get(value.name)
        if isinstance(held, Pending) and (held.cheap or self.uses(value) == 1):
            return held
        return self.read(value)

    def write(self, pending: Pending) -> Tensor:
        """A pending value of no name in scratch memory."""
        tensor = self.scratch(pending.shape, pending.layout, pending.element)
        self.write_to(pending, tensor)
        return tensor

    def _write(self, pending: Pending, value: ValueView) -> Tensor:
        tensor = self.output(value, pending.layout, pending.element)
        self.write_to(pending, tensor)
        return tensor

    def write_to(self, pending: Pending, tensor: Tensor) -> None:
        """A pending value where it belongs; nothing where it has no elements, of which kernels need not know."""
        if not tensor.size:
            return
        before = self.program.nodes
        self.program.turn_to(pending.nodes or before)
        self._emit_calls(pending, tensor)
        self.program.turn_to(before)

    def _emit_calls(self, pending: Pending, tensor: Tensor) -> None:
        if pending.anchor is not None and pending.element not in getattr(pending.anchor, "elements", ("float32",)):
            order = sorted(range(len(tensor.shape)), key=lambda d: (-tensor.strides[d], d))
            made = self.scratch(tensor.shape, order, getattr(pending.anchor, "made", "float32"))
            pending.anchor(ex.IDENTITY, [], made)
            leaves = [made, *(leaf for leaf in pending.leaves[1:] if leaf is not None)]
            write_map(self.program, self.target, pending.expr, leaves, tensor)
        elif pending.anchor is not None:
            pending.anchor(pending.expr, [leaf for leaf in pending.leaves[1:] if leaf is not None], tensor)
        else:
            write_map(self.program, self.target, pending.expr, [t for t in pending.leaves if t is not None], tensor)

    def finish(self) -> None:
        """Copy what leaves the region but was not written where it belongs."""
        for name, buffer in self.outputs.items():
            value = self.prepared.value(name)
            if value.producer is not None:
                self.program.turn_to((value.producer,))
            tensor, shape = self.lies(value), self.shape(value)
            if tensor.buffer is not buffer:
                half = value.dtype == np.float16
                result = Tensor(buffer, shape, dense_strides(shape), element="float16" if half else tensor.element)
                if half and tensor.element != "float16":
                    write_map(self.program, self.target, ex.IDENTITY, [self.dense(value)], result)
                else:
                    copy(self.program, self.target, tensor, result)


def attributes(node: NodeView, **defaults: Any) -> Any:
    """The node's attributes with defaults, by name."""
    return {**defaults, **node.attributes}

"""Lowering: from the nodes of a region, with every shape known, to the kernel calls of a program.

A value is a tensor, or *pending*: an expression over tensors, or the result of a kernel that can still take element-wise work
into its end. A pending value grows while element-wise nodes are its only readers and is written when something else reads it;
so chains of element-wise nodes become one loop, and a bias, residual or activation part of the product before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, TypeVar

import numpy as np

from onnxplug.contract import ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.lower import memory
from onnxplug_ep_cpu.codegen.lower.joins import Joins
from onnxplug_ep_cpu.codegen.lower.known import Known
from onnxplug_ep_cpu.codegen.lower.loops import copy, write_map
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.packer import Packer
from onnxplug_ep_cpu.codegen.program import Buffer, Program, Ref
from onnxplug_ep_cpu.codegen.recipes import Recipe, key_of, tape_of
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import (
    NARROW,
    Ints,
    Tensor,
    channels_last,
    dense_strides,
    element_of,
    follows,
    is_narrow,
)
from onnxplug_ep_cpu.codegen.undecided import Open, Undecided

Made = TypeVar("Made")


@record(slots=True)
class Lowering(Known):
    """What lowerings work with; one per bind."""

    program: Program
    target: Target
    threads: int
    packer: Packer
    """Packs constants while nodes are lowered."""
    values: dict[str, Tensor | Pending] = field(default_factory=dict)
    words: dict[str, np.ndarray] = field(default_factory=dict)
    """Values that are strings -> the list their elements are places in; the program computes the places."""
    made: dict[Any, Tensor] = field(default_factory=dict)
    """What lowerings made of operands and may use again."""
    tables: dict[Any, Any] = field(default_factory=dict)
    """What lowerings made of sizes alone."""
    widened: dict[str, ValueView] = field(default_factory=dict)
    """Values that are constants of 16 bits in float32, which have not been written -> the constants."""
    filling: Program | None = None
    """Where an operand that is no constant is being packed."""
    joins: Joins = field(default_factory=Joins)
    """Where parts of concatenations had better be written."""

    scratch = staticmethod(memory.scratch)
    tensor_of = staticmethod(memory.tensor_of)

    @property
    def packing(self) -> Program:
        """Copies of constants, which run while the region is bound; of computed operands, copies in each run."""
        return self.filling or self.packer.program

    def aside(self) -> Lowering:
        """For a program apart from the region's, which packs constants for itself."""
        packer = Packer(self.target, self.threads, self.packer.pool)
        return Lowering(self.specs, self.prepared.aside(), {}, Open(), Program(), self.target, self.threads, packer)

    def once(self, key: Any, make: Callable[[], Made]) -> Made:
        """What ``make`` makes of the sizes in ``key``: layers of the same sizes share it."""
        key = key_of(key)
        if key not in self.tables:
            self.tables[key] = make()
        found: Made = self.tables[key]
        return found

    def derived(self, make: Callable[..., np.ndarray], *given: Any) -> Ref:
        """Where the array lies that ``make`` makes of sizes alone (see ``Recipe``), which layers share: of sizes that are followed it
        is made when the program is filled in."""

        def ref() -> Ref:
            recipe = Recipe(make, given)
            if tape_of(given) is None:
                return self.tensor_of(recipe.made()).ref
            return Ref(Buffer("constant", 0, recipe=recipe))

        return self.once((make, given), ref)

    # ---- reading

    def read(self, value: ValueView) -> Tensor:
        """The value in memory, with whatever strides it has."""
        held = self.values.get(value.name)
        if held is None and (value.name in self.open.arrays or self._is_decided_number(value)):
            held = self._undecided(value)
        if held is None and value.name in self.widened:
            held = self.lies(self.widened[value.name])
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
        if held.element in NARROW:
            half, held = held, self.scratch(held.shape)
            write_map(self.program, self.target, ex.IDENTITY, [half], held)
            self.values[value.name] = held
        return held

    def lies(self, value: ValueView) -> Tensor:
        """The value in memory as it lies there: half precision is not converted, for those who only move it."""
        held = self.values.get(value.name)
        if isinstance(held, Tensor):
            return held
        if held is None and value.constant is not None and is_narrow(value.constant.dtype):
            return self.tensor_of(value.constant)
        return self.read(value)

    def _is_decided_number(self, value: ValueView) -> bool:
        """Whether the value is one number that shapes decide: code that had it as a constant would be other code for other shapes."""
        return value.constant is None and not self.is_computed(value) and math.prod(self.shape(value)) == 1

    def _undecided(self, value: ValueView) -> Tensor | None:
        """A tensor over an array that is found when the program is filled in; None for types that are converted first."""
        element, shape = self.element(value), self.shape(value)
        if is_narrow(value.dtype) or element not in SIZES:
            return None
        if value.name in self.open.arrays:
            buffer: Buffer = Undecided(self.open, value.name)
        else:
            array = self.specs[value.name].constant
            assert array is not None
            buffer = Buffer("constant", array.nbytes, array=array, known=value.name)
        tensor = Tensor(buffer, shape, dense_strides(shape), element=element)
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

    def reshaped(self, tensor: Tensor, shape: Ints) -> Tensor:
        """The tensor in another shape: a view, or a copy where there is none."""
        view = tensor.reshaped(shape)
        if view is None:
            view = self.copied(tensor, range(len(tensor.shape))).reshaped(shape)
        assert view is not None, "a copy is dense"
        return view

    def zeros(self, count: int) -> Tensor:
        """At least ``count`` zeros: what a row of padding reads."""
        return Tensor(self.derived(self.prepared.zeros, count).buffer, (count,), (1,))

    # ---- writing

    def output(self, value: ValueView, order: Sequence[int] | None = None, element: str = "float32") -> Tensor:
        """Where to write a value whose dimensions the kernel lays in ``order``: its part of a concatenation, the region's
        output, or scratch memory. The dimension innermost in ``order`` has stride 1; others may have gaps."""
        shape = self.shape(value)
        order = tuple(order if order is not None else range(len(shape)))
        place = self.joins.place(self, value, order, element)
        if place is None:
            converted = is_narrow(value.dtype) and element not in NARROW
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
        """A pending value where it belongs."""
        pending.write(self.program, self.target, tensor)

    def finish(self) -> None:
        """Copy what leaves the region but was not written where it belongs."""
        for name, buffer in self.outputs.items():
            value = self.prepared.value(name)
            if value.dtype == object and name not in self.words:
                raise Unsupported(f"'{name}' is strings that the region only has numbers of")
            if value.producer is not None:
                self.program.turn_to((value.producer,))
            tensor, shape = self.lies(value), self.shape(value)
            if tensor.buffer is not buffer:
                narrow = value.dtype is not None and is_narrow(value.dtype)
                element = element_of(value.dtype) if narrow else tensor.element
                result = Tensor(buffer, shape, dense_strides(shape), element=element)
                if tensor.element != element:
                    write_map(self.program, self.target, ex.IDENTITY, [self.dense(value)], result)
                else:
                    copy(self.program, self.target, tensor, result)

"""What masks do to the scores of an attention: which keys a query may see, and what is added for those it may not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from onnxplug.contract import ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.attention import takes
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.counting import counted
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor

LOWEST = float(np.finfo(np.float32).min)


@record(slots=True)
class Scores:
    """softmax's operand as it grows: an expression of the product of queries and keys and of further tensors, each
    broadcast to ``shape`` = [batch, heads, queries, keys]."""

    b: Lowering
    shape: Ints
    build: ex.Build = field(default_factory=ex.Build)
    leaves: list[Tensor] = field(default_factory=list)
    at: int = -1

    def __post_init__(self) -> None:
        self.at = self.build("leaf", 0)

    @property
    def expr(self) -> ex.Expr:
        return self.build.finish(self.at)

    def scale(self, factor: float) -> None:
        """Times a number."""
        if factor != 1.0:
            self.at = self.build("mul", self.at, self.build("const", factor))

    def cap(self, limit: float) -> None:
        """limit tanh(score / limit), where a limit is given."""
        if limit > 0:
            inner = self.build("mul", self.at, self.build("const", 1.0 / limit))
            self.at = self.build("mul", self.build("tanh", inner), self.build("const", limit))

    def add(self, bias: Tensor) -> None:
        """Plus a tensor of numbers."""
        self.at = self.build("add", self.at, self._leaf(bias))

    def bury(self, *masks: tuple[Tensor, float]) -> None:
        """Plus the number of the last mask that is false at a place, or nothing where all are true."""
        bias = self.build("const", 0.0)
        for seen, number in masks:
            bias = self.build("where", self._leaf(seen), bias, self.build("const", number))
        self.at = self.build("add", self.at, bias)

    def keep(self, seen: Tensor) -> None:
        """-inf where a tensor of booleans is false."""
        self.at = self.build("where", self._leaf(seen), self.at, self.build("const", float("-inf")))

    def _leaf(self, tensor: Tensor) -> int:
        if not takes(self.shape, tensor):
            tensor = self.b.copied(tensor, range(len(tensor.shape)))
        self.leaves.append(tensor)
        return self.build("leaf", len(self.leaves))


def by_batch(b: Lowering, value: ValueView, first: int, count: int) -> Tensor:
    """``count`` integers of a vector from ``first`` on, one for each batch entry."""
    view = b.dense(value).reshaped((b.dense(value).size,))
    assert view is not None
    return Tensor(view.buffer, (count, 1, 1, 1), (1, 0, 0, 0), view.offset + first * view.itemsize, view.element)


@record(frozen=True, slots=True)
class Window:
    """Query i stands at key ``place`` + i, plus its sequence's number in ``places``; it sees ``left`` keys before that
    one and ``right`` behind it (None: all), and of those only keys below its sequence's number in ``ends`` + ``past``,
    from its number in ``starts`` on."""

    place: int = 0
    places: Tensor | None = None
    left: int | None = None
    right: int | None = None
    ends: Tensor | None = None
    past: int = 0
    starts: Tensor | None = None

    def seen(self, b: Lowering, queries: int, keys: int) -> Tensor | None:
        """Booleans that broadcast to the scores; None when every key is seen."""
        build, leaves = ex.Build(), list[Tensor | None]()

        def leaf(tensor: Tensor) -> int:
            leaves.append(tensor)
            at = build("leaf", len(leaves) - 1)
            return at if tensor.element == "int32" else build("to_int32", at)

        key = leaf(counted(b, keys))
        tests: list[int] = []
        shape = (1, 1, 1, keys)
        if self.left is not None or self.right is not None:
            place = leaf(counted(b, queries, rows=True))
            shape = (1, 1, queries, keys)
            if self.places is not None:
                place = build("add", place, leaf(self.places))
                shape = (self.places.shape[0], 1, queries, keys)
            for reach, test in ((self.left, "greater_equal"), (self.right, "less_equal")):
                if reach is not None:
                    shift = self.place + (reach if test == "less_equal" else -reach)
                    tests.append(build(test, key, build("add", place, build("int32", shift))))
        for bound, test in ((self.ends, "less"), (self.starts, "greater_equal")):
            if bound is not None:
                limit = leaf(bound)
                shape = (bound.shape[0], *shape[1:])
                if test == "less" and self.past:
                    limit = build("add", limit, build("int32", self.past))
                tests.append(build(test, key, limit))
        return _all(b, build, tests, shape, leaves)


def _all(b: Lowering, build: ex.Build, tests: Sequence[int], shape: Ints, leaves: list[Tensor | None]) -> Tensor | None:
    if not tests:
        return None
    both = tests[0]
    for test in tests[1:]:
        both = build("and", both, test)
    return b.write(Pending(shape, build.finish(both), leaves, element="bool"))


def mask_index(b: Lowering, mask: ValueView, scores: Ints, past: int) -> Tensor:
    """Which keys a mask of com.microsoft's attention leaves, as booleans that broadcast to the scores: the mask holds a
    number for each (batch, keys), (batch, queries, keys) or (batch, 1, longest, longest), 0 for what is hidden; or
    the end of each sequence (batch), with their starts (2 batch) or other things (3 batch + 2) behind."""
    batch, _, queries, keys = scores
    if len(b.shape(mask)) == 4:  # the part of it that belongs to these queries and keys
        whole = b.read(mask)
        moved = whole.shift(past * whole.strides[2])
        return _positive(b, moved.viewed((*whole.shape[:2], queries, keys), whole.strides))
    held = b.made.get(("mask", mask.name))  # layers share it
    if held is not None and held.shape[0] in (1, batch) and held.shape[2] in (1, queries) and held.shape[3] == keys:
        return held
    found = b.made["mask", mask.name] = _ends(b, mask, scores) if len(b.shape(mask)) == 1 else _flags(b, mask)
    return found


def _ends(b: Lowering, mask: ValueView, scores: Ints) -> Tensor:
    batch, _, queries, keys = scores
    starts = by_batch(b, mask, batch, batch) if b.shape(mask)[0] == 2 * batch else None
    found = Window(ends=by_batch(b, mask, 0, batch), starts=starts).seen(b, queries, keys)
    assert found is not None
    return found


def _flags(b: Lowering, mask: ValueView) -> Tensor:
    given = b.read(mask)
    batch, *rows, keys = given.shape
    outer, *steps, step = given.strides
    return _positive(b, given.viewed((batch, 1, *(rows or (1,)), keys), (outer, 0, *(steps or (0,)), step)))


def _positive(b: Lowering, numbers: Tensor) -> Tensor:
    build = ex.Build()
    expr = build.finish(build("greater", build("leaf", 0), build("int32", 0)))
    return b.write(Pending(numbers.shape, expr, [numbers], element="bool"))

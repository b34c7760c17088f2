"""A legal node with the values to feed it, and what strategies draw one from."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st
from onnx import NodeProto

from operators import values
from operators.cells import Cell, schemas

T = TypeVar("T")


@dataclass
class Case:
    """A node and its inputs.

    ``inputs``: an array, list (sequence), dict (map) or None (omitted) for each formal input. ``outputs``: how many, or
    which of them are asked for. ``types``: the type string of each type parameter, and of inputs and outputs ("in0",
    "out1") that are not what their parameter says. ``fixed``: inputs that must be initializers. ``declared``: what the
    model says of its inputs: their "shape", "rank" or only "type"; ``ranked``: the operator wants their shapes.
    ``before``: nodes of the default domain ahead of it. ``captures``: graph inputs by name, with type string and value,
    that only nested graphs read. ``verify`` judges the outputs of two runs, where no evaluation can.
    """

    inputs: list[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int | Sequence[bool] = 1
    types: dict[str, str] = field(default_factory=dict)
    fixed: frozenset[int] = frozenset()
    cell: Cell = None  # type: ignore[assignment]
    initializers: frozenset[int] = frozenset()
    declared: str = "shape"
    ranked: bool = False
    before: list[NodeProto] = field(default_factory=list)
    captures: dict[str, tuple[str, Any]] = field(default_factory=dict)
    verify: Callable[[Case, list[Any], list[Any]], None] | None = None

    def __str__(self) -> str:
        inputs = ", ".join(_shown(value) for value in self.inputs)
        return f"{self.cell}({inputs}; {self.attributes}) -> {self.present}"

    @property
    def key(self) -> tuple[str, str]:
        return self.cell.domain, self.cell.op_type

    @property
    def version(self) -> int:
        return self.cell.version

    @property
    def present(self) -> list[bool]:
        """Which outputs are asked for."""
        return [True] * self.outputs if isinstance(self.outputs, int) else list(self.outputs)


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}" + (f"={value.tolist()}" if value.size < 5 else "")
    return f"[{', '.join(map(_shown, value))}]" if isinstance(value, list) else repr(value)


Strategy = Callable[["Draw"], Case]
_strategies: dict[tuple[str, str], Strategy] = {}


def strategy(*op_types: str, domain: str = "") -> Callable[[Strategy], Strategy]:
    """Enter the decorated function as what draws cases of these operators."""

    def enter(function: Strategy) -> Strategy:
        for op_type in op_types:
            _strategies[domain, op_type] = function
        return function

    return enter


def find_strategy(domain: str, op_type: str) -> Strategy | None:
    """The strategy of an operator."""
    from operators.strategies import load

    load()
    return _strategies.get((domain, op_type))


class Draw:
    """The choices of one example. First options are the plain ones: they make the first example and the shrunk one."""

    def __init__(self, draw: Callable[[Any], Any], cell: Cell) -> None:
        self._draw, self.cell = draw, cell
        self.op_type, self.version = cell.op_type, cell.version
        self.schema = schemas()[cell[:3]]
        self.types: dict[str, str] = {cell.parameter: cell.type} if cell.parameter else {}
        self.main = self.schema.type_constraints[0].type_param_str if self.schema.type_constraints else ""
        self._rng: np.random.Generator | None = None

    @property
    def rng(self) -> np.random.Generator:
        """For the contents of tensors, which need no shrinking."""
        if self._rng is None:
            self._rng = np.random.default_rng(self._draw(st.integers(0, 2**32 - 1)))
        return self._rng

    def pick(self, *options: T) -> T:
        """One of ``options``."""
        return options[self.integer(0, len(options) - 1)]

    def flag(self) -> bool:
        return self.pick(False, True)

    def integer(self, low: int, high: int) -> int:
        """An integer between the bounds, both included."""
        return low if low == high else self._draw(_integers(low, high))

    def type(self, parameter: str = "", only: Sequence[str] | None = None) -> str:
        """The type string bound to a type parameter, drawn from what the schema allows (and ``only`` names)."""
        parameter = parameter or self.main
        if parameter not in self.types:
            allowed = self.allowed(parameter)
            options = sorted(t for t in allowed if only is None or t in only or t[7:-1] in only)
            self.types[parameter] = self.pick(*options)
        return self.types[parameter]

    def allowed(self, parameter: str) -> list[str]:
        """The type strings the schema allows for a type parameter."""
        return next(c.allowed_type_strs for c in self.schema.type_constraints if c.type_param_str == parameter)

    def element(self, parameter: str = "", only: Sequence[str] | None = None) -> str:
        """The element name of a tensor type: "float" for ``tensor(float)``."""
        return values.element_name(self.type(parameter, only))

    def bind(self, parameter: str, type_: str) -> None:
        """Say what a type parameter is; an element name stands for its tensor. Other examples of the cell will do when
        it differs."""
        text = type_ if "(" in type_ else f"tensor({type_})"
        if self.types.setdefault(parameter, text) != text:
            raise Unfit

    def shape(self, least: int = 0, most: int = 4, sizes: Sequence[int] = (3, 2, 1, 4, 0)) -> tuple[int, ...]:
        """A shape with ``least`` to ``most`` dimensions."""
        rank = self.pick(*sorted(range(least, most + 1), key=lambda r: abs(r - 2)))
        return tuple(self.pick(*sizes) for _ in range(rank))

    def axis(self, rank: int) -> int:
        """An axis of a tensor, counted from either end."""
        return self.integer(-rank, rank - 1)

    def broadcastable(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts to ``shape``."""
        kept = shape[self.pick(0, *range(len(shape) + 1)) :]
        return tuple(self.pick(size, 1) for size in kept)

    def tensor(
        self,
        shape: Sequence[int],
        element: str = "",
        low: float | None = None,
        high: float | None = None,
        *,
        special: bool = False,
    ) -> np.ndarray:
        """Random contents; ``element`` defaults to that of the first type parameter. ``special``: zeros, NaN,
        infinities and limits among them."""
        special = special and self.pick(True, False, True)
        return values.random(self.rng, tuple(shape), element or self.element(), low, high, special=special)

    def optional(self, make: Callable[[], T]) -> T | None:
        """What ``make`` makes, or None."""
        return make() if self.pick(True, False) else None

    def maybe(self, **attributes: Any) -> dict[str, Any]:
        """Some of these attributes (the values of the others are taken to be given by default)."""
        return {name: value for name, value in attributes.items() if self.pick(True, False, True)}


class Unfit(Exception):
    """The types drawn do not go together."""


_integers = functools.cache(st.integers)


def _single(value: Any) -> Any:
    """Attributes hold float32 numbers."""
    if isinstance(value, list):
        return [_single(item) for item in value]
    return float(np.float32(value)) if isinstance(value, float) else value


def case_of(draw: Callable[[Any], Any], cell: Cell, strategy: Strategy) -> Case:
    """A case of ``cell``. Small integer inputs beyond the first are initializers in half of them, shapes declared in
    some."""
    drawn = Draw(draw, cell)
    case = strategy(drawn)
    case.cell = cell
    for constraint in drawn.schema.type_constraints:
        if len(constraint.allowed_type_strs) == 1:
            drawn.type(constraint.type_param_str)
    case.types = {**drawn.types, **case.types}
    case.attributes = {name: _single(value) for name, value in case.attributes.items()}
    optional = cell.type.startswith("optional")  # which no initializer is
    given = {
        index
        for index, value in enumerate(case.inputs)
        if index
        and not optional
        and isinstance(value, np.ndarray)
        and value.dtype in (np.int64, np.int32)
        and value.ndim < 2
    }
    case.initializers = case.fixed | (frozenset(given) if given and drawn.flag() else frozenset())
    case.declared = case.declared if case.ranked else drawn.pick("shape", "rank", "type")
    return case

"""Sizes that are followed through a computation, such as a lowering or the inference of shapes, so that what it made for some shapes
serves others.

A ``Size`` is a number whose origin a ``Tape`` records: arithmetic gives further sizes, and whatever else is asked of one (how
it compares, its truth, its value) is noted with the answer. Repeating a tape for other numbers gives every size anew, or says
that one of the answers would differ: then the lowering might have done something else. Nothing can look at a size without
that being noted, so lowerings need not know of it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Number = int | float


def _plus(a: Any, _: Any) -> Any:
    return +a


def _negative(a: Any, _: Any) -> Any:
    return -a


def _magnitude(a: Any, _: Any) -> Any:
    return abs(a)


def _ceiling(a: Any, _: Any) -> Any:
    return math.ceil(a)


def _truth(a: Any, _: Any) -> bool:
    return bool(a)


class Tape:
    """What was done with its sizes. ``given``: the numbers it started from."""

    def __init__(self, given: Sequence[int]) -> None:
        self.values: list[Any] = []
        """Constants and results, by position."""
        self._steps: list[tuple[Callable[[Any, Any], Any], int, int, bool | None, int]] = []
        """Operation, operands, the answer it must give (None: it gives a size), where its result belongs."""
        self._made: dict[tuple[Any, int, int], Any] = {}
        self._constants: dict[tuple[type, Number], int] = {}
        self.closed = False
        self.sizes = [Size(self, number, self._put(number)) for number in given]
        self._all = self._put(0)
        """Where questions of all values find these."""
        self.answers: dict[Any, Any] = {}
        """What functions of sizes answered, by what they were asked."""
        self.settled: set[int] = set()
        """Positions of sizes that were looked at themselves."""

    def close(self) -> None:
        """Nothing more is recorded; sizes are then plain numbers."""
        self.closed = True
        self._made, self._constants, self.answers = {}, {}, {}

    def apply(self, operation: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        """The size that an operation gives."""
        if self.closed:
            return operation(number_of(a), number_of(b))
        left, right = self._position(a), self._position(b)
        made = self._made.get((operation, left, right))
        if made is None:
            value = operation(self.values[left], self.values[right])
            made = self._made[operation, left, right] = Size(self, value, self._put(value))
            self._steps.append((operation, left, right, None, made.position))
        return made

    def ask(self, question: Callable[[Any, Any], bool], a: Any, b: Any) -> bool:
        """The answer to a question, which is noted."""
        if self.closed:
            return question(number_of(a), number_of(b))
        left, right = self._position(a), self._position(b)
        found = self._made.get((question, left, right))
        if found is None:
            found = self._made[question, left, right] = bool(question(self.values[left], self.values[right]))
            self._steps.append((question, left, right, found, -1))
        answer: bool = found
        return answer

    def note(self, question: Callable[[Sequence[Any]], Any], answer: bool) -> None:
        """The program depends on this answer to a question of the values."""
        self._steps.append((lambda values, _: question(values), self._all, self._all, answer, -1))

    @property
    def serves_others(self) -> bool:
        """Whether not all of the given numbers were looked at themselves."""
        return any(size.position not in self.settled for size in self.sizes)

    def repeat(self, given: Sequence[int]) -> list[Any] | None:
        """All values for other numbers, by position; None where an answer differs."""
        values = self.values.copy()
        values[: len(given)] = given
        values[self._all] = values
        try:
            for operation, left, right, wanted, position in self._steps:
                found = operation(values[left], values[right])
                if wanted is None:
                    values[position] = found
                elif found is not wanted:
                    return None
        except ArithmeticError:
            return None
        return values

    def _put(self, value: Number) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _position(self, operand: Any) -> int:
        if operand.__class__ is Size and operand.tape is self:
            position: int = operand.position
            return position
        number = number_of(operand)
        if isinstance(number, np.integer):
            number = int(number)
        key = number.__class__, number
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = self._put(number)
        return found


def number_of(operand: Any) -> Number:
    """The plain number of a size, or itself."""
    number: Number = operand.value if operand.__class__ is Size else operand
    return number


_EXACT = (int, float, np.integer)


def _binary(operation: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    def forward(self: Size, other: Any) -> Any:
        if other.__class__ is Size or isinstance(other, _EXACT):
            return self.tape.apply(operation, self, other)
        if isinstance(other, np.ndarray | np.generic):  # which compute in their own precision
            return operation(self.settled(), other)
        return NotImplemented

    def reflected(self: Size, other: Any) -> Any:
        if isinstance(other, _EXACT):
            return self.tape.apply(operation, other, self)
        if isinstance(other, np.ndarray | np.generic):
            return operation(other, self.settled())
        return NotImplemented

    return forward, reflected


def _question(question: Callable[[Any, Any], bool]) -> Any:
    def ask(self: Size, other: Any) -> bool:
        if other.__class__ is Size or isinstance(other, _EXACT):
            return self.tape.ask(question, self, other)
        return question(self.settled(), other)

    return ask


class Size:
    """A number, and its place on a tape."""

    __slots__ = ("position", "tape", "value")
    __array_ufunc__ = None  # NumPy's scalars leave arithmetic to this class

    def __init__(self, tape: Tape, value: Any, position: int) -> None:
        self.tape, self.value, self.position = tape, value, position

    __add__, __radd__ = _binary(operator.add)
    __sub__, __rsub__ = _binary(operator.sub)
    __mul__, __rmul__ = _binary(operator.mul)
    __floordiv__, __rfloordiv__ = _binary(operator.floordiv)
    __truediv__, __rtruediv__ = _binary(operator.truediv)
    __mod__, __rmod__ = _binary(operator.mod)
    __lt__ = _question(operator.lt)
    __le__ = _question(operator.le)
    __gt__ = _question(operator.gt)
    __ge__ = _question(operator.ge)

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        if other.__class__ is Size or isinstance(other, _EXACT):
            return self.tape.ask(operator.eq, self, other)
        return bool(self.settled() == other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __neg__(self) -> Any:
        return self.tape.apply(_negative, self, 0)

    def __pos__(self) -> Any:
        return self.tape.apply(_plus, self, 0)

    def __abs__(self) -> Any:
        return self.tape.apply(_magnitude, self, 0)

    def __ceil__(self) -> Any:
        return self.tape.apply(_ceiling, self, 0)

    def __bool__(self) -> bool:
        return self.tape.ask(_truth, self, 0)

    def settled(self) -> Any:
        """The number itself, which is then the only one that will do."""
        self.tape.ask(operator.eq, self, self.value)
        self.tape.settled.add(self.position)
        return self.value

    def __index__(self) -> int:
        return operator.index(self.settled())

    def __int__(self) -> int:
        return int(self.settled())

    def __float__(self) -> float:
        return float(self.settled())

    def __hash__(self) -> int:
        return hash(self.settled())

    def __repr__(self) -> str:
        return repr(self.settled())

    def __format__(self, form: str) -> str:
        return format(self.settled(), form)


def computed(function: Callable[[int, Any], int], a: int, b: Any) -> int:
    """``function(a, b)``, one step of the tape that follows either: of what it does inside nothing is noted. It gives a number, the
    same for the same ones, and is itself the same object each time."""
    for number in (a, b):
        if isinstance(number, Size):
            made: int = number.tape.apply(function, a, b)
            return made
    return function(a, b)


def least(a: int, b: int) -> int:
    """The smaller of two numbers; which one that is does not tie a program to it."""
    return computed(min, a, b)


def greatest(a: int, b: int) -> int:
    """The larger of two numbers; which one that is does not tie a program to it."""
    return computed(max, a, b)


def portion(count: int, most: int) -> int:
    """How many of ``count`` to take at once: no more than ``most``, and one at least."""
    return greatest(1, least(count, most))

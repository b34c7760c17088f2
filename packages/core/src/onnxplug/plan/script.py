"""A course with its sizes followed (see ``contract.sizes``): the arithmetic that gives the shapes behind a change, and the decisions that
were taken on its way, to be gone through for the next change without a look at any node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnxplug.contract.kernels import TensorSpec
from onnxplug.contract.sizes import Size, Tape
from onnxplug.graph.value import Value

Specs = Mapping[int, TensorSpec | None]
"""By the number of a class of values."""
Change = Callable[[Specs], Specs | None]
"""Specs of what is given -> of all that changes; None where the change takes another course."""
Learned = list[tuple[list[Value], TensorSpec | None]]
"""Values and the specs they have now."""
Open = list[tuple[int, int]]
"""Dimensions of a shape that differ from change to change, and which number each is."""


class Script:
    """What ``change`` does with the specs ``given``, the sizes followed that differ from those ``before``. Places that held equal
    numbers in both are taken for one number. ``members``: the values of each class; ``found``: what the change gives for these specs.

    ValueError where it cannot be followed, or whatever rules raise for what is no plain number.
    """

    def __init__(
        self, before: Specs, given: Specs, change: Change, members: Sequence[list[Value]], found: Specs
    ) -> None:
        self._given: list[tuple[int, TensorSpec, Open]] = []
        """Class, spec and open dimensions of what is given."""
        numbers: dict[tuple[int, int], int] = {}
        for at, spec in given.items():
            was = before[at]
            if was is None or spec is None or not _comparable(was, spec):
                raise ValueError("what changes is not sizes alone")
            pairs = enumerate(zip(was.shape, spec.shape, strict=True))
            self._given.append((at, spec, [(d, numbers.setdefault(p, len(numbers))) for d, p in pairs if p[0] != p[1]]))
        tape = self._tape = Tape([now for _, now in numbers])
        try:
            made = change(
                {at: TensorSpec(s.dtype, _filled(s.shape, open_, tape.sizes)) for at, s, open_ in self._given}
            )
        finally:
            tape.close()
        if made is None or not tape.serves_others:
            raise ValueError("other sizes take another course")
        groups: dict[Any, tuple[list[Value], TensorSpec | None, Open]] = {}
        for at, values in enumerate(members):
            spec, plain = made[at], found[at]
            if not alike(spec, plain):
                raise ValueError("a rule takes followed sizes for something else")
            sizes: Sequence[Any] = () if spec is None else spec.shape
            open_ = [(d, n.position) for d, n in enumerate(sizes) if isinstance(n, Size)]
            groups.setdefault((id(plain), *open_), ([], plain, open_))[0].extend(values)
        self._made = list(groups.values())
        """Values that always have equal specs, one of these, and its open dimensions."""

    def repeat(self, given: Specs) -> Learned | None:
        """What the change gives for these specs; None where it might take another course."""
        numbers: dict[int, int] = {}
        for at, base, open_ in self._given:
            spec = given[at]
            if spec is None or not _comparable(spec, base):
                return None
            shape = spec.shape
            for dimension, number in open_:
                if numbers.setdefault(number, shape[dimension]) != shape[dimension]:
                    return None
            if shape != _filled(base.shape, open_, numbers):
                return None
        values = self._tape.repeat([numbers[number] for number in range(len(numbers))])
        if values is None:
            return None
        return [
            (members, TensorSpec(spec.dtype, _filled(spec.shape, open_, values)) if spec and open_ else spec)
            for members, spec, open_ in self._made
        ]


def alike(a: TensorSpec | None, b: TensorSpec | None) -> bool:
    """Whether two specs say the same."""
    if a is None or b is None:
        return a is b
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.constant is b.constant or (
        a.constant is not None and b.constant is not None and a.constant.tobytes() == b.constant.tobytes()
    )


def _comparable(a: TensorSpec, b: TensorSpec) -> bool:
    """Whether only sizes can differ."""
    return a.dtype == b.dtype and len(a.shape) == len(b.shape) and a.constant is b.constant is None


def _filled(shape: tuple[int, ...], open_: Open, numbers: Any) -> tuple[int, ...]:
    """The shape with its open dimensions filled in."""
    filled = list(shape)
    for dimension, number in open_:
        filled[dimension] = numbers[number]
    return tuple(filled)

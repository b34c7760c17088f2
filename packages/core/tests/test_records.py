"""``record`` makes of a class what ``dataclasses.dataclass`` makes of it."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest

from onnxplug.contract.records import FEW, record

FLAGS = [dict(zip(("frozen", "slots", "eq"), flags, strict=True)) for flags in product((False, True), repeat=3)]


def _classes(decorate: Callable[..., Any], **flags: bool) -> tuple[type, type]:
    @decorate(**flags)
    class Base:
        """A base."""

        kind: ClassVar[str] = "base"
        a: int
        b: list[int] = field(default_factory=list)

        def total(self) -> int:
            return self.a + sum(self.b)

    @decorate(**flags)
    class Derived(Base):
        c: float = 2.5
        d: int = field(default=7, init=False)
        e: str = field(default="hidden", repr=False, compare=False)

    return Base, Derived


def _of(action: Callable[[], Any]) -> Any:
    """A result as text, or the error's type and text."""
    try:
        return repr(action())
    except Exception as error:
        return type(error), str(error)


def _change(value: Any, name: str) -> None:
    setattr(value, name, 5)


@pytest.mark.parametrize("flags", FLAGS)
def test_a_record_behaves_as_the_dataclass(flags: dict[str, bool]) -> None:
    theirs, ours = _classes(dataclasses.dataclass, **flags), _classes(record, **flags)
    actions: list[Callable[[Any], Any]] = [
        lambda k: k(1, [2]),
        lambda k: k(a=1),
        lambda k: k(1).b is k(1).b,
        lambda k: k(),
        lambda k: k(1, [], 0.5, "e", 9),
        lambda k: k(1, z=3),
        lambda k: (k(1) == k(1), k(1) == k(2), k(1) != 1, k(1, [1]) == k(1, [1])),
        lambda k: _change(k(1), "a"),
        lambda k: _change(k(1), "kind") if not flags["slots"] else None,
        lambda k: delattr(k(1), "a"),
        lambda k: k(3, [1, 2]).total(),
        lambda k: dataclasses.replace(k(1, [4]), a=9),
        lambda k: dataclasses.asdict(k(1, [4])),
        lambda k: [(f.name, f.type, f.init, f.repr, f.compare) for f in dataclasses.fields(k)],
        lambda k: copy.copy(k(1, [2])),
        lambda k: copy.deepcopy(k(1, [2])).b,
        lambda k: hasattr(k(1), "__dict__"),
        lambda k: k.__match_args__,
        lambda k: (k.__hash__ is None, k.__hash__ is object.__hash__, k.__name__, k.__qualname__, k.__module__),
    ]
    for their, our in zip(theirs, ours, strict=True):
        for number, action in enumerate(actions):
            want, got = _of(lambda a=action, k=their: a(k)), _of(lambda a=action, k=our: a(k))
            assert got == want, (number, our)
        if flags["frozen"] and flags["eq"]:
            assert hash(our(1, (2,))) == hash(our(1, (2,))) != hash(our(2, (2,)))


@pytest.mark.parametrize("flags", FLAGS)
def test_the_first_objects_are_made_as_the_later_ones(flags: dict[str, bool]) -> None:
    makes: list[Callable[[Any], Any]] = [lambda k: k(1, [2]), lambda k: k(a=1), lambda k: k(1, e="e", b=[3])]
    for make in makes:
        their, our = _classes(dataclasses.dataclass, **flags)[1], _classes(record, **flags)[1]
        assert [repr(make(our)) + make(our).e for _ in range(FEW)] == [repr(make(their)) + make(their).e] * FEW
        assert our.__init__.__code__.co_filename == "<string>"  # the real one by now


@record(frozen=True, slots=True)
class Point:
    """Pickled by name."""

    x: int
    array: Any = None

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("negative")


def test_records_are_pickled_and_checked() -> None:
    assert pickle.loads(pickle.dumps(Point(3, "text"))) == Point(3, "text")
    with pytest.raises(ValueError, match="negative"):
        Point(-1)


def test_fields_that_are_one_object_are_equal_without_being_compared() -> None:
    array = np.zeros(3)
    assert Point(1, array) == Point(1, array)


def test_methods_of_the_class_are_kept() -> None:
    @record(frozen=True, slots=True)
    class Own:
        x: int

        def __init__(self, x: int) -> None:
            object.__setattr__(self, "x", x + 1)

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

        def __repr__(self) -> str:
            return "own"

    assert Own(1).x == 2
    assert (Own(1) == 3, hash(Own(1)), repr(Own(1))) == (True, 5, "own")

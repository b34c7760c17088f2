"""What is made of sizes alone, such as tables of where windows read: a program whose sizes are followed (see ``contract.sizes``) is not
tied to what was made for some of them, it is made anew for others."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from onnxplug.contract.sizes import Size, Tape

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
REMEMBERED = 4096
"""Results of a function of sizes that are kept: sessions may see ever new sizes."""
KEPT, SMALL = 64, 4096
"""Results that a recipe keeps, and bytes up to which an array is one of them: a larger one is made faster than it is used."""
_SIZELESS = frozenset({"Target", "Axis", "NodeView"})
"""Records that are known to hold no sizes, in which none is looked for."""


class Recipe:
    """``function(*given)``, which gives the same for the same numbers, an array or what is decided. ``given`` may hold sizes in tuples and
    records."""

    __slots__ = ("_kept", "_numbers", "function", "given")

    def __init__(self, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
        self.function, self.given = function, given
        positions = dict.fromkeys(_positions(given))
        self._numbers = operator.itemgetter(*positions) if positions else None
        self._kept: dict[Any, Any] = {}

    def made(self, values: Sequence[Any] | None = None) -> Any:
        """The result for the values of a tape (default: those it was recorded with). Small ones are kept: of two images that differ in
        height and width another one had this height, and another this width."""
        if values is None or self._numbers is None:
            return self.function(*plain(self.given, values))
        numbers, kept = self._numbers(values), self._kept
        if numbers in kept:
            return kept[numbers]
        made = self.function(*plain(self.given, values))
        if getattr(made, "nbytes", 0) <= SMALL:
            if len(kept) == KEPT:
                del kept[next(iter(kept))]
            kept[numbers] = made
        return made


def _positions(given: Any) -> list[int]:
    """Where the sizes in ``given`` are on their tape."""
    kind = given.__class__
    if kind is Size:
        return [given.position]
    if kind is not tuple:
        if (parts := _parts(kind)) is None:
            return []
        given = parts(given)
    return [position for each in given if each.__class__ is not int for position in _positions(each)]


def plain(given: Any, values: Sequence[Any] | None = None) -> Any:
    """``given`` with numbers in place of sizes: of the values of a tape, or those it was recorded with."""
    kind = given.__class__
    if kind is Size:
        return given.value if values is None else values[given.position]
    if kind is tuple:
        return tuple([plain(each, values) for each in given])
    if (parts := _parts(kind)) is None:
        return given
    found = parts(given)
    made = plain(found, values)
    return given if all(map(operator.is_, made, found)) else kind(*made)


def tape_of(given: Any) -> Tape | None:
    """The tape that follows one of the sizes in ``given``, if any does."""
    kind = given.__class__
    if kind is Size:
        return None if given.tape.closed else given.tape
    if kind is not tuple:
        if (parts := _parts(kind)) is None:
            return None
        given = parts(given)
    for each in given:
        if each.__class__ is not int and (tape := tape_of(each)) is not None:
            return tape
    return None


def key_of(given: Any) -> Any:
    """``given`` for a dictionary: sizes by where they are on their tape, so that none is looked at."""
    kind = given.__class__
    if kind is Size and not given.tape.closed:
        return Size, given.position
    if kind is tuple:
        return tuple([key_of(each) for each in given])
    if (parts := _parts(kind)) is None or tape_of(given) is None:
        return given
    return kind, *map(key_of, parts(given))


@functools.cache
def _parts(kind: type) -> Callable[[Any], tuple[Any, ...]] | None:
    """What gives the fields of a record, whose constructor takes them; None for other types and for records of which none may be a size."""
    if not is_dataclass(kind) or kind.__name__ in _SIZELESS:
        return None
    names = [each.name for each in fields(kind)]
    return operator.attrgetter(*names) if len(names) > 1 else lambda given: tuple(getattr(given, n) for n in names)


def decided(choice: Callable[..., T], *given: Any) -> T:
    """``choice(*given)``; where sizes are followed, that it comes out so is noted, and nothing of what is asked of them inside: it serves
    all for which it does."""
    tape = tape_of(given)
    if tape is None:
        return choice(*plain(given))
    key = choice, key_of(given)
    if key not in tape.answers:
        recipe = Recipe(choice, given)
        made = tape.answers[key] = recipe.made()
        tape.note(lambda values: bool(recipe.made(values) == made), True)
    found: T = tape.answers[key]
    return found


def remembered(choice: F) -> F:
    """``functools.lru_cache`` for what is decided by sizes (see ``decided``)."""
    cached = functools.lru_cache(REMEMBERED)(choice)

    @functools.wraps(choice)
    def call(*given: Any) -> Any:
        return cached(*given) if tape_of(given) is None else decided(cached, *given)

    return call  # type: ignore[return-value]

"""Loops that walk along sequences: each trip reads the item of its number, and what it makes goes to the end of another sequence.

What reads and appends is the loop's own work then, and what is left of the body is tensors: its plan knows their shapes, which those
of a sequence's items are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug.contract.memory import HOST
from onnxplug.contract.records import record
from onnxplug.contract.types import TensorType
from onnxplug.place.units import ControlUnit, KernelUnit, Located, PlacedGraph, RegionUnit, Unit
from onnxplug.run.calls import Get, choice


@record(frozen=True, slots=True, eq=False)
class Walk:
    """A Loop's body without the steps that the loop takes itself.

    Its inputs are the trip's number if ``numbered``, the condition if ``conditioned``, carried values ``kept`` and an item of each
    captured sequence ``walked``. Its outputs, each once, are those of which ``made`` takes the condition if it ``decides``, carried
    values, what is appended to each of the carried sequences ``collected``, rows of scan outputs.
    """

    placed: PlacedGraph
    numbered: bool
    conditioned: bool
    decides: bool
    kept: tuple[int, ...]
    collected: tuple[int, ...]
    walked: tuple[int, ...]
    captured: Get
    made: Get
    maps: bool
    """Whether a trip depends on no other, and is of tensors alone."""

    def reaches(self, trips: int, captured: Sequence[Any]) -> bool:
        """Whether there is an item for each trip."""
        return all(len(captured[at]) >= trips for at in self.walked)


def walk_of(unit: ControlUnit, carried: int) -> Walk | None:
    """How the Loop of so many carried values walks, if it does."""
    body = unit.bodies["body"]
    if not all(isinstance(u, KernelUnit | RegionUnit) for u in body.units) or any(d != HOST for _, d in body.inputs):
        return None
    number, condition = body.inputs[:2]
    (goes, *made), units = body.outputs, list(body.units)
    walked = [u for u in units if _is(u, "SequenceAt") and u.ins[0] in body.captures and u.ins[1] == number]
    collected, appended = [], []
    for at in range(carried):
        append = next((u for u in units if _is(u, "SequenceInsert") and u.outs[0] == made[at]), None)
        if append is None or append.ins[0] != body.inputs[2 + at] or len(append.ins) > 2 or append.ins[1] is None:
            continue
        if _reads(units, append.ins[0]) == 1 and not _reads(units, made[at]) and body.outputs.count(made[at]) == 1:
            collected.append(at)
            appended.append(append)
    if not walked and not collected:
        return None
    always, again = _condition(units, condition, goes)
    left = [u for u in units if u not in (*walked, *appended, again)]
    decides = not always
    if again is not None and (_reads(left, goes) or goes in made):
        return None
    kept = [at for at in range(carried) if at not in collected]
    parts, rows = [u.ins[1] for u in appended], made[carried:]
    outputs = [*([goes] if decides else []), *[made[at] for at in kept], *parts, *rows]
    numbered, conditioned = (bool(_reads(left, v)) or v in outputs for v in (number, condition))
    items = [u.outs[0] for u in walked]
    asked = [*([number] if numbered else []), *([condition] if conditioned else [])]
    inputs = [*asked, *[body.inputs[2 + at] for at in kept], *items]
    captures = [at for at, v in enumerate(body.captures) if _reads(left, v) or v in outputs]
    once = list(dict.fromkeys(_present(outputs)))
    placed = PlacedGraph(
        body.graph, tuple(left), _present(inputs), tuple(body.captures[at] for at in captures), tuple(once)
    )
    sources = tuple(body.captures.index(source) for u in walked if (source := u.ins[0]) is not None)
    tensors = all(
        isinstance(v.type, TensorType) and v.type.element != "string" for v, _ in (*placed.inputs, *placed.captures)
    )
    places = [once.index(v) for v in _present(outputs)]
    maps = tensors and len(once) == len(places) and not (kept or conditioned or decides)
    return Walk(
        placed, numbered, conditioned, decides, tuple(kept), tuple(collected), sources, choice(captures), choice(places),
        maps,
    )  # fmt: skip


def steady(body: PlacedGraph) -> PlacedGraph | None:
    """A Loop's body without its condition, if every trip leaves that true."""
    goes, *made = body.outputs
    always, again = _condition(body.units, body.inputs[1], goes)
    left = tuple(u for u in body.units if u is not again)
    if not always or (again is not None and (_reads(left, goes) or goes in made)):
        return None
    return PlacedGraph(body.graph, left, body.inputs, body.captures, tuple(made))


def _condition(units: Sequence[Unit], condition: Located, goes: Located) -> tuple[bool, Unit | None]:
    """Whether each trip leaves the condition true if it is given a true one, and the unit that does nothing but hand it on."""
    constant = goes[0].constant
    if goes == condition or (constant is not None and constant.all()):
        return True, None
    again = next((u for u in units if _is(u, "Identity") and u.outs[0] == goes and u.ins[0] == condition), None)
    return again is not None, again


def _is(unit: Unit, op_type: str) -> bool:
    return isinstance(unit, KernelUnit) and unit.node.op_type == op_type and unit.node.domain == ""


def _reads(units: Sequence[Unit], located: Located | None) -> int:
    """How often it is read."""
    return sum(u.ins.count(located) for u in units)


def _present(located: Sequence[Located | None]) -> tuple[Located, ...]:
    return tuple(v for v in located if v is not None)

"""Which trials prove a registry's claim: every structure in its own version and types, and one trial at least for each cell."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from onnxplug_testkit.kernels.cells import Cell, Claimed, claims, schemas
from onnxplug_testkit.kernels.retarget import Target, retarget
from onnxplug_testkit.kernels.structures import NEEDS_VERSION, Structure, structures
from onnxplug_testkit.kernels.trial import Trial
from onnxplug_testkit.subject import Subject

PER_VERSION = 6
"""Structures tried in the newest version an operator is claimed in; older ones get a third of them."""
ATTEMPTS = 60
"""Structures looked at for one cell before it is given up."""


@dataclass
class Plan:
    """Trials, and the cells they shall prove. ``unreached``: cells no structure leads to, with the reason."""

    cells: list[Cell] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    unreached: dict[Cell, str] = field(default_factory=dict)


def plan(subject: Subject, only: Collection[str] | None = None) -> Plan:
    """The plan for a subject's registry; ``only`` restricts it to operators."""
    with subject.instance() as instance:
        own = list(instance.call("get_op_schemas") or ()) if instance.supports("get_op_schemas") else []
        claimed = claims(instance.call("get_kernel_registry") or (), own)
    made = Plan()
    newest: dict[tuple[str, str], int] = {}
    for each in claimed:
        newest[each.key[:2]] = max(newest.get(each.key[:2], 0), each.key[2])
    extra = {(s.domain, s.name, s.since_version): s for s in own}
    for each in claimed:
        if only is None or each.key[1] in only:
            schema = schemas().get(each.key) or extra.get(each.key)
            _plan_version(made, each, schema, newest[each.key[:2]] == each.key[2])
    return made


def _plan_version(made: Plan, claimed: Claimed, schema: Any, newest: bool) -> None:
    cells = claimed.cells
    made.cells += cells
    if schema is None:
        made.unreached.update(dict.fromkeys(cells, "neither onnx nor get_op_schemas() has a schema for it"))
        return
    known = structures().get(claimed.key[:2], ())
    candidates = [s for s in known if claimed.key[2] >= NEEDS_VERSION.get(s.name, 0)]
    chosen = _spread(candidates, PER_VERSION if newest else PER_VERSION // 3)
    todo = dict.fromkeys(cells)
    seen: set[str] = set()
    for structure in chosen:
        _add(made, retarget(structure, claimed, {}, schema), todo, seen)
    for cell in cells:
        if cell in todo:
            wanted = {cell.parameter: cell.type} if cell.parameter else {}
            found = next(filter(None, (retarget(s, claimed, wanted, schema) for s in candidates[:ATTEMPTS])), None)
            _add(made, found, todo, seen)
    reason = "no structure fits its schema and types" if candidates else "the kit has no structure of this operator"
    made.unreached.update(dict.fromkeys(todo, reason))


def _add(made: Plan, target: Target | None, todo: dict[Cell, None], seen: set[str]) -> None:
    if target is None:
        return
    trial = Trial(target, constant=len(made.trials) % 2 == 1)
    if trial.id in seen:
        return
    seen.add(trial.id)
    made.trials.append(trial)
    for cell in target.cells:
        todo.pop(cell, None)


def _spread(items: list[Structure], count: int) -> Iterable[Structure]:
    """``count`` of the items, evenly over the list."""
    if len(items) <= count:
        return items
    return [items[i * len(items) // count] for i in range(count)]

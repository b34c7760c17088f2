"""Which trials prove a registry's claim: every structure in its own version and types, and one trial at least for each cell."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxplug.contract import Decline
from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug.plugins import ProviderInstance, registry
from onnxplug_testkit.kernels.cells import Cell, Claimed, Key, claims, schemas
from onnxplug_testkit.kernels.company import Company
from onnxplug_testkit.kernels.conversion import CONVERTS
from onnxplug_testkit.kernels.draw import can_draw
from onnxplug_testkit.kernels.generated import Generated
from onnxplug_testkit.kernels.misfits import Misfits, can_misfit
from onnxplug_testkit.kernels.retarget import Target, retarget, retargets
from onnxplug_testkit.kernels.shaped import shapes_of_results
from onnxplug_testkit.kernels.sized import Sized, sized
from onnxplug_testkit.kernels.structures import NEEDS_VERSION, Structure, structures
from onnxplug_testkit.kernels.together import Together
from onnxplug_testkit.kernels.trial import Trial
from onnxplug_testkit.models import CPU, Lookup, graph_of
from onnxplug_testkit.subject import Subject

Group = Sized | Together | Company | Misfits
"""A test of one operator that looks at more than one node and one size."""
PER_OLDER_VERSION = 2
"""Structures tried in each version before the newest that an operator is claimed in, where all are."""
ATTEMPTS = 60
"""Structures looked at for one cell before it is given up."""
PAIR_ATTEMPTS = 3
"""Structures looked at for a pair of types until one is taken."""
OTHER_TYPES = 6
"""Nodes of other types that stand beside those of one, in one session."""
_PACKED = re.compile(r"\(u?int[24]\)|\(float4")
"""Types of which several elements share a byte: where their number is odd, one is left."""


@dataclass
class Plan:
    """Trials, and the cells they shall prove. ``unreached``: cells no structure leads to, with the reason. ``generated``: tests over drawn
    structures, and ``groups``: of many sizes and of several nodes, beyond what a proof needs. ``only``: the operators it is restricted to.
    """

    cells: list[Cell] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    unreached: dict[Cell, str] = field(default_factory=dict)
    generated: list[Generated] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    only: Collection[str] | None = None


def plan(subject: Subject, only: Collection[str] | None = None) -> Plan:
    """The plan for a subject's registry; ``only`` restricts it to operators."""
    made = Plan(only=only)
    with subject.instance() as instance:
        own = [*_schemas(instance), *_lent(subject)]
        claimed = claims(instance.call("get_kernel_registry") or (), own)
        picky = instance.supports("get_capability")
        takes = functools.partial(_takes, instance, Lookup(instance), own) if picky else _takes_all
        later = functools.partial(_takes_later, subject, own) if picky else _takes_all
        newest: dict[tuple[str, str], int] = {}
        for each in claimed:
            newest[each.key[:2]] = max(newest.get(each.key[:2], 0), each.key[2])
        cells = frozenset(cell for each in claimed for cell in each.cells)
        extra = {(s.domain, s.name, s.since_version): s for s in own}
        for each in claimed:
            if only is None or each.key[1] in only:
                schema = schemas().get(each.key) or extra.get(each.key)
                latest = newest[each.key[:2]] == each.key[2]
                _plan_version(made, each, schema, latest, takes)
                if schema is not None and latest:
                    made.groups += sized(each, schema)
                    made.groups += _together(each.key, made.trials, cells)
                if schema is not None and can_draw(*each.key):
                    made.generated.append(Generated(each, schema, later))
    return made


def claimed_cells(subject: Subject, only: Collection[str] | None) -> list[Cell]:
    """The cells that the registry of a fresh instance claims, of all operators or of some."""
    with subject.instance() as instance:
        own = [*_schemas(instance), *_lent(subject)]
        claimed = claims(instance.call("get_kernel_registry") or (), own)
    return [cell for each in claimed if only is None or each.key[1] in only for cell in each.cells]


def _together(key: Key, trials: Sequence[Trial], cells: Collection[Cell]) -> list[Group]:
    """Those of the operator's structures that are in the version's plan with the types of the first, for nodes that are apart some of other
    types too; ``cells`` are all that are claimed."""
    tried = [t for t in trials if t.target.key == key]
    targets = [t.target for t in tried if t.weights]
    alike = [t for t in targets if t.binding == targets[0].binding]
    others = {str(t.target.binding): t.target for t in tried if alike and t.target.binding != alike[0].binding}
    both = [*alike, *list(others.values())[:OTHER_TYPES]]
    found: list[Group] = [Together(key, both)] if len(both) > 1 else []
    if can_misfit(key, alike):
        found.append(Misfits(key, alike))
    return [*found, Company(key, alike, cells)] if alike else found


def _schemas(instance: ProviderInstance) -> Sequence[Any]:
    return instance.call("get_op_schemas") or () if instance.supports("get_op_schemas") else ()


def _lent(subject: Subject) -> Sequence[Any]:
    """Schemas that the CPU provider brings, which stands behind every other in a session."""
    found = registry.record(CPU, load=True)
    if subject.name == CPU or found is None or not found.usable:
        return ()
    with Subject(registry.spec(CPU)).instance() as instance:
        return _schemas(instance)


def _takes_all(target: Target) -> bool:
    """For providers without a ``get_capability`` of their own."""
    return True


def _takes_later(subject: Subject, own: Sequence[Any], target: Target) -> bool:
    """``_takes`` of a fresh instance, for targets that are drawn when the plan's instance is closed."""
    with subject.instance() as instance:
        return _takes(instance, Lookup(instance), own, target)


def _takes(instance: ProviderInstance, kernels: Lookup, own: Sequence[Any], target: Target) -> bool:
    """Whether ``get_capability`` claims the node, or answers in a way that a trial has to look at."""
    made = target.model()
    try:
        if _answered(instance.call("get_capability", graph=graph_of(made, own), kernels=kernels)):
            return True
        shapes = shapes_of_results(target, made, instance.name)
        if not shapes:
            return False
        shaped = graph_of(target.model(shapes=shapes), own)
        return _answered(instance.call("get_capability", graph=shaped, kernels=kernels))
    except STATUS_ERRORS:
        return True


def _answered(answers: Sequence[Any]) -> bool:
    """Whether there is more to it than declining."""
    return not answers or not all(isinstance(answer, Decline) for answer in answers)


def _plan_version(made: Plan, claimed: Claimed, schema: Any, newest: bool, takes: Callable[[Target], bool]) -> None:
    cells = claimed.cells
    made.cells += cells
    if schema is None:
        made.unreached.update(dict.fromkeys(cells, "neither onnx nor get_op_schemas() has a schema for it"))
        return
    known = structures().get(claimed.key[:2], ())
    candidates = [s for s in known if NEEDS_VERSION.get(s.name, 0) <= claimed.key[2] <= s.until]
    chosen = candidates if newest else _spread(candidates, PER_OLDER_VERSION)
    todo = dict.fromkeys(cells)
    seen: set[str] = set()
    for structure in chosen:
        target = retarget(structure, claimed, {}, schema)
        _add(made, target, todo if target is None or takes(target) else {}, seen, weights=newest)
    for cell in cells:
        if cell in todo:
            wanted = {cell.parameter: cell.type} if cell.parameter else {}
            tried = sorted(candidates, key=_is_even) if _PACKED.search(cell.type) else candidates
            targets = (t for s in tried[:ATTEMPTS] for t in retargets(s, claimed, wanted, schema))
            _add(made, _first(targets, takes), todo, seen)
    if newest:
        _plan_pairs(made, claimed, candidates, schema, takes, seen)
    reason = "no structure fits its schema and types" if candidates else "the kit has no structure of this operator"
    if empty := [name for name, types in claimed.types.items() if not types]:
        reason = f"no type claimed for {empty[0]} is one of its schema, which are written like 'tensor(float)'"
    made.unreached.update(dict.fromkeys(todo, reason))


def _plan_pairs(
    made: Plan, claimed: Claimed, candidates: Sequence[Structure], schema: Any, takes: Callable[[Target], bool], seen: set[str]
) -> None:  # fmt: skip
    """Trials of each two types of two parameters: what is right for each type may be code of its own for both. Sequences and optionals go
    with one type each."""
    met = {pair for t in made.trials if t.target.key == claimed.key for pair in _pairs_of(t.target.binding)}
    plain = sorted(
        (name, text) for name, types in claimed.types.items() for text in types if text.startswith("tensor(")
    )
    if claimed.key[1] in CONVERTS:  # where a number is an edge of one pair or another
        candidates = sorted(candidates, key=_size)
    for one, other in itertools.combinations(plain, 2):
        if one[0] == other[0] or (one, other) in met:
            continue
        bound = (t for s in candidates for t in retargets(s, claimed, dict((one, other)), schema))
        target = _first(itertools.islice(bound, PAIR_ATTEMPTS), takes)
        _add(made, target, {}, seen)
        met |= _pairs_of(target.binding) if target is not None else set()


def _pairs_of(binding: Mapping[str, str]) -> set[tuple[tuple[str, str], ...]]:
    """The types that two parameters have, in the order of their names."""
    return set(itertools.combinations(sorted(binding.items()), 2))


def _size(structure: Structure) -> int:
    """By how many elements its first operand has, the most first."""
    first = structure.inputs[0] if structure.inputs else None
    return -first.size if isinstance(first, np.ndarray) else 0


def _is_even(structure: Structure) -> bool:
    """Whether its first operand, if it has one, has an even number of elements."""
    first = structure.inputs[0] if structure.inputs else None
    return not isinstance(first, np.ndarray) or first.size % 2 == 0


def _first(targets: Iterator[Target], takes: Callable[[Target], bool]) -> Target | None:
    """The first that is taken; the first of all where none is."""
    declined = None
    for target in targets:
        if takes(target):
            return target
        declined = declined or target
    return declined


def _add(made: Plan, target: Target | None, todo: dict[Cell, None], seen: set[str], weights: bool = False) -> None:
    if target is None:
        return
    trial = Trial(target, constant=len(made.trials) % 2 == 1, weights=weights)
    if trial.id in seen:
        return
    seen.add(trial.id)
    made.trials.append(trial)
    for cell in target.cells:
        todo.pop(cell, None)


def _spread(items: list[Structure], count: int) -> list[Structure]:
    """``count`` of the items, evenly over the list."""
    if len(items) <= count:
        return items
    return [items[i * len(items) // count] for i in range(count)]

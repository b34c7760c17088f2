"""From a placed graph and the shapes of one signature to a ``Plan``: which form each step takes, on which slots.

A step either writes *into* storage the plan laid out, or *returns* arrays (their shape, or the kernel's only form, asks
for it). A returned array may be a view of the step's inputs, so it keeps their storage alive as long as itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

from onnxplug.contract.kernels import Into, Kernel, TensorSpec
from onnxplug.contract.memory import HOST
from onnxplug.contract.records import record
from onnxplug.contract.types import SequenceType
from onnxplug.graph.schemas import Evaluate
from onnxplug.place.units import CopyUnit, KernelUnit, Located, PlacedGraph, RegionUnit, Unit
from onnxplug.plan.failures import describe, failures_of
from onnxplug.plan.slots import Numbers, Slots
from onnxplug.plan.specs import Memory, Specs
from onnxplug.plan.steps import Form, Keep, Plan, Slot, Step


@record(frozen=True, slots=True)
class Planner:
    """Makes plans for one placed graph. ``bound(unit)`` is the session's one kernel or body runner of a unit."""

    placed: PlacedGraph
    bound: Callable[[Unit], Any]
    evaluate: Evaluate
    memory: Memory
    """What the latest plan found, for one thread at a time."""

    def plan(self, inputs: Sequence[TensorSpec | None] | None) -> Plan:
        """The plan for input specs (graph inputs, then captures; None for what is no dense tensor), or for None the
        shape-generic plan."""
        located = (*self.placed.inputs, *self.placed.captures)
        specs = inputs if inputs is not None else [None] * len(located)
        given = dict(zip((v for v, _ in located), specs, strict=True))
        with self.memory.alone() as memory:
            known = Specs(given, self.evaluate, memory)
            for unit in () if inputs is None else self.placed.units:
                known.visit(unit)
        return _Build(self.placed, known, self.bound, Slots(known, self.placed.outputs)).finish()


@record(slots=True)
class _Build:
    placed: PlacedGraph
    specs: Specs
    bound: Callable[[Unit], Any]
    slots: Slots
    steps: list[Step] = field(default_factory=list)

    def finish(self) -> Plan:
        inputs = [self.slots.add(located, Keep.INPUT) for located in (*self.placed.inputs, *self.placed.captures)]
        units = self._needed([u for u in self.placed.units if not self._is_known(u)])
        for at, unit in enumerate(units):
            self.slots.last_reader.update((located, at) for located in unit.ins if located is not None)
        self.slots.last_reader.update((located, math.inf) for located in self.placed.outputs)
        for unit in units:
            with failures_of(unit):
                self._step(unit)
        outputs = [self._output(located) for located in self.placed.outputs]
        for slot in outputs:
            slot.may_show_slab = slot.keep is Keep.DYNAMIC and any(o.keep is Keep.SLAB for o in self.slots.shown(slot))
        slabs = self.slots.lay_out(len(self.steps))
        return Plan(
            tuple(self.slots.all), self._with_dead(), tuple(s.number for s in inputs), tuple(s.number for s in outputs), slabs,
            self._placeable([s.number for s in outputs]),
        )  # fmt: skip

    def _is_known(self, unit: Unit) -> bool:
        return bool(unit.outs) and all(located is None or located[0] in self.specs.known for located in unit.outs)

    def _needed(self, units: Sequence[Unit]) -> list[Unit]:
        """Units without the copies that only shape arithmetic would have read."""
        read = {located for unit in units for located in unit.ins} | set(self.placed.outputs)
        return [u for u in units if not isinstance(u, CopyUnit) or u.outs[0] in read]

    # ---- steps

    def _step(self, unit: Unit) -> None:
        if isinstance(unit, KernelUnit):
            self._kernel(unit)
            return
        ins = tuple(map(self.slots.number, unit.ins))
        if isinstance(unit, RegionUnit):
            self._region(unit, ins)
        elif isinstance(unit, CopyUnit):
            known = unit.outs[0] is not None and self.specs.of(unit.outs[0][0]) is not None
            self._add(Form.COPY, unit, ins, self._outs(unit, Keep.SLAB if known else Keep.DYNAMIC), None)
        else:
            self._add(Form.CONTROL, unit, ins, self._outs(unit, Keep.DYNAMIC), self.bound(unit))

    def _kernel(self, unit: KernelUnit) -> None:
        kernel = self.bound(unit)
        packed = kernel.packed if isinstance(kernel, Kernel) else ()
        ins = tuple(None if i in packed else self.slots.number(located) for i, located in enumerate(unit.ins))
        alias = self._alias_of(unit, ins)
        if alias is not None and unit.outs[0] is not None:
            slot = self.slots.add(unit.outs[0], alias.keep, root=alias)
            self._add(Form.ALIAS, unit, ins, (slot.number,), None)
            return
        if self._hands_on(unit, ins):
            self._add(Form.COPY, unit, ins[:1], self._outs(unit, Keep.SLAB), None)
            return
        into = self._into(unit, kernel) if isinstance(kernel, Kernel) else None
        if into is None:
            self._add(Form.RETURNS, unit, ins, self._outs(unit, Keep.DYNAMIC, lenders=ins), kernel)
            return
        outs = self._outs(unit, Keep.SLAB, overwritable=ins)
        workspace = self.slots.scratch(into.workspace, unit.provider.device, len(self.steps))
        self._add(Form.INTO, unit, ins, outs, into.call, workspace)

    def _into(self, unit: KernelUnit, kernel: Kernel) -> Into | None:
        ins = [None if located is None else self.specs.of(located[0]) for located in unit.ins]
        outs = [None if located is None else self.specs.of(located[0]) for located in unit.outs]
        operands = zip((*unit.ins, *unit.outs), (*ins, *outs), strict=True)
        if any(located is not None and spec is None for located, spec in operands):
            return None
        return kernel.bind(ins, outs)

    def _alias_of(self, unit: KernelUnit, ins: Numbers) -> Slot | None:
        """The slab slot whose bytes the unit's only output shows under another shape."""
        made = [located for located in unit.outs if located is not None]
        number = ins[unit.definition.alias[0]] if 0 in unit.definition.alias else None
        if number is None or len(made) != 1:
            return None
        slot, spec = self.slots.all[number], self.specs.of(made[0][0])
        fits = (
            spec is not None and slot.spec is not None and spec.nbytes == slot.spec.nbytes and slot.device == made[0][1]
        )
        return slot if fits and slot.owner.keep is Keep.SLAB else None

    def _hands_on(self, unit: KernelUnit, ins: Numbers) -> bool:
        """Whether the unit only gives a tensor of equal shape out of the graph: copied at once, it needs no kernel. What has
        further inputs may be declared with a shape that they do not give it."""
        only = len(unit.outs) == len(ins) == 1 and unit.outs[0] in self.placed.outputs
        if 0 not in unit.definition.alias or not only:
            return False
        number = ins[unit.definition.alias[0]]
        spec = None if unit.outs[0] is None else self.specs.of(unit.outs[0][0])
        slot = None if number is None else self.slots.all[number]
        return (
            slot is not None and slot.spec is not None and spec is not None and slot.device == unit.provider.device
            and slot.spec.shape == spec.shape and slot.spec.dtype == spec.dtype
        )  # fmt: skip

    def _region(self, unit: RegionUnit, ins: Numbers) -> None:
        bound = self.specs.region(unit)
        known = bound is not None and all(located is None or self.slots.spec(located) for located in unit.outs)
        workspace = None
        if bound is not None:  # else the frame asks, when it runs
            shapes = [self.specs.shape(located) for located in unit.ins]
            workspace = self.slots.scratch(bound.workspace(shapes), unit.provider.device, len(self.steps))
        updated = {i for sources in unit.compiled.inplace.values() for i in sources}
        lenders = tuple(number for i, number in enumerate(ins) if i not in updated)
        outs = self._outs(unit, Keep.SLAB if known else Keep.DYNAMIC, lenders=lenders)
        self._add(Form.REGION, unit, ins, outs, bound, workspace)

    def _outs(self, unit: Unit, keep: Keep, overwritable: Numbers = (), lenders: Numbers = ()) -> Numbers:
        numbers: list[int | None] = []
        for index, located in enumerate(unit.outs):
            if located is None or located[0] in self.specs.known:
                numbers.append(None)
                continue
            root = (
                self._overwritten(unit, index, located, overwritable)
                if overwritable and isinstance(unit, KernelUnit)
                else None
            )
            slot = self.slots.add(located, keep, root)
            self.slots.first.setdefault(slot.owner, len(self.steps))
            if keep is Keep.DYNAMIC:
                self.slots.lend(slot, lenders)
            numbers.append(slot.number)
        return tuple(numbers)

    def _overwritten(self, unit: KernelUnit, index: int, located: Located, ins: Numbers) -> Slot | None:
        """An input's slot this output may overwrite: equal in shape and dtype, in the slab, read by nothing else from
        here on."""
        spec = self.specs.of(located[0])
        if located in self.placed.outputs:
            return None  # a result gets storage of its own, so that only its last step depends on it
        for source in unit.definition.inplace.get(index, ()):
            number = ins[source] if source < len(ins) else None
            if number is None or spec is None:
                continue
            slot = self.slots.all[number]
            owner = slot.owner
            if owner.keep is not Keep.SLAB or slot.device != located[1] or slot.spec is None:
                continue
            same = slot.spec.shape == spec.shape and slot.spec.dtype == spec.dtype
            beside = [self.slots.all[n] for i, n in enumerate(ins) if n is not None and i != source]
            others = [o for each in beside for o in self.slots.shown(each)]
            if same and owner not in others and self.slots.busy_until(owner) <= len(self.steps):
                return slot
        return None

    def _add(
        self, form: Form, unit: Unit, ins: Numbers, outs: Numbers, call: Any, workspace: int | None = None
    ) -> None:
        name, op, provider = describe(unit)
        self.steps.append(Step(form, unit, name, op, provider, ins, outs, call, workspace))

    # ---- the end of the plan

    def _output(self, located: Located) -> Slot:
        """The slot of a result, in storage of its own that outlives the run."""
        number = self.slots.number(located)
        assert number is not None
        slot = self.slots.all[number]
        owner = slot.owner
        if owner.keep is Keep.SLAB:
            self.slots.freshen(owner)
            return slot
        if slot.device == HOST and slot.value is not None and isinstance(slot.value.type, SequenceType):
            for member in self.slots.shown(slot):  # else each would be copied out of the slab, in every trip of a loop
                if member.keep is Keep.SLAB and member.device == HOST:
                    self.slots.freshen(member)
        if owner.keep is Keep.DYNAMIC and (located[1] == HOST or not self.slots.borrowed.get(owner)):
            return slot  # on the host the frame sees, and copies, what shows bytes that are not its own
        result = self.slots.another(slot)
        unit = CopyUnit((located,), (located,))
        self._add(Form.COPY, unit, (slot.number,), (result.number,), None)
        return result

    def _placeable(self, results: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """See ``Plan``. Memory of the caller's shows no other result, and is an input's only where a region updates that and nothing
        reads it behind the region, or while the region runs, as copies to other devices may."""
        made = {n: (at, step) for at, step in enumerate(self.steps) for n in step.outs if n is not None}
        found: dict[int, tuple[int, ...]] = {}
        for number, result in enumerate(results):
            slot = self.slots.all[result]
            at, step = made.get(result, (0, None))
            mine = slot.keep is Keep.FRESH or (slot.keep is Keep.DYNAMIC and step and step.form is Form.REGION)
            shown = [s.number for s in self.slots.lent[slot.owner]]
            if not mine or slot.root is not None or slot.device != HOST or sum(n in shown for n in results) != 1:
                continue
            found[number] = ()
            if step is not None and isinstance(step.unit, RegionUnit):
                with failures_of(step.unit):
                    sources = [step.ins[i] for i in step.unit.compiled.inplace.get(step.outs.index(result), ())]
                found[number] = tuple(n for n in sources if n is not None and self._is_only_read_by(n, at))
        return found

    def _is_only_read_by(self, number: int, at: int) -> bool:
        """Whether an input in host memory may be written over by the step ``at``, which reads it in one operand."""
        slot = self.slots.all[number]
        if slot.keep is not Keep.INPUT or slot.device != HOST or self.slots.busy_until(slot) > at:
            return False
        shown = {s.number for s in self.slots.lent[slot]}
        if sum(n in shown for n in self.steps[at].ins) != 1:
            return False
        return not any(step.form is Form.COPY and shown.intersection(step.ins) for step in self.steps)

    def _with_dead(self) -> tuple[Step, ...]:
        """Steps with the dynamic slots to drop behind each; what a result may show stays until the run's results are
        taken."""
        kept = {self.slots.number(located) for located in self.placed.outputs} | {
            step.outs[0] for step in self.steps if isinstance(step.unit, CopyUnit) and step.unit.ins == step.unit.outs
        }
        read: dict[int, int] = {}
        for at, step in enumerate(self.steps):
            read.update((number, at) for number in (*step.ins, *step.outs) if number is not None)
        last = {
            s.number: max(read.get(shown.number, -1) for shown in self.slots.lent[s])
            for s in self.slots.all
            if s.keep is Keep.DYNAMIC
            and s.number in read
            and not any(shown.number in kept for shown in self.slots.lent[s])
        }
        dead: dict[int, list[int]] = {}
        for number, at in last.items():
            dead.setdefault(at, []).append(number)
        return tuple(replace(step, dead=tuple(dead[at])) if at in dead else step for at, step in enumerate(self.steps))

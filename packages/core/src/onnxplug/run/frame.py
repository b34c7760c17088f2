"""A frame: one run's working copy of a plan: a slab, the views into it and the calls with their operands bound.

Frames are pooled, so that a steady-state run binds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.contract.claims import CompiledRegion, RunContext, Watch
from onnxplug.contract.memory import HOST, Device
from onnxplug.plan.steps import Keep, Plan, Slot, Step
from onnxplug.run.binding import Binder, Caller
from onnxplug.run.calls import Call
from onnxplug.run.lender import Made, makes_of
from onnxplug.run.memory import Block, DeviceArray, Slab
from onnxplug.run.owned import are_alone, are_maps, begun, items_of, own, own_items, shows_alone, shows_one_of, to_own
from onnxplug.run.places import Places, taken

if TYPE_CHECKING:
    from onnxplug.run.runtime import Runtime

ALONE = 4
"""References to an array that nobody but the run holds: its slot, the list of results, a local name, and the call that counts."""


class Frame:
    """What a run works with. Used by one thread at a time. ``slab``: host memory that frames of other plans use too, at least as large as
    this plan needs, which the caller has taken; without it the frame allocates its own."""

    __slots__ = (
        "_binder",
        "_blocks",
        "_caller",
        "_constants",
        "_count",
        "_dynamic",
        "_held",
        "_made",
        "_others",
        "_outputs",
        "_overwritten",
        "_passing",
        "_placed",
        "_plain",
        "_results",
        "_running",
        "_runtime",
        "_streams",
        "_transient",
        "calls",
        "lasting",
        "plan",
        "slab",
        "step_of",
        "values",
    )

    def __init__(self, plan: Plan, runtime: Runtime, slab: Slab | None = None) -> None:
        self.slab, self._running = slab, slab is not None
        self.plan, self._runtime, self._count = plan, runtime, len(plan.inputs)
        self._caller = Caller()
        self._streams = runtime.streams()
        self.values: list[Any] = [None] * (len(plan.slots) + 1)  # the last stays None: what an omitted operand reads
        self._blocks: dict[Device, Block] = {
            d: Block(runtime.memories[d].allocator, n) for d, n in plan.slabs.items() if d != HOST
        }
        if HOST in plan.slabs:
            self.slab = self._blocks[HOST] = slab or Slab(runtime.memories[HOST].allocator, plan.slabs[HOST])
            self._running = True
        self._held: dict[int, DeviceArray] = {}
        self._placed: dict[int, Any] = {}
        self._binder = Binder(plan, runtime, self.values, self._held, self._streams, self._caller, self._placed)
        self._constants: list[DeviceArray] = []
        for slot in plan.slots:
            if slot.keep in (Keep.CONSTANT, Keep.SLAB):
                self.values[slot.number] = self._persistent(slot)
        self._transient = [s.number for s in plan.slots if s.keep in (Keep.INPUT, Keep.FRESH, Keep.DYNAMIC)]
        fresh = [s for s in plan.slots if s.keep is Keep.FRESH]
        self._made: list[Made] = makes_of(fresh, runtime.memories.lender)
        made = {number for number, *_ in self._made}
        results = set(plan.outputs)
        self._results = [s.number for s in fresh if s.number in results]
        self._others = sorted((s for s in fresh if s.number not in made), key=lambda s: s.root is not None)
        self.lasting = {
            id(array) for s in plan.slots if s.device == HOST and s.keep in (Keep.CONSTANT, Keep.SLAB)
            for array in (self.values[s.number], self.values[s.number].base)
        }  # fmt: skip
        self._outputs = [plan.slots[number] for number in plan.outputs]
        self._plain = all(slot.device == HOST for slot in self._outputs)
        self._dynamic = to_own(plan)
        passing = {s.number for s in plan.slots if s.keep in (Keep.DYNAMIC, Keep.FRESH)}
        self._passing = sorted(passing - set(plan.outputs)) if self._dynamic else []
        self._overwritten = [at for at in self._dynamic if self._outputs[at].may_show_slab]
        self.calls: list[Call] = []
        self.step_of: list[Step] = []
        for step in plan.steps:
            for call in self._binder.calls(step):
                self.calls.append(call)
                self.step_of.append(step)

    def __del__(self) -> None:
        self.leave()

    def enter(self) -> bool:
        """Take the slab for a run; False where another frame runs in it."""
        self._running = self.slab is None or self.slab.take()
        return self._running

    def leave(self) -> None:
        """Let other frames run in its slab."""
        if self._running and self.slab is not None:
            self.slab.give()
        self._running = False

    # ---- one run

    @property
    def options(self) -> Any:
        """The caller's RunOptions or None."""
        return self._caller.options

    @options.setter
    def options(self, options: Any) -> None:
        self._caller.options = options

    def watch(self, watch: Watch | None) -> None:
        """Report the parts of regions to ``watch`` from now on."""
        self._caller.watch = watch

    def fill(self, inputs: Sequence[Any], places: Places | None = None) -> None:
        """Put the run's inputs and fresh result tensors in their slots, or what the caller gives for these."""
        assert len(inputs) == self._count
        self.values[: self._count] = inputs
        if places is not None:
            self._placed.update(taken(places, self.plan))
        self._make()

    def refill(self, given: Sequence[Any]) -> None:
        """As ``fill``, where only the first inputs are others than before."""
        self.values[: len(given)] = given
        self._make()

    def _make(self) -> None:
        values, placed = self.values, self._placed
        for number, empty, shape, dtype in self._made:
            given = placed.get(number) if placed else None
            values[number] = empty(shape, dtype) if given is None else given
        for slot in self._others:  # an alias behind what it shows
            if slot.root is not None:
                values[slot.number] = self._alias(slot)
            else:
                assert slot.spec is not None
                made = self._runtime.memories[slot.device].empty(slot.spec.dtype, slot.spec.shape)
                self._held[slot.number], values[slot.number] = made, made.native

    def results(self, deep: bool = False) -> list[Any]:
        """What the plan computed: NumPy arrays and other host values, or DeviceArrays, that share no memory with
        anything else; ``deep`` says that items of sequences the run was given are not to be shared either."""
        results = self._outcome()
        if not self._dynamic:
            return results
        values, outputs = self.values, self.plan.outputs
        for number in self._passing:  # so that what only a result has left is seen to be its own
            values[number] = None
        lasting, taken, array = self.lasting, None, np.ndarray
        for at in self._dynamic:
            value = results[at]
            if self._placed and value is self._placed.get(outputs[at]):
                continue
            if value.__class__ is array:
                if getrefcount(value) <= ALONE and (value.base is None or shows_alone(value)):
                    continue  # nobody else knows it, as nobody does most
                if len(self._dynamic) == 1 and shows_one_of(value, values[: self._count]):
                    results[at] = value.copy()
                    continue
            elif value.__class__ is list and are_maps(value):
                results[at] = value.copy()
                continue
            elif deep and value.__class__ is list:
                values[outputs[at]] = None
                results[at] = own_items(value)
                continue
            elif value.__class__ is list:  # it may share items with what the run was given
                known = begun(value, values[: self._count])
                if not are_alone(value, known):
                    if taken is None:
                        taken = self._others_own(deep)
                    results[at] = value[:known] + own(value[known:], lasting, taken)
                elif known == len(value):
                    results[at] = value.copy()
                continue
            if taken is None:
                taken = self._others_own(deep)
            results[at] = own(value, lasting, taken)
        return results

    def handed_on(self) -> list[Any]:
        """What the plan computed, for the next trip of a loop: as ``results``, but it may share memory with anything except what
        the next run in this frame writes over."""
        results = self._outcome()
        for at in self._dynamic if self._held else self._overwritten:
            results[at] = own(results[at], self.lasting, set())
        return results

    def _outcome(self) -> list[Any]:
        if not self._plain:
            return list(map(self._result, self._outputs))
        values = self.values
        return [values[number] for number in self.plan.outputs]

    def _others_own(self, deep: bool) -> set[int]:
        """The ids of arrays of this run that are no result's own, and of what they show."""
        values = self.values
        arrays: list[Any] = values[: self._count]
        if deep:
            arrays += [item for value in arrays if value.__class__ is list for item in items_of(value)]
        if self._results:
            arrays += [values[number] for number in self._results]
        if self._held:  # what came from another memory space goes with the run
            arrays += [values[number] for number in self._held]
        return {*map(id, arrays), *[id(array.base) for array in arrays if isinstance(array, np.ndarray)]}

    @property
    def holds(self) -> bool:
        """Whether it holds device memory for the run under way."""
        return bool(self._held)

    @property
    def takes_outputs(self) -> bool:
        """Whether a caller may say where all results go: none is an input's, a constant's or another's memory."""
        numbers = self.plan.outputs
        return len(set(numbers)) == len(numbers) and {n for n, *_ in self._made} == set(numbers) and not self._others

    def results_made(self) -> list[Made]:
        """How each result is allocated, where ``takes_outputs``."""
        made = {each[0]: each for each in self._made}
        return [made[number] for number in self.plan.outputs]

    def stream(self, device: Device) -> Any:
        """The queue of work on a device for the frame's copies and regions; None where the provider has none."""
        return self._streams.get(device)

    def only_region(self) -> tuple[CompiledRegion, RunContext] | None:
        """The region and its context, where the plan is a single step that runs a region."""
        step = self.plan.steps[0] if len(self.plan.steps) == 1 else None
        if step is None or not isinstance(step.call, CompiledRegion):
            return None
        return step.call, self._binder.context(step)

    def only_function(self) -> Callable[..., bool] | None:
        """The function of that region, where a caller may say where all results go."""
        only = self.only_region() if self.takes_outputs and self._plain else None
        return None if only is None or self.plan.steps[0].workspace is None else only[0].function()

    def clear(self) -> None:
        """Drop whatever belonged to the run."""
        values = self.values
        for number in self._transient:
            values[number] = None
        if self._caller.options is not None:
            self._caller.options = None
        if self._held:
            self._held.clear()
        if self._placed:
            self._placed.clear()

    def _result(self, slot: Slot) -> Any:
        native = self.values[slot.number]
        if slot.device == HOST:
            return native
        held = self._held.get(slot.owner.number)
        return DeviceArray(self._runtime.memories[slot.device], native, held.block if held else None)

    # ---- slots

    def _persistent(self, slot: Slot) -> Any:
        if slot.constant is not None:
            constant = self._runtime.constant(slot.value, slot.constant, slot.device)
            if not isinstance(constant, DeviceArray):
                return constant
            self._constants.append(constant)
            return constant.native
        assert slot.spec is not None
        view = self._runtime.memories[slot.device].view
        return view(self._blocks[slot.device].buffer, slot.owner.offset, slot.spec.dtype, slot.spec.shape)

    def _alias(self, slot: Slot) -> Any:
        assert slot.spec is not None
        if slot.device == HOST:
            return self.values[slot.owner.number].reshape(slot.spec.shape)
        block = self._held[slot.owner.number].block
        assert block is not None
        return self._runtime.memories[slot.device].view(block.buffer, 0, slot.spec.dtype, slot.spec.shape)

"""The steps of a plan as calls on the values of one frame.

Operands are looked up when the frame is made wherever that is possible: a call whose operands all live in the slab or are constants is
a ``functools.partial`` made once; only calls that touch the run's inputs, results or returned arrays fetch operands by slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from onnxplug.contract.claims import RunContext, Watch
from onnxplug.contract.errors import Fail
from onnxplug.contract.memory import HOST, Device
from onnxplug.contract.types import is_device_type
from onnxplug.place.units import RegionUnit
from onnxplug.plan.steps import Form, Keep, Plan, Step
from onnxplug.run.calls import (
    Call,
    Get,
    Wanted,
    all_of,
    choice,
    dropping,
    fitting,
    overwriting,
    returning,
    take,
    writing,
)
from onnxplug.run.memory import DeviceArray
from onnxplug.run.owned import copy_host

if TYPE_CHECKING:
    from onnxplug.run.runtime import Runtime


class Caller:
    """The options and the observer of the run under way. Calls refer to this rather than to their frame: there is no cycle then, and a
    frame is freed as soon as nobody uses it."""

    __slots__ = ("options", "watch")

    def __init__(self) -> None:
        self.options: Any = None
        self.watch: Watch | None = None

    def cancelled(self) -> bool:
        """Whether the run was asked to end."""
        return self.options is not None and bool(self.options.terminate)

    def watched(self) -> Watch | None:
        """What is to be told of each kernel, if anything is."""
        return self.watch


class Binder:
    """Makes the calls of one frame. ``values`` and ``held`` are the frame's: what its slots hold, and what they hold of other memory
    spaces for the run; ``placed``: where the caller wants results."""

    __slots__ = ("_caller", "_held", "_placed", "_plan", "_runtime", "_streams", "_values")

    def __init__(
        self,
        plan: Plan,
        runtime: Runtime,
        values: list[Any],
        held: dict[int, DeviceArray],
        streams: Mapping[Device, Any],
        caller: Caller,
        placed: Mapping[int, Any],
    ) -> None:
        self._plan, self._runtime, self._values, self._held, self._placed = plan, runtime, values, held, placed
        self._streams, self._caller = streams, caller

    def calls(self, step: Step) -> list[Call]:
        """The calls that carry out a step: none for an alias, which shows bytes that are there already."""
        if step.form is Form.ALIAS:
            return []
        make = {
            Form.INTO: self._into, Form.RETURNS: self._returns, Form.COPY: self._copy, Form.REGION: self._region,
            Form.CONTROL: self._control,
        }[step.form]  # fmt: skip
        calls = [make(step)]
        if step.dead and step is not self._plan.steps[-1]:  # behind the last one ``clear`` comes anyway
            calls.append(dropping(self._values, self._held, step.dead))
        return calls

    def context(self, step: Step) -> RunContext:
        """The context that the region of a step runs with."""
        assert isinstance(step.unit, RegionUnit)
        workspace = None if step.workspace is None else self._values[step.workspace]
        stream = self._streams.get(step.unit.provider.device)
        return RunContext(stream, workspace, self._runtime.threads, self._caller.cancelled, self._caller.watched)

    def _is_bound(self, number: int | None) -> bool:
        return number is None or self._plan.slots[number].keep in (Keep.CONSTANT, Keep.SLAB)

    def _numbers(self, numbers: Sequence[int | None]) -> list[int]:
        absent = len(self._plan.slots)
        return [absent if n is None else n for n in numbers]

    def _getter(self, numbers: Sequence[int | None]) -> Get:
        return choice(self._numbers(numbers))

    def _into(self, step: Step) -> Call:
        assert step.call is not None
        operands = (*step.ins, *step.outs) + (() if step.workspace is None else (step.workspace,))
        get = self._getter(operands)
        if all(map(self._is_bound, operands)):
            return partial(step.call, *get(self._values))
        return writing(step.call, get, self._values)

    def _returns(self, step: Step) -> Call:
        return returning(step.call, self._values, self._numbers(step.ins), step.outs, self._wanted(step.outs))

    def _wanted(self, numbers: Sequence[int | None]) -> list[Wanted | None]:
        """What outputs in host memory have to be, as far as the plan says; strings come as arrays of several types."""
        found: list[Wanted | None] = []
        for number in numbers:
            slot = None if number is None else self._plan.slots[number]
            value = None if slot is None or slot.device != HOST else slot.value
            dtype = None if value is None or not is_device_type(value.type) else value.dtype
            shape = None if slot is None or slot.spec is None else slot.spec.shape
            found.append(None if dtype is None else Wanted(dtype, shape))
        return found

    def _copy(self, step: Step) -> Call:
        source, target = step.ins[0], step.outs[0]
        assert source is not None and target is not None
        at, to = self._plan.slots[source].device, self._plan.slots[target].device
        memories, values, held, stream = self._runtime.memories, self._values, self._held, self._streams.get(to)
        if self._plan.slots[target].keep is not Keep.DYNAMIC:
            if at == to == HOST:
                return overwriting(values, target, source)
            return lambda: memories.copy(values[source], at, values[target], to, stream)

        def copy() -> None:
            native = values[source]
            if native is None or (at == to == HOST):
                values[target] = copy_host(native)
                return
            made = memories.move(native, at, to, stream)
            held[target], values[target] = made, made.native

        return copy

    def _region(self, step: Step) -> Call:
        bound: Any = step.call
        unit, runtime = step.unit, self._runtime
        assert isinstance(unit, RegionUnit)
        get_in, get_out, values = self._getter(step.ins), self._getter(step.outs), self._values
        memories, planned = runtime.memories, self.context(step)
        slots = [None if n is None else self._plan.slots[n] for n in step.outs]
        wanted = self._wanted(step.outs)
        if bound is None:
            from onnxplug.run.unplanned import Unplanned

            return Unplanned(unit, runtime, planned, wanted).step(get_in, values, step.outs, self._placed)
        known = all(s is None or s.keep is not Keep.DYNAMIC for s in slots)

        def region() -> None:
            inputs = get_in(values)
            if known and bound.run_into(planned, inputs, get_out(values)):
                return
            results = bound(planned, *inputs)
            if not known:
                take(results, values, step.outs, wanted)
                return
            for slot, native, each in zip(slots, all_of(results, slots), wanted, strict=True):
                if slot is None:
                    continue
                native = fitting(native, each)
                assert slot.spec is not None, "what is known has a spec"
                if tuple(native.shape) != slot.spec.shape:
                    raise RuntimeError(
                        f"it gave shape {tuple(native.shape)} where its output_shapes() said {slot.spec.shape}"
                    )
                memories.copy(native, slot.device, values[slot.number], slot.device)

        function = bound.function() if known and step.workspace is not None else None
        if function is None:
            return region
        get, caller = self._getter((step.workspace, *step.ins, *step.outs)), self._caller

        def direct() -> None:
            if caller.watch is not None or not function(*get(values)):
                region()

        return direct

    def _control(self, step: Step) -> Call:
        control: Any = step.call
        runner = control.bind([None if n is None else self._plan.slots[n].spec for n in step.ins])
        get, values, held, caller = self._getter(step.ins), self._values, self._held, self._caller
        specs = [None if n is None else self._plan.slots[n].spec for n in step.outs]
        outs = list(zip(step.outs, [None if spec is None else spec.shape for spec in specs], strict=True))

        def run() -> None:
            for (number, shape), result in zip(outs, runner(get(values), caller.options), strict=True):
                if number is None:
                    continue
                if shape is not None and result.shape != shape:
                    raise Fail(
                        f"{step.op_type} gave shape {result.shape} where its bodies were planned to give {shape}"
                    )
                if isinstance(result, DeviceArray):
                    held[number], result = result, result.native
                values[number] = result

        return run

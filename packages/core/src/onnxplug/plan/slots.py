"""The slots of a plan in the making: the bytes that each shows or may show, from which step to which they are used, and where they lie."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field

import numpy as np

from onnxplug.contract.kernels import TensorSpec
from onnxplug.contract.memory import Device
from onnxplug.contract.records import record
from onnxplug.contract.storage import Storage, assign_offsets
from onnxplug.place.units import Located
from onnxplug.plan.specs import Specs
from onnxplug.plan.steps import Keep, Slot

Numbers = tuple[int | None, ...]


@record(slots=True)
class Slots:
    """Slots by number, and by the values that they hold. ``results`` are the graph's outputs."""

    specs: Specs
    results: Collection[Located]
    all: list[Slot] = field(default_factory=list)
    by_located: dict[Located, Slot] = field(default_factory=dict)
    last_reader: dict[Located, float] = field(default_factory=dict)
    lent: dict[Slot, list[Slot]] = field(default_factory=dict)
    """Owner -> slots that show, or may show, its bytes."""
    borrowed: dict[Slot, list[Slot]] = field(default_factory=dict)
    """Slot -> owners whose bytes it may show."""
    first: dict[Slot, int] = field(default_factory=dict)
    """Owner -> step that makes it."""

    def add(self, located: Located, keep: Keep, root: Slot | None = None) -> Slot:
        """A slot for a value in one memory space; ``root`` is the slot whose bytes it shows."""
        value, device = located
        slot = Slot(len(self.all), value, device, self.spec(located), keep, root)
        self.all.append(slot)
        self.by_located[located] = slot
        self.lent.setdefault(slot.owner, []).append(slot)
        return slot

    def spec(self, located: Located) -> TensorSpec | None:
        """What is known of a value; of strings if they are results, which never lie in a slab."""
        found = self.specs.of(located[0])
        return self.specs.words.get(located[0]) if found is None and located in self.results else found

    def number(self, located: Located | None) -> int | None:
        """The slot that an operand is read from, None for one that is omitted; constants get theirs here."""
        if located is None:
            return None
        slot = self.by_located.get(located)
        if slot is None:
            slot = self.add(located, Keep.CONSTANT)
            known = self.specs.constant(located[0])
            slot.constant = located[0].constant if known is None else known
            assert slot.constant is not None, f"value {located[0].name} is read before it is made"
        return slot.number

    def busy_until(self, owner: Slot) -> float:
        """Last step that reads the owner's bytes through any slot that shows them."""
        return max(
            (self.last_reader.get((s.value, s.device), -1) for s in self.lent[owner] if s.value is not None), default=-1
        )

    def lend(self, slot: Slot, lenders: Numbers) -> None:
        """``slot`` may show the bytes of these operands, and of whatever they may show."""
        for number in lenders:
            for owner in () if number is None else self.shown(self.all[number]):
                if owner.device == slot.device and owner not in self.borrowed.setdefault(slot, []):
                    self.borrowed[slot].append(owner)
                    self.lent[owner].append(slot)

    def shown(self, slot: Slot) -> list[Slot]:
        """Owners whose bytes a slot may show."""
        return [slot.owner, *self.borrowed.get(slot.owner, ())]

    def scratch(self, nbytes: int, device: Device, at: int) -> int | None:
        """The slot of a step's workspace; None where it wants none."""
        if nbytes <= 0:
            return None
        slot = Slot(len(self.all), None, device, TensorSpec(np.dtype(np.uint8), (nbytes,)), Keep.SLAB)
        self.all.append(slot)
        self.lent[slot] = [slot]
        self.first[slot] = at
        return slot.number

    def another(self, slot: Slot) -> Slot:
        """A slot for a copy of what is in this one, in storage of its own."""
        result = Slot(len(self.all), slot.value, slot.device, slot.spec, Keep.FRESH if slot.spec else Keep.DYNAMIC)
        self.all.append(result)
        self.lent[result] = [result]
        return result

    def freshen(self, owner: Slot) -> None:
        """Storage of its own in each run."""
        for shown in self.lent[owner]:
            shown.keep = Keep.FRESH if shown.owner is owner else shown.keep

    def lay_out(self, end: int) -> dict[Device, int]:
        """Offsets of all slab storages, device by device."""
        slabs: dict[Device, int] = {}
        owners: dict[Device, list[tuple[Slot, Storage]]] = {}
        for slot, first in self.first.items():
            if slot.keep is Keep.SLAB and slot.spec is not None:
                last = first if slot.value is None else max(first, int(min(self.busy_until(slot), end)))
                owners.setdefault(slot.device, []).append((slot, Storage(slot.spec.nbytes, first, last)))
        for device, pairs in owners.items():
            slabs[device] = assign_offsets([storage for _, storage in pairs])
            for slot, storage in pairs:
                slot.offset = storage.offset
        return slabs

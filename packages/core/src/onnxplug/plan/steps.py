"""The plan's own types: frozen, shared by all runs and threads. Operands are slot numbers; a slot is one value in one
memory space."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np

from onnxplug.contract.kernels import TensorSpec
from onnxplug.contract.memory import Device
from onnxplug.contract.records import record
from onnxplug.graph.value import Value
from onnxplug.place.units import Unit


class Form(Enum):
    """How a step leaves its outputs."""

    INTO = "into"  # writes into views the frame holds
    RETURNS = "returns"  # gives fresh native arrays
    ALIAS = "alias"  # nothing to do: the output is another view of the input's bytes
    COPY = "copy"  # one tensor from one memory space to another
    REGION = "region"  # a compiled region
    CONTROL = "control"  # If, Loop, Scan, text generation


class Keep(Enum):
    """Where a slot's tensor lives."""

    CONSTANT = "constant"  # made once per session
    INPUT = "input"  # given by the caller of the run
    SLAB = "slab"  # at a fixed offset of the frame's slab
    FRESH = "fresh"  # allocated for this run: results handed to the caller
    DYNAMIC = "dynamic"  # made by a step whose output shape was not known


@record(slots=True, eq=False)
class Slot:
    """One value in one memory space. ``root`` is the slot that owns the bytes (itself unless it is an alias)."""

    number: int
    value: Value | None
    device: Device
    spec: TensorSpec | None
    keep: Keep
    root: Slot | None = None
    offset: int = 0
    constant: np.ndarray | None = None
    may_show_slab: bool = False
    """Whether bytes of a dynamic slot may be those of slots in the slab."""

    @property
    def owner(self) -> Slot:
        """The slot whose bytes these are."""
        slot = self
        while slot.root is not None:
            slot = slot.root
        return slot


@record(frozen=True, slots=True, eq=False)
class Step:
    """One call. ``call`` is the bound kernel, region or body runner; ``workspace`` a slot or None; ``dead`` dynamic
    slots to drop after it."""

    form: Form
    unit: Unit
    name: str
    op_type: str
    provider: str
    ins: tuple[int | None, ...]
    outs: tuple[int | None, ...]
    call: Callable[..., Any] | None
    workspace: int | None = None
    dead: tuple[int, ...] = ()


@record(frozen=True, slots=True, eq=False)
class Plan:
    """Everything a frame needs. ``slabs``: bytes per device. ``inputs``/``outputs``: slot numbers in the graph's order
    (captures follow inputs); inputs are the first slots."""

    slots: tuple[Slot, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    slabs: Mapping[Device, int]
    placeable: Mapping[int, tuple[int, ...]]
    """Results, by number, that may be written where the caller wants them -> inputs, by number, whose memory that may be."""

"""An operator that is claimed, and names of element types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxplug.contract import NodeView
from onnxplug_ep_opencl.kernels.call import Call, Largest, Lower
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.launch import Job

FLOATS = ("float16", "bfloat16", "float", "double")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTEGERS
ALL = (*NUMBERS, "bool")
MS = "com.microsoft"


def _nothing(call: Call) -> Job:
    return Job()


def _first(node: NodeView, rank: int) -> int:
    return 0


@dataclass(frozen=True)
class Entry:
    """One operator over a range of schema versions. ``create`` makes kernels that do not launch anything; ``refuse`` says why a node is
    declined all the same; ``alias``: the output shows the input's bytes; ``pack``: constant inputs that the kernel keeps in a form of its
    own; ``largest`` and ``counted``: the longest output there may be, where the data decides how long it is, and along which dimension
    (``CountedKernel``)."""

    op_type: str
    since: int
    until: int
    types: Mapping[str, Sequence[str]]
    lower: Lower = _nothing
    host_inputs: Sequence[int] = ()
    host_outputs: Sequence[int] = ()
    inplace: tuple[int, ...] = ()
    alias: bool = False
    create: Callable[[NodeView], Any] | None = None
    pack: Callable[[NodeView, Target], tuple[int, ...]] | None = None
    refuse: Callable[[NodeView], str | None] | None = None
    domain: str = ""
    largest: Largest | None = None
    counted: Callable[[NodeView, int], int] = _first

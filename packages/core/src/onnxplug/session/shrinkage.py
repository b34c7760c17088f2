"""Run option ``memory.enable_memory_arena_shrinkage``: after the run, memory that nothing uses goes back to the devices it
names ("cpu:0;cuda:0")."""

from __future__ import annotations

from collections.abc import Iterable

from onnxplug.contract.arena import Arena
from onnxplug.contract.errors import InvalidArgument
from onnxplug.contract.memory import HOST, Device
from onnxplug.run import GraphRunner, Memories
from onnxplug.session.options import RunOptions

OPTION = "memory.enable_memory_arena_shrinkage"


def to_shrink(options: RunOptions | None, memories: Memories) -> list[Arena]:
    """The arenas that the option names. InvalidArgument for a first device without an arena here, and for text that names
    no device. Devices behind the first may be missing, as in onnxruntime: programs write ``cpu:0;gpu:0`` on any machine."""
    text = "" if options is None else options._config_entries.get(OPTION, "")
    first, *others = text.split(";")
    if not text:
        return []
    required = _arena(first, memories)
    if required is None:
        raise InvalidArgument(
            f"Did not find an arena based allocator registered for device-id combination in the memory arena shrink list: {first}"
        )
    found = (_arena(entry, memories) for entry in others if entry)
    return [required, *(arena for arena in found if arena is not None)]


def shrink(arenas: Iterable[Arena], memories: Memories, runners: Iterable[GraphRunner]) -> None:
    """Drop the runners' idle memory, and give the arenas' free regions back, of the host also what results had."""
    for runner in runners:
        runner.release()
    for arena in arenas:
        arena.shrink()
        if arena.device == HOST and memories.lender is not None:
            memories.lender.clear()


def _arena(entry: str, memories: Memories) -> Arena | None:
    """The arena of one device, None where there is none. InvalidArgument for text that names no device."""
    kind, _, number = entry.partition(":")
    spaces = {space.device: space.allocator for space in memories}
    kinds = {"gpu": [d.kind for d in spaces if d.kind != "cpu"]}.get(kind, [kind])  # onnxruntime's word for them all
    if kind not in ("cpu", "gpu") and not any(device.kind == kind for device in spaces):
        raise InvalidArgument(f"Unsupported device specified in the memory arena shrink list: {kind}")
    if number and not number.isdecimal():
        raise InvalidArgument(f"Unsupported device id in the memory arena shrink list: {number}")
    found = (spaces.get(Device(each, int(number or 0))) for each in kinds)
    return next((allocator for allocator in found if isinstance(allocator, Arena)), None)

"""L1: copies in and out of the provider's memory."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from onnxplug.contract import numpy_dtype
from onnxplug.contract.types import ELEMENT_NAMES
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.space import Space, space_of, spaces_of
from onnxplug_testkit.subject import Subject

SHAPES = ((), (1,), (0,), (2, 0, 3), (5,), (3, 7), (2, 3, 4, 5), (1, 1, 1, 1, 1, 9), (1, 2, 1, 1, 2, 1, 1, 2, 1, 3))
GUARD = 64
BYTES = np.dtype(np.uint8)
THREADS = 3
PATIENCE = 60
"""Seconds that threads wait for each other."""
INSIDE = (
    ("float", (33, 5)), ("uint8", (13,)), ("bfloat16", (7,)), ("int4", (9,)), ("bool", (1, 3)), ("double", ()), ("int64", (2, 0)),
)  # fmt: skip
"""Tensors that are copied within a device and between two."""
ELEMENTS = tuple(name for name in ELEMENT_NAMES.values() if name != "string")


@check("memory.round_trip")
def round_trip(subject: Subject, seed: int) -> None:
    """Every element type and shape comes back bit for bit, NaN payloads included."""
    rng = np.random.default_rng(seed)
    with space_of(subject) as space:
        for element in ELEMENTS:
            for shape in SHAPES:
                array = noise(rng, element, shape)
                with space.block(array.nbytes) as buffer:
                    native = space.view(buffer, array.dtype, shape)
                    space.write(array, native)
                    back = space.read(native)
                assert back.dtype == array.dtype and back.shape == shape, (
                    f"{element}{shape} comes back as {back.dtype}{back.shape}"
                )
                assert back.tobytes() == array.tobytes(), f"{element}{shape} comes back changed"


@check("memory.copies_are_complete")
def copies_are_complete(subject: Subject, seed: int) -> None:
    """A copy without a stream is complete on return: the source may be overwritten, the destination read at once."""
    rng = np.random.default_rng(seed)
    with space_of(subject) as space, space.block(8 << 20) as buffer:
        native = space.view(buffer, np.dtype(np.float32), (2 << 20,))
        for _ in range(3):
            array = rng.standard_normal(2 << 20).astype(np.float32)
            kept = array.copy()
            space.write(array, native)
            array.fill(np.nan)
            back = space.read(native)
            assert back.tobytes() == kept.tobytes(), "a copy is not complete when it returns"


@check("memory.stream_copies")
def stream_copies(subject: Subject, seed: int) -> None:
    """A copy that is ordered on a stream is complete after ``sync()``, in the order in which copies were given."""
    rng = np.random.default_rng(seed)
    with space_of(subject) as space, space.block(4 << 20) as buffer:
        instance = space.instance
        if space.transfer is None or not instance.supports("create_stream"):
            raise Unsupported("streams")
        if not instance.supports("sync"):
            raise Unsupported("streams", "there is no sync() that says when a copy on one is complete")
        stream = instance.call("create_stream", device=space.allocator.device)
        native = space.view(buffer, np.dtype(np.float32), (1 << 20,))
        for _ in range(3):
            arrays = [rng.standard_normal(1 << 20).astype(np.float32) for _ in range(2)]
            for array in arrays:
                space.transfer.copy(array, native, stream)
            instance.call("sync")
            assert space.read(native).tobytes() == arrays[-1].tobytes(), (
                "a copy on a stream is not complete after sync()"
            )
        device = space.allocator.device
        if not space.transfer.can_copy(device, device):
            return
        with space.block(4 << 20) as other:
            second = space.view(other, np.dtype(np.float32), (1 << 20,))
            turned = [array[::-1].copy() for array in arrays]  # held, as sources are until sync()
            for array, other_way in zip(arrays, turned, strict=True):
                space.transfer.copy(array, native, stream)
                space.transfer.copy(native, second, stream)
                space.transfer.copy(other_way, native, stream)
            instance.call("sync")
            assert space.read(second).tobytes() == arrays[-1].tobytes(), (
                "copies within the device on a stream are not made in the order in which they were given"
            )


@check("memory.guard_bands")
def guard_bands(subject: Subject, seed: int) -> None:
    """A copy into part of a block, or of a host array at any address, touches no byte before or behind it."""
    rng = np.random.default_rng(seed)
    with space_of(subject) as space:
        guard = space.step(GUARD)
        for element in ("uint8", "float16", "float", "double", "bool", "bfloat16", "int4"):
            array = noise(rng, element, (13,))
            total = guard + array.nbytes + GUARD
            with space.block(total) as buffer:
                whole = space.view(buffer, BYTES, (total,))
                before = rng.integers(0, 256, total).astype(np.uint8)
                space.write(before, whole)
                native = space.view(buffer, array.dtype, array.shape, guard)
                space.write(array, native)
                _kept(space.read(whole), before, array, guard, element)
                for start in (GUARD, GUARD + 1):
                    held = before.copy()
                    there = held[start : start + array.nbytes].view(array.dtype)
                    space.read_into(native, there)
                    _kept(held, before, array, start, f"{element}, in a host array")
                    there[...] = array[::-1]
                    space.write(there, native)
                    assert space.read(native).tobytes() == array[::-1].tobytes(), (
                        f"{element}: a copy from part of a host array shows other bytes"
                    )
                    space.write(array, native)


@check("memory.within_the_device")
def within_the_device(subject: Subject, seed: int) -> None:
    """Where the transfer says it copies within its memory, it does, from and to any part of a block, and touches nothing else."""
    with space_of(subject) as space:
        device = space.allocator.device
        if space.transfer is None or not space.transfer.can_copy(device, device):
            raise Unsupported("device_to_device")
        rng = np.random.default_rng(seed)
        _between(rng, space, space)
        _within_a_block(rng, space)


@check("memory.between_devices")
def between_devices(subject: Subject, seed: int) -> None:
    """Where a transfer says it copies between two devices of the provider, it does, both ways, as it does within one."""
    with spaces_of(subject) as spaces:
        transfers = [space.transfer for space in spaces if space.transfer is not None]
        ways = [
            (one, two)
            for one, two in (spaces, spaces[::-1])
            if any(t.can_copy(one.allocator.device, two.allocator.device) for t in transfers)
        ]
        if not ways:
            raise Unsupported("device_to_device")
        for source, destination in ways:
            _between(np.random.default_rng(seed), source, destination)


@check("memory.copies_of_threads")
def copies_of_threads(subject: Subject, seed: int) -> None:
    """Threads that copy at once, each to and from blocks of its own, get back what they wrote."""
    with space_of(subject) as space, ThreadPoolExecutor(THREADS) as pool:
        together = threading.Barrier(THREADS)

        def work(number: int) -> str:
            rng = np.random.default_rng([seed, number])
            together.wait(PATIENCE)
            for round_ in range(12):
                array = np.frombuffer(rng.bytes(1 + 5000 * number + 777 * round_), np.uint8)
                with space.block(array.nbytes) as buffer:
                    native = space.view(buffer, array.dtype, array.shape)
                    space.write(array, native)
                    if space.read(native).tobytes() != array.tobytes():
                        return f"{array.nbytes} bytes that a thread copies come back changed"
            return ""

        for said in pool.map(work, range(THREADS)):
            assert not said, said


def _between(rng: np.random.Generator, source: Space, destination: Space) -> None:
    """Copies from one memory to one that may be another, by each transfer that says it can."""
    one, two = source.allocator.device, destination.allocator.device
    transfers = [s.transfer for s in {id(s): s for s in (destination, source)}.values() if s.transfer is not None]
    guard = max(source.step(GUARD), destination.step(GUARD))
    for element, shape in INSIDE:
        array = noise(rng, element, shape)
        for starts in ((0, 0), (0, guard), (guard, 0), (guard, 3 * guard)):
            sizes = [start + array.nbytes + GUARD for start in starts]
            before = [np.frombuffer(rng.bytes(size), np.uint8) for size in sizes]
            what = (
                f"{element}{shape} copied from byte {starts[0]} of a block of {one} to byte {starts[1]} of one of {two}"
            )
            for transfer in (t for t in transfers if t.can_copy(one, two)):
                with source.block(sizes[0]) as there, destination.block(sizes[1]) as here:
                    wholes = source.view(there, BYTES, (sizes[0],)), destination.view(here, BYTES, (sizes[1],))
                    source.write(before[0], wholes[0])
                    destination.write(before[1], wholes[1])
                    native = source.view(there, array.dtype, shape, starts[0])
                    source.write(array, native)
                    transfer.copy(native, destination.view(here, array.dtype, shape, starts[1]))
                    _kept(source.read(wholes[0]), before[0], array, starts[0], f"{what}, the source")
                    source.write(before[0], wholes[0])
                    _kept(destination.read(wholes[1]), before[1], array, starts[1], what)


def _within_a_block(rng: np.random.Generator, space: Space) -> None:
    """Copies from one part of a block to another, either way."""
    assert space.transfer is not None
    part = space.step(GUARD)
    for source, destination in ((0, part), (part, 0)):
        array, other = (np.frombuffer(rng.bytes(GUARD), BYTES) for _ in range(2))
        with space.block(2 * part) as block:
            there, here = (space.view(block, BYTES, (GUARD,), start) for start in (source, destination))
            space.write(array, there)
            space.write(other, here)
            space.transfer.copy(there, here)
            assert space.read(here).tobytes() == array.tobytes(), (
                "a copy from one part of a block to another is not made"
            )
            assert space.read(there).tobytes() == array.tobytes(), "a copy within a block changes its source"


def _kept(after: np.ndarray, before: np.ndarray, array: np.ndarray, start: int, what: str) -> None:
    """AssertionError unless bytes are as before but for those of ``array`` from ``start`` on."""
    end = start + array.nbytes
    assert after[:start].tobytes() == before[:start].tobytes(), f"{what}: bytes before the tensor change"
    assert after[end:].tobytes() == before[end:].tobytes(), f"{what}: bytes behind the tensor change"
    assert after[start:end].tobytes() == array.tobytes(), f"{what}: the tensor has other bytes"


def noise(rng: np.random.Generator, element: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random bits as an array of an element type; types narrower than a byte keep their unused bits zero."""
    dtype = numpy_dtype(element)
    if element == "bool":
        return rng.integers(0, 2, shape).astype(dtype)
    if element in ("int4", "uint4", "int2", "uint2") or element.startswith(("float4", "float6")):
        return rng.integers(0, 2, shape).astype(np.int8).astype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return np.frombuffer(rng.bytes(size), dtype).reshape(shape).copy()

"""L1: copies in and out of the provider's memory."""

from __future__ import annotations

import numpy as np

from onnxplug.contract import numpy_dtype
from onnxplug.contract.types import ELEMENT_NAMES
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.space import space_of
from onnxplug_testkit.subject import Subject

SHAPES = ((), (1,), (0,), (2, 0, 3), (5,), (3, 7), (2, 3, 4, 5), (1, 1, 1, 1, 1, 9))
GUARD = 64
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


@check("memory.guard_bands")
def guard_bands(subject: Subject, seed: int) -> None:
    """A copy into part of a block touches no byte before or behind it."""
    rng = np.random.default_rng(seed)
    with space_of(subject) as space:
        for element in ("uint8", "float16", "float", "double", "bool"):
            array = noise(rng, element, (13,))
            total = GUARD + array.nbytes + GUARD
            with space.block(total) as buffer:
                whole = space.view(buffer, np.dtype(np.uint8), (total,))
                before = rng.integers(0, 256, total).astype(np.uint8)
                space.write(before, whole)
                space.write(array, space.view(buffer, array.dtype, array.shape, GUARD))
                after = space.read(whole)
            assert after[:GUARD].tobytes() == before[:GUARD].tobytes(), (
                f"{element}: bytes before the destination change"
            )
            assert after[-GUARD:].tobytes() == before[-GUARD:].tobytes(), (
                f"{element}: bytes behind the destination change"
            )
            assert after[GUARD:-GUARD].tobytes() == array.tobytes(), f"{element}: a view at an offset shows other bytes"


@check("memory.within_the_device")
def within_the_device(subject: Subject, seed: int) -> None:
    """Where the transfer says it copies within its memory, it does, from and to any part of a block."""
    with space_of(subject) as space:
        device = space.allocator.device
        if space.transfer is None or not space.transfer.can_copy(device, device):
            raise Unsupported("device_to_device")
        array = noise(np.random.default_rng(seed), "float", (33, 5))
        for starts in ((0, 0), (0, GUARD), (GUARD, 0), (GUARD, 3 * GUARD)):
            sizes = [start + array.nbytes for start in starts]
            with space.block(sizes[0]) as one, space.block(sizes[1]) as two:
                for buffer, size in zip((one, two), sizes, strict=True):
                    space.write(np.zeros(size, np.uint8), space.view(buffer, np.dtype(np.uint8), (size,)))
                natives = [
                    space.view(buffer, array.dtype, array.shape, start)
                    for buffer, start in zip((one, two), starts, strict=True)
                ]
                space.write(array, natives[0])
                space.transfer.copy(natives[0], natives[1])
                assert space.read(natives[1]).tobytes() == array.tobytes(), (
                    f"a copy within the device from byte {starts[0]} to {starts[1]} of two blocks changes the tensor"
                )


def noise(rng: np.random.Generator, element: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random bits as an array of an element type; types narrower than a byte keep their unused bits zero."""
    dtype = numpy_dtype(element)
    if element == "bool":
        return rng.integers(0, 2, shape).astype(dtype)
    if element in ("int4", "uint4", "int2", "uint2") or element.startswith(("float4", "float6")):
        return rng.integers(0, 2, shape).astype(np.int8).astype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return np.frombuffer(rng.bytes(size), dtype).reshape(shape).copy()

"""L1: blocks, what is lent, and misuse."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from onnxplug.contract import AllocatorStats
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.checks.limits import LIMIT
from onnxplug_testkit.models import chain, expected, open_session
from onnxplug_testkit.space import Space, space_of
from onnxplug_testkit.subject import Subject

BYTES = np.dtype(np.uint8)
BEYOND = 1 << 60
"""Bytes that no device has."""
LENT = 96
"""Bytes of what is lent."""
THREADS, TURNS = 4, 40
PATIENCE = 60
"""Seconds that threads wait for each other."""
OFTEN = 1e-6
"""Seconds after which Python lets another thread go on."""


@check("memory.alignment")
def alignment(subject: Subject, seed: int) -> None:
    """Every block starts at a multiple of the alignment stated, which is a power of two and fits every element type."""
    with space_of(subject) as space:
        stated = space.allocator.alignment
        assert stated >= 16 and stated & (stated - 1) == 0, f"an alignment of {stated} is no power of two from 16 on"
        for nbytes in (1, 7, 64, 1000, 4097, (1 << 17) + 1, (1 << 20) + 3, (17 << 20) + 5):
            with space.block(nbytes), space.block(1), space.block(7), space.block(nbytes) as buffer, space.block(1):
                assert buffer.offset % stated == 0, (
                    f"a block of {nbytes} bytes starts at offset {buffer.offset}, alignment {stated}"
                )
                address = _address(space.view(buffer, BYTES, (nbytes,)))
                assert address is None or address % stated == 0, (
                    f"a block of {nbytes} bytes starts at address {address:#x}"
                )


@check("memory.sizes")
def sizes(subject: Subject, seed: int) -> None:
    """A block has the device stated and room for all the bytes asked for; each byte keeps what is written to it."""
    rng = np.random.default_rng(seed)
    with space_of(subject) as space:
        for nbytes in (1, 3, 255, 256, 257, 65536, 65537, (1 << 20) + 3, (17 << 20) + 5):
            with space.block(nbytes) as buffer:
                assert buffer.nbytes >= nbytes, f"{nbytes} bytes wanted, a block of {buffer.nbytes} given"
                assert buffer.device == space.allocator.device, (
                    f"a block of {buffer.device} from {space.allocator.device}"
                )
                data = np.frombuffer(rng.bytes(nbytes), BYTES)
                native = space.view(buffer, BYTES, (nbytes,))
                space.write(data, native)
                assert np.array_equal(space.read(native), data), f"a block of {nbytes} bytes does not keep its contents"


@check("memory.zero_size")
def zero_size(subject: Subject, seed: int) -> None:
    """Blocks of no bytes can be taken, viewed, copied and freed, several at once."""
    with space_of(subject) as space:
        try:
            buffers = [space.allocator.allocate(0) for _ in range(3)]
        except Exception as error:
            raise AssertionError(f"a block of no bytes is refused: {type(error).__name__}: {error}") from error
        for buffer in buffers:
            empty = np.empty((0, 4), np.float32)
            native = space.view(buffer, empty.dtype, empty.shape)
            space.write(empty, native)
            assert space.read(native).shape == (0, 4), "an empty tensor comes back with another shape"
        for buffer in buffers:
            space.allocator.free(buffer)


@check("memory.blocks_are_apart")
def blocks_are_apart(subject: Subject, seed: int) -> None:
    """Blocks that live at the same time share no byte, also after others were freed between them."""
    rng = np.random.default_rng(seed)
    sizes = (512, 512, 512, 512, 300, 8192, 5000, 1 << 20, 70_000)
    with space_of(subject) as space:
        buffers = [space.allocator.allocate(nbytes) for nbytes in sizes]
        for index in (1, 3, 6):
            space.allocator.free(buffers[index])
            buffers[index] = space.allocator.allocate(sizes[index])
        data = [rng.integers(0, 256, nbytes).astype(BYTES) for nbytes in sizes]
        natives = [space.view(buffer, BYTES, (nbytes,)) for buffer, nbytes in zip(buffers, sizes, strict=True)]
        for array, native in zip(data, natives, strict=True):
            space.write(array, native)
        for array, native in zip(data, natives, strict=True):
            assert np.array_equal(space.read(native), array), "writing one block changes another"
        for buffer in buffers:
            space.allocator.free(buffer)


@check("memory.blocks_of_threads")
def blocks_of_threads(subject: Subject, seed: int) -> None:
    """Threads that take and give back blocks at once get blocks of their own, and what is in use is counted right."""
    with space_of(subject) as space:
        before = space.allocator.stats()
        together = threading.Barrier(THREADS)

        def work(number: int) -> None:
            together.wait(PATIENCE)
            data = np.full(512, number, BYTES)
            for _ in range(TURNS):
                with space.block(512) as buffer:
                    native = space.view(buffer, BYTES, (512,))
                    space.write(data, native)
                    time.sleep(0)
                    assert np.array_equal(space.read(native), data), "two threads are given one block"

        interval = sys.getswitchinterval()
        sys.setswitchinterval(OFTEN)
        try:
            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(work, range(THREADS)))
        finally:
            sys.setswitchinterval(interval)
        after = space.allocator.stats()
    if after == AllocatorStats(limit=after.limit):
        return
    assert after.bytes_in_use == before.bytes_in_use, (
        f"{after.bytes_in_use - before.bytes_in_use} bytes stay in use when threads have given back what they took"
    )
    taken = after.allocations - before.allocations
    assert taken == THREADS * TURNS, f"of {THREADS * TURNS} blocks of threads {taken} are counted"


@check("memory.largest_block")
def largest_block(subject: Subject, seed: int) -> None:
    """A block beyond the largest the allocator states, or beyond any memory, is refused with MemoryError and does not count."""
    with space_of(subject) as space:
        before = space.allocator.stats().bytes_in_use
        largest = space.allocator.max_allocation
        for nbytes in (BEYOND, *([] if largest is None else [largest + 1])):
            try:
                buffer = space.allocator.allocate(nbytes)
            except MemoryError:
                continue
            except Exception as error:
                raise AssertionError(f"{nbytes} bytes are refused with {type(error).__name__}: {error}") from error
            space.allocator.free(buffer)
            raise AssertionError(f"{nbytes} bytes are given, the largest block is stated as {largest}")
        assert space.allocator.stats().bytes_in_use == before, "blocks that were refused count as in use"


@check("memory.double_free")
def double_free(subject: Subject, seed: int) -> None:
    """A second free of a block raises ValueError, and the block's successor is not touched by it."""
    with space_of(subject) as space:
        buffer = space.allocator.allocate(256)
        space.allocator.free(buffer)
        with space.block(256) as successor:
            native = space.view(successor, BYTES, (256,))
            data = np.full(256, 7, BYTES)
            space.write(data, native)
            _refuses(space, buffer, "a block that was freed before")
            with space.block(256):
                """Another is freed meanwhile."""
            _refuses(space, buffer, "a block that was freed before another")
            assert np.array_equal(space.read(native), data), "a second free destroys the contents of a live block"


@check("memory.foreign_free")
def foreign_free(subject: Subject, seed: int) -> None:
    """A block of another instance's allocator is refused with ValueError."""
    with space_of(subject) as space, space_of(subject) as other:
        if other.allocator is space.allocator:
            raise AssertionError(
                "two instances share one allocator, so that neither can be limited or closed by itself"
            )
        with other.block(256) as buffer:
            _refuses(space, buffer, "a block of another allocator")


@check("memory.lent_blocks")
def lent_blocks(subject: Subject, seed: int) -> None:
    """Memory that is lent by its address is read and written where it is, is not counted, and nobody can free it."""
    rng = np.random.default_rng(seed)
    with space_of(subject) as space:
        second = space.step(LENT)
        with space.block(second + LENT) as block:
            whole = space.view(block, BYTES, (second + LENT,))
            address, data = _address(whole), np.frombuffer(rng.bytes(second + LENT), BYTES).copy()
            if address is None:
                raise Unsupported("host_address")
            space.write(data, whole)
            before = space.allocator.stats().bytes_in_use
            for start in (0, second):
                try:
                    lent = space.allocator.over(address + start, LENT)
                except NotImplementedError as error:
                    raise Unsupported("lent_memory") from error
                shown, there = space.view(lent, BYTES, (LENT,)), data[start : start + LENT]
                assert np.array_equal(space.read(shown), there), "memory that is lent shows other bytes"
                there[:] = np.frombuffer(rng.bytes(LENT), BYTES)
                space.write(there, shown)
                assert np.array_equal(space.read(whole), data), "what is written to memory that is lent is not there"
                assert space.allocator.stats().bytes_in_use == before, "memory that is lent counts as in use"
                _refuses(space, lent, "memory that is lent")
            _begins_nowhere_else(space, address + 1, whole, data)


def _begins_nowhere_else(space: Space, address: int, whole: Any, data: np.ndarray) -> None:
    """At an odd address a tensor is refused with ValueError, or is there as others are. ``whole`` begins a byte before."""
    try:
        lent = space.allocator.over(address, 8)
    except ValueError:
        return
    odd = np.array([0.5, -3], np.float32)
    space.write(odd, space.view(lent, odd.dtype, odd.shape))
    data[1:9] = odd.view(BYTES)
    assert np.array_equal(space.read(whole), data), "a tensor at an odd address, which is not refused, is elsewhere"


@check("memory.statistics")
def statistics(subject: Subject, seed: int) -> None:
    """``stats()`` follows what is taken and given back: in use, peak, count, limit."""
    with space_of(subject) as space:
        before = space.allocator.stats()
        assert isinstance(before, AllocatorStats), f"stats() gives a {type(before).__name__}"
        buffer = space.allocator.allocate(4096)
        during = space.allocator.stats()
        space.allocator.free(buffer)
        after = space.allocator.stats()
        if during == AllocatorStats(limit=during.limit):
            raise Unsupported("statistics")
        assert during.bytes_in_use >= before.bytes_in_use + 4096, "bytes_in_use does not count a live block"
        assert during.allocations == before.allocations + 1, "allocations does not count"
        assert after.bytes_in_use == before.bytes_in_use, (
            f"{after.bytes_in_use - before.bytes_in_use} bytes stay in use after free"
        )
        assert after.peak_bytes_in_use >= during.bytes_in_use, "peak_bytes_in_use is below what was in use"
        assert after.allocations == during.allocations, "allocations counts what is given back"
        with space.block(8192), space.block(8192):
            several = space.allocator.stats()
        assert several.peak_bytes_in_use >= several.bytes_in_use >= before.bytes_in_use + 16384, (
            f"with two blocks of 8192 bytes {several.bytes_in_use} are in use, the peak is {several.peak_bytes_in_use}"
        )
    option = subject.limit()
    if option is not None:
        with space_of(subject, **{option: str(LIMIT)}) as space:
            told = space.allocator.stats().limit
            assert told == LIMIT, f"with {option} = {LIMIT} the limit is given as {told}"


@check("memory.results_are_the_callers")
def results_are_the_callers(subject: Subject, seed: int) -> None:
    """Results stay as they are when the session runs again, when it is closed, and when other sessions use the memory."""
    rng = np.random.default_rng(seed)
    made = chain(subject)
    first, second = (rng.standard_normal((8, 16)).astype(np.float32) for _ in range(2))
    with open_session(subject, made) as session:
        held = session.run(None, {"x": first})[0]
        kept = held.copy()
        session.run(None, {"x": second})
        assert held.tobytes() == kept.tobytes(), "a result changes when the session runs again"
    with open_session(subject, made) as other:
        other.run(None, {"x": second})
    assert held.tobytes() == kept.tobytes(), "a result changes after its session was closed"
    np.testing.assert_allclose(held, expected(made, {"x": first}, subject.name)[0], rtol=1e-4, atol=1e-5)


def _address(native: Any) -> int | None:
    """Where a native array's bytes are, if it says so in a way NumPy or CUDA libraries define."""
    for name in ("__array_interface__", "__cuda_array_interface__"):
        interface = getattr(native, name, None)
        if interface is not None:
            return int(interface["data"][0])
    return None


def _refuses(space: Space, buffer: Any, what: str) -> None:
    try:
        space.allocator.free(buffer)
    except ValueError:
        return
    except Exception as error:
        raise AssertionError(f"freeing {what} raises {type(error).__name__}, not ValueError: {error}") from error
    raise AssertionError(f"freeing {what} is accepted")

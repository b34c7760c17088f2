"""The simulated memory: opaque, checked, counted; its transfer; its limits; what closing reports."""

from __future__ import annotations

import copy
import gc
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import helper
from reference_values import download, upload
from reference_views import make_node

from onnxplug.contract import HOST, Arena, Buffer, Device, EPFail, SessionContext, TensorSpec, numpy_dtype
from onnxplug.contract.errors import RuntimeException
from onnxplug.contract.types import ELEMENT_CODES
from onnxplug_ep_reference.device import check, devices
from onnxplug_ep_reference.memory import ALIGNMENT, FREED, FRESH, SimAllocator, SimTensor, contents, live_buffers, view
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_ep_reference.transfer import SimTransfer

Make = Callable[..., ReferenceProvider]
SIM = Device("sim", 0)
FLOAT = np.dtype(np.float32)
DTYPES = [numpy_dtype(element) for element in ELEMENT_CODES if element != "string"]


@given(dtype=st.sampled_from(DTYPES), shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0), data=st.data())
def test_round_trip(dtype: np.dtype, shape: tuple[int, ...], data: Any) -> None:
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    raw = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.uint8)
    source = raw.view(dtype).reshape(shape)
    if source.ndim > 1 and data.draw(st.booleans()):
        source = np.asfortranarray(source)
    transfer, allocator = SimTransfer(), SimAllocator(SIM)
    first, second = allocator.tensor(dtype, shape), SimAllocator(Device("sim", 1)).tensor(dtype, shape)
    back = np.empty(shape, dtype)
    transfer.copy(source, first)
    transfer.copy(first, second)
    transfer.copy(second, back)
    assert back.tobytes() == source.tobytes()


def test_directions() -> None:
    transfer, other = SimTransfer(), Device("cuda")
    assert transfer.can_copy(HOST, SIM) and transfer.can_copy(SIM, HOST) and transfer.can_copy(SIM, Device("sim", 1))
    assert not transfer.can_copy(HOST, HOST) and not transfer.can_copy(SIM, other) and not transfer.can_copy(other, SIM)


def test_a_copy_needs_equal_tensors() -> None:
    tensor = SimAllocator(SIM).tensor(FLOAT, (2,))
    for host in (np.zeros(3, FLOAT), np.zeros(2)):
        with pytest.raises(ValueError, match="differ"):
            SimTransfer().copy(host, tensor)


PEEKS: list[Callable[[Any], Any]] = [
    np.asarray, np.array, memoryview, bytes, float, len, list, bool, np.add.reduce, copy.copy,
    lambda t: t + 1, lambda t: np.ones(2) * t, lambda t: t[0],
]  # fmt: skip


@pytest.mark.parametrize("peek", PEEKS)
def test_tensors_are_opaque(peek: Callable[[Any], Any]) -> None:
    tensor = SimAllocator(SIM).tensor(FLOAT, (2,))
    with pytest.raises(TypeError):
        peek(tensor)
    assert not hasattr(tensor, "__dlpack__") and not hasattr(tensor, "__array_interface__")


def test_numpy_is_told_what_to_do() -> None:
    with pytest.raises(TypeError, match="copy it to the host first"):
        np.asarray(SimAllocator(SIM).tensor(FLOAT, (2,)))


def test_a_second_free_and_foreign_buffers_are_refused() -> None:
    allocator, other = SimAllocator(SIM), SimAllocator(SIM)
    buffer = allocator.allocate(10)
    for wrong in (Buffer(SIM, 10, None), Buffer(SIM, 4, buffer.handle, 4)):
        with pytest.raises(ValueError):
            allocator.free(wrong)
    with pytest.raises(ValueError, match="not allocated here"):
        other.free(buffer)
    allocator.free(buffer)
    with pytest.raises(ValueError, match="freed before"):
        allocator.free(buffer)


def test_use_after_free_names_the_block() -> None:
    allocator = SimAllocator(SIM)
    buffer = allocator.allocate(8)
    tensor = view(buffer, 0, FLOAT, (2,))
    inside = buffer.handle.data
    allocator.free(buffer)
    assert (inside == FREED).all()
    with pytest.raises(EPFail, match=f"block {buffer.handle.number} .*after its memory was freed"):
        SimTransfer().copy(tensor, np.empty(2, FLOAT))
    with pytest.raises(EPFail, match="freed"):
        view(buffer, 0, FLOAT, (2,))


@pytest.mark.parametrize(("offset", "shape"), [(-4, (1,)), (0, (5,)), (16, (1,)), (4, (4,))])
def test_views_stay_inside_their_buffer(offset: int, shape: tuple[int, ...]) -> None:
    allocator = SimAllocator(SIM)
    buffer = allocator.allocate(16)
    with pytest.raises(ValueError, match="do not fit"):
        view(buffer, offset, FLOAT, shape)
    view(buffer, 16, FLOAT, (0, 3))
    allocator.free(buffer)


def test_fresh_memory_is_poisoned_and_aligned() -> None:
    allocator = SimAllocator(SIM)
    tensor = allocator.tensor(FLOAT, (3,))
    assert np.isnan(contents(tensor)).all() and (contents(tensor).view(np.uint8) == FRESH).all()
    for nbytes in (0, 1, 63, 64, 1000):
        buffer = allocator.allocate(nbytes)
        assert buffer.handle.data.ctypes.data % ALIGNMENT == 0 or nbytes == 0
        allocator.free(buffer)


def test_figures_count_buffers_and_tensors_apart() -> None:
    before = live_buffers()
    allocator = SimAllocator(SIM)
    buffer, tensor = allocator.allocate(100), allocator.tensor(FLOAT, (5,))
    assert live_buffers() == [*before, buffer]
    stats = allocator.stats()
    assert (stats.bytes_in_use, stats.extra) == (120, {"live_buffers": 1, "live_tensors": 1})
    del tensor
    gc.collect()
    allocator.free(buffer)
    stats = allocator.stats()
    assert (stats.bytes_in_use, stats.peak_bytes_in_use, stats.allocations) == (0, 120, 2)
    assert stats.extra == {"live_buffers": 0, "live_tensors": 0}


def test_the_limit_holds_for_buffers_arena_and_kernels(make_provider: Make) -> None:
    provider = make_provider(mem_limit="1000")
    allocator = provider.create_allocators()[0]
    with pytest.raises(MemoryError, match="1001 bytes wanted, 0 of 1000"):
        allocator.allocate(1001)
    with pytest.raises(RuntimeException, match="Available memory of 1000"):
        Arena(allocator).allocate(2000)
    kernel = kernel_for(provider, "Expand", 13, 2)
    operands = [upload(provider, value) for value in (np.ones(1, FLOAT), np.array([1000]))]
    with pytest.raises(RuntimeException, match="4000"):
        kernel(*operands)


def test_an_arena_serves_kernels(provider: ReferenceProvider) -> None:
    arena = Arena(provider.create_allocators()[0])
    buffer = arena.allocate(24)
    source, target = (provider.view(buffer, offset, FLOAT, (3,)) for offset in (0, 12))
    SimTransfer().copy(np.array([-1, 0, 2], FLOAT), source)
    spec = TensorSpec(FLOAT, (3,))
    into = kernel_for(provider, "Relu", 14).bind([spec], [spec])
    into.call(source, target)
    np.testing.assert_array_equal(download(provider, target), [0, 0, 2])
    into.call(source, source)
    np.testing.assert_array_equal(download(provider, source), [0, 0, 2])
    arena.free(buffer)
    arena.close()


def test_a_wrong_output_is_an_error(provider: ReferenceProvider) -> None:
    into = kernel_for(provider, "Relu", 14).bind([TensorSpec(FLOAT, (3,))], [TensorSpec(FLOAT, (2,))])
    assert provider.allocator is not None
    with pytest.raises(EPFail, match=r"float32 \(3,\) for an output of float32 \(2,\)"):
        into.call(upload(provider, np.ones(3, FLOAT)), provider.allocator.tensor(FLOAT, (2,)))


def test_closing_reports_leaks(caplog: pytest.LogCaptureFixture) -> None:
    before = live_buffers()
    provider = ReferenceProvider(ReferenceOptions(), SessionContext(1, {}, logging.getLogger("leaks")))
    tensor = view(provider.create_allocators()[0].allocate(64), 0, FLOAT, (16,))
    with pytest.raises(RuntimeError, match=r"1 buffers of sim:0 \(64 bytes\)"):
        provider.close()
    assert "leaked" in caplog.text and live_buffers() == before
    with pytest.raises(EPFail):
        contents(tensor)


def test_host_memory_has_no_allocator(make_provider: Make) -> None:
    provider = make_provider(memory="host")
    assert provider.create_allocators() == () and provider.get_data_transfer() is None
    array = provider.view(Buffer(HOST, 64, np.zeros(64, np.uint8)), 8, FLOAT, (2, 2))
    assert isinstance(array, np.ndarray) and array.shape == (2, 2)


def test_options_reach_the_arena(make_provider: Make) -> None:
    [allocator] = make_provider(mem_limit="4096", arena_extend_strategy="kSameAsRequested").create_allocators()
    assert (allocator.arena.limit, allocator.arena.strategy) == (4096, "kSameAsRequested")


def test_devices(make_provider: Make) -> None:
    assert len(devices()) == 2 and "2" in check().detail
    second = make_provider(device_id="1").create_allocators()[0]
    assert second.device == Device("sim", 1)
    with pytest.raises(RuntimeError, match="device_id 2"):
        make_provider(device_id="2")


def test_strings_stay_on_the_host(provider: ReferenceProvider) -> None:
    with pytest.raises(TypeError, match="numbers only"):
        SimTensor(provider.create_allocators()[0].allocate(0).handle, 0, np.dtype(object), ())
    provider.allocator.close()  # type: ignore[union-attr]
    words = np.array(["a", "b"], object)
    got = kernel_for(provider, "StringConcat", 20, 2)(words, words)
    assert got.dtype == object and got.tolist() == ["aa", "bb"]


def test_sequences_hold_host_arrays(provider: ReferenceProvider) -> None:
    sequence = kernel_for(provider, "SequenceConstruct", 11, 2)(*[upload(provider, np.ones(2, FLOAT))] * 2)
    assert [type(item) for item in sequence] == [np.ndarray, np.ndarray]
    picked = kernel_for(provider, "SequenceAt", 11, 2)(sequence, upload(provider, np.array(1)))
    assert isinstance(picked, SimTensor)


def test_the_front_door_is_light() -> None:
    code = (
        "import onnxplug_ep_reference.plugin as plugin, sys; plugin.onnxplug_provider().check();"
        "sys.exit(bool({'onnx', 'ml_dtypes', 'onnxplug_ep_reference.provider'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def kernel_for(provider: ReferenceProvider, op_type: str, opset: int, count: int = 1) -> Any:
    node = make_node(helper.make_node(op_type, [f"x{i}" for i in range(count)], ["y"]), opset)
    return provider.get_kernel_registry().kernel_for(node).create(node)

"""Memory of a device that the application has: bound by its address, imported and exported by DLPack. The device's memory is the host's."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx.parser
import pytest
from core_providers import OwnAllocator, OwnProvider, offered

import onnxplug
from onnxplug import OrtValue
from onnxplug.contract import Buffer, Device
from onnxplug.run.memory import _environment
from onnxplug.session.dlpack import _header

CUDA = Device("cuda")
MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) { y = Neg(x) }'
).SerializeToString()
X = np.array([1, -2, 3], np.float32)


class LendingAllocator(OwnAllocator):
    """Takes addresses of the host's for those of its device; ``settled`` counts how often it waited."""

    settled = 0

    def over(self, address: int, nbytes: int) -> Buffer:
        if address % 4:
            raise ValueError(f"{address:#x} is no multiple of 4")
        LendingAllocator.settled += 1
        block = np.frombuffer((ctypes.c_ubyte * nbytes).from_address(address), np.uint8)
        return Buffer(self.device, nbytes, [block])


class LendingProvider(OwnProvider):
    def __init__(self) -> None:
        super().__init__(CUDA)
        self.allocator = LendingAllocator(CUDA)


class Tensor:
    """Another library's tensor, on the device for those who ask."""

    def __init__(self, array: np.ndarray, kind: int = 2) -> None:
        self.array, self.kind, self.stream = array, kind, None

    def __dlpack__(self, *, stream: Any = None) -> Any:
        self.stream = stream
        capsule = self.array.__dlpack__()
        _header(capsule).device_type = self.kind
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 0


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with offered("cuda", LendingExecutionProvider=LendingProvider):
        yield
    _environment.pop(("cuda", 0), None)


def session() -> onnxplug.InferenceSession:
    return onnxplug.InferenceSession(MODEL, providers=["LendingExecutionProvider"])


def test_inputs_and_outputs_are_bound_by_their_addresses() -> None:
    x, y = X.copy(), np.zeros(3, np.float32)
    binding = (made := session()).io_binding()
    binding.bind_input("x", "cuda", 0, np.float32, (3,), x.ctypes.data)
    binding.bind_output("y", "cuda", 0, np.float32, (3,), y.ctypes.data)
    for scale in (1, 10):
        x[:] = X * scale
        made.run_with_iobinding(binding)
        np.testing.assert_array_equal(y, -X * scale)
    (got,) = binding.get_outputs()
    assert got.device_name() == "cuda" and got.numpy().tolist() == y.tolist()


def test_inputs_are_waited_for_when_they_are_bound_and_when_that_is_asked_for() -> None:
    binding = session().io_binding()
    before = LendingAllocator.settled
    binding.bind_input("x", "cuda", 0, np.float32, (3,), X.ctypes.data)
    binding.synchronize_inputs()
    assert LendingAllocator.settled == before + 2


def test_addresses_that_cannot_be_taken_say_why() -> None:
    binding = session().io_binding()
    with pytest.raises(RuntimeError, match=r"^Error when binding input: .* is no multiple of 4$"):
        binding.bind_input("x", "cuda", 0, np.float32, (3,), X.ctypes.data + 2)
    with pytest.raises(RuntimeError, match=r"^Error when binding output: the address is null$"):
        binding.bind_output("y", "cuda", 0, np.float32, (3,), 0)
    _environment["cuda", 0].allocator.raw.__class__ = OwnAllocator  # type: ignore[attr-defined]
    with pytest.raises(
        RuntimeError, match=r"There's no data transfer .* on cuda:0: memory of cuda:0 has no addresses$"
    ):
        binding.bind_input("x", "cuda", 0, np.float32, (3,), X.ctypes.data)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool", "uint8", "complex64"])
def test_tensors_of_other_libraries_are_shared(dtype: str) -> None:
    array = np.zeros((2, 3), dtype)
    tensor = Tensor(array)
    value = OrtValue.from_dlpack(tensor)
    assert (value.device_name(), value.shape(), tensor.stream) == ("cuda", [2, 3], 1)
    array[1, 2] = 1
    assert value.numpy().dtype == array.dtype and value.numpy()[1, 2] == 1
    assert OrtValue.from_dlpack(Tensor(np.zeros(2, np.uint8)), True).data_type() == "tensor(bool)"


def test_a_tensor_lives_as_long_as_the_value_over_it() -> None:
    array = X.copy()
    kept = weakref.ref(array)
    value = OrtValue.from_dlpack(Tensor(array))
    del array
    gc.collect()
    assert kept() is not None and session().run(None, {"x": value})[0].tolist() == (-X).tolist()
    del value
    gc.collect()
    assert kept() is None


def test_tensors_that_cannot_be_shared_say_why() -> None:
    with pytest.raises(RuntimeError, match=r"^ORT only supports contiguous tensor for now\.$"):
        OrtValue.from_dlpack(Tensor(np.zeros((4, 4), np.float32)[:, ::2]))
    assert OrtValue.from_dlpack(Tensor(np.zeros((4, 1), np.float32)[::1, ::-1])).shape() == [4, 1]
    with pytest.raises(RuntimeError, match=r"^Only memory of the host and of CUDA devices"):
        OrtValue.from_dlpack(Tensor(X, kind=4))


class Native:
    """A provider's tensor that can be exported."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.dtype, self.shape = array, array.dtype, array.shape

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        return self.array.__dlpack__(max_version=max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_value_lives_as_long_as_what_was_exported_of_it(version: Any) -> None:
    value = OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    value._payload._native = Native(X.copy())
    kept = weakref.ref(value)

    class Held:
        capsule = value.__dlpack__(max_version=version)

        def __dlpack__(self, **_: Any) -> Any:
            return self.capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    shown = np.from_dlpack(Held())
    del value
    gc.collect()
    assert kept() is not None and shown.tolist() == X.tolist()
    del shown, Held
    gc.collect()
    assert kept() is None

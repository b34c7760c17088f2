"""OrtValue, OrtDevice, OrtMemoryInfo, SparseTensor and IOBinding, in onnxruntime's words."""

from __future__ import annotations

import copy
import importlib
import pickle
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import onnxplug
from onnxplug.contract import Device, MapType, SequenceType, TensorType
from onnxplug.session.ortvalue import OrtValue
from onnxplug.session.sparse import SparseTensor
from onnxplug.session.vector import OrtValueVector

NUMERIC = "Creation of OrtValues is currently only supported from non-string numpy arrays"
FLOATS = TensorType("float")

pytestmark = pytest.mark.usefixtures("only_cpu")


def ones(dtype: Any, *shape: int) -> np.ndarray:
    return np.ones(shape, dtype)


def test_value_over_an_array(ort: Any) -> None:
    array = ones("f4", 2, 3)
    value = ort.OrtValue.ortvalue_from_numpy(array)
    assert value.shape() == [2, 3] and value.data_type() == "tensor(float)" and value.element_type() == 1
    assert value.tensor_size_in_bytes() == 24 and value.device_name() == "cpu" and value.data_ptr() == array.ctypes.data
    assert value.has_value() and value.is_tensor() and not value.is_sparse_tensor() and not value.is_tensor_sequence()
    array[0, 0] = 5
    assert value.numpy()[0, 0] == 5 and value.numpy().ctypes.data == array.ctypes.data
    value.numpy()[0, 1] = 7
    assert array[0, 1] == 7
    assert ort.OrtValue.ortvalue_from_numpy(ones("f4", 4, 4)[:, ::2]).shape() == [4, 2]
    assert ort.OrtValue.ortvalue_from_numpy(ones("f4")).shape() == []
    assert ort.OrtValue.ortvalue_from_numpy(array, "cpu", 1).device_name() == "cpu"
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(value)
    with pytest.raises(TypeError, match="cannot pickle"):
        copy.deepcopy(value)
    with pytest.raises(AttributeError):
        _ = value.nope
    with pytest.raises(ValueError, match="`Provided ortvalue` needs to be of type"):
        ort.OrtValue(3)


VOID = np.zeros(2, "V4")
RECORDS = np.array([(1, 2)], [("a", "i4"), ("b", "i4")])
REFERENCES = np.array([(1, "a")], [("a", "i4"), ("b", "O")])
TIMES = np.zeros(2, "M8[s]")


@pytest.mark.parametrize(
    "source",
    [
        [1, 2],
        None,
        *map(np.array, ["a", b"a"]),
        np.array(["a"], object),
        np.float32(1),
        VOID,
        RECORDS,
        REFERENCES,
        TIMES,
    ],
    ids=repr,
)
def test_value_from_what_is_no_numeric_array(ort: Any, source: Any) -> None:
    with pytest.raises(RuntimeError, match=NUMERIC):
        ort.OrtValue.ortvalue_from_numpy(source)


def test_value_of_a_type_onnx_lacks(ort: Any) -> None:
    with pytest.raises(RuntimeError, match=r"^Numpy_type 13 can't be converted to MLDataType"):
        ort.OrtValue.ortvalue_from_numpy(np.zeros(1, np.longdouble))


def test_devices_nobody_offers(ort: Any) -> None:
    text = (
        "Can't allocate memory on the device using this package of OnnxRuntime. Please use the appropriate package of"
    )
    for kind in ("cuda", "gpu", "dml"):
        with pytest.raises(RuntimeError, match=f"^{text} OnnxRuntime for your hardware to use this feature."):
            ort.OrtValue.ortvalue_from_numpy(ones("f4", 1), kind)
    text = "Can't allocate memory on the CUDA device using this package of OnnxRuntime. Please use the CUDA package of"
    with pytest.raises(RuntimeError, match=f"^{text} OnnxRuntime to use this feature."):
        ort.OrtValue.ortvalue_from_shape_and_type([1], np.float32, "cuda")
    for kind in ("CPU", "foo"):
        with pytest.raises(Exception, match=f"^Unsupported device type: {kind}$") as caught:
            ort.OrtValue.ortvalue_from_numpy(ones("f4", 1), kind)
        assert type(caught.value) is Exception


@pytest.mark.parametrize(
    ("element", "named"),
    [
        (np.float32, "float"),
        ("float32", "float"),
        (np.dtype("f2"), "float16"),
        (float, "double"),
        (int, "int64"),
        (bool, "bool"),
        (None, "double"),
        (1, "float"),
        (16, "bfloat16"),
    ],
)
def test_value_from_shape_and_type(ort: Any, element: Any, named: str) -> None:
    value = ort.OrtValue.ortvalue_from_shape_and_type((2, 3), element)
    assert value.shape() == [2, 3] and value.data_type() == f"tensor({named})"


@pytest.mark.parametrize(
    ("shape", "element", "error", "text"),
    [
        ([2], 99, RuntimeError, "tensor type 99 is not supported"),
        ([2], 0, RuntimeError, "tensor type 0 is not supported"),
        ([2], str, RuntimeError, NUMERIC),
        ([2], object, RuntimeError, NUMERIC),
        ([2], VOID.dtype, RuntimeError, NUMERIC),
        ([2], RECORDS.dtype, RuntimeError, NUMERIC),
        ([2], "m8[s]", RuntimeError, NUMERIC),
        ([2], 8, RuntimeError, NUMERIC),
        ([2, -3], np.float32, RuntimeError, r"Tensor shape.Size\(\) must be >= 0"),
        ([2.5], np.float32, TypeError, "incompatible"),
        (3, np.float32, TypeError, "incompatible"),
        (["N"], np.float32, TypeError, "incompatible"),
    ],
)
def test_refused_shapes_and_types(ort: Any, shape: Any, element: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        ort.OrtValue.ortvalue_from_shape_and_type(shape, element).numpy()


def test_memory_info_names_the_device() -> None:
    host = onnxplug.OrtMemoryInfo("Cpu", onnxplug.OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, onnxplug.OrtMemType.DEFAULT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert OrtValue.ortvalue_from_shape_and_type([2], np.float32, memory_info=host).shape() == [2]
    with pytest.warns(
        UserWarning, match="device_type, device_id, and vendor_id are ignored when memory_info is provided"
    ):
        OrtValue.ortvalue_from_shape_and_type([2], np.float32, "cuda", memory_info=host)


def test_value_with_onnx_type(ort: Any) -> None:
    make = ort.OrtValue.ortvalue_from_numpy_with_onnx_type
    assert (
        make(ones("u2", 2), 16).data_type() == "tensor(bfloat16)"
        and make(ones("u1", 2), 17).data_type() == "tensor(float8e4m3fn)"
    )
    assert make(ones("f4", 2), 6).numpy().tolist() == [1065353216] * 2
    with pytest.raises(RuntimeError, match="Not a valid ONNX Tensor data type: 99"):
        make(ones("f4", 2), 99)
    for array, code, size in (
        (ones("u2", 2), 1, "2 specified by onnxtype: 4"),
        (ones("f4", 2), 8, "4 specified by onnxtype"),
    ):
        with pytest.raises(RuntimeError, match=f"Items size in the incoming array: {size}"):
            make(array, code)
    with pytest.raises(TypeError):
        make([1], 1)


def test_value_as_array(ort: Any) -> None:
    array = ones("f4", 2)
    value = ort.OrtValue.ortvalue_from_numpy(array)
    assert np.asarray(value).ctypes.data == array.ctypes.data != np.array(value).ctypes.data
    assert np.asarray(value, np.float64).dtype == np.float64
    assert np.array(value, copy=False).ctypes.data == array.ctypes.data
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        np.array(value, dtype="f8", copy=False)


def test_dlpack(ort: Any) -> None:
    array, make = ones("f4", 2), ort.OrtValue.from_dlpack
    value = make(array)
    assert value.data_ptr() == array.ctypes.data and value.__dlpack_device__() == (1, 0)
    assert np.from_dlpack(value).ctypes.data == array.ctypes.data
    assert make(array.__dlpack__()).data_type() == "tensor(float)" and make(value).data_ptr() == array.ctypes.data
    assert make(value.__dlpack__(stream=1)).data_ptr() == array.ctypes.data
    assert make(ort.OrtValue.ortvalue_from_numpy(ones("?", 2))).data_type() == "tensor(bool)"
    with pytest.raises(RuntimeError, match=r"ORT only supports contiguous tensor for now."):
        make(ones("f4", 4, 4)[:, ::2])
    for wrong in (3, [1]):
        with pytest.raises(TypeError, match="from_dlpack expected a valid DLPack capsule named 'dltensor'"):
            make(wrong)
    with pytest.raises(BufferError):
        make(np.array(["a"]))


def test_dlpack_of_booleans() -> None:
    assert OrtValue.from_dlpack(ones("?", 2)).data_type() == "tensor(bool)"
    assert np.from_dlpack(OrtValue.ortvalue_from_numpy(ones("?", 2))).dtype == bool


def test_update_inplace(ort: Any) -> None:
    array = ones("f4", 2, 3)
    value = ort.OrtValue.ortvalue_from_numpy(array)
    value.update_inplace(np.arange(12, dtype="f4").reshape(2, 6)[:, ::2])
    assert array.tolist() == [[0, 2, 4], [6, 8, 10]]
    value.update_inplace(ort.OrtValue.ortvalue_from_numpy(ones("f4", 6)))
    assert (array == 1).all() and value.data_ptr() == array.ctypes.data
    with pytest.raises(RuntimeError, match=r"The input size of numpy arrays does not match the size of the OrtValue."):
        value.update_inplace(ones("f4", 7))
    with pytest.raises(RuntimeError, match="The source and destination OrtValues must have the same size"):
        value.update_inplace(ort.OrtValue.ortvalue_from_numpy(ones("f4", 7)))
    with pytest.raises(RuntimeError, match="must have the same data type"):
        value.update_inplace(ort.OrtValue.ortvalue_from_numpy(ones("i4", 6)))
    with pytest.raises(
        RuntimeError, match="Inplace update of OrtValues is currently only supported from non-string numpy arrays"
    ):
        value.update_inplace(np.array(["a"] * 6))
    with pytest.raises(TypeError, match=r"data must be a numpy.ndarray or an OrtValue."):
        value.update_inplace([1])


def test_update_inplace_of_types_numpy_lacks() -> None:
    value = OrtValue.ortvalue_from_numpy(np.zeros(2, ml_dtypes.bfloat16))
    value.update_inplace(np.full(2, 0x3F80, np.uint16))
    assert value.numpy().tolist() == [1, 1] and value.numpy().dtype == ml_dtypes.bfloat16
    with pytest.raises(RuntimeError, match="must have the same data type, not float32 and bfloat16"):
        value.update_inplace(ones("f4", 2))


def test_values_that_are_no_tensors() -> None:
    sequence = OrtValue._wrap([ones("f4", 2)], SequenceType(FLOATS))
    maps = OrtValue._wrap([{"a": 1.0}], SequenceType(MapType("string", FLOATS)))
    assert (sequence.data_type(), maps.data_type()) == ("seq(tensor(float))", "seq(map(string,tensor(float)))")
    assert (
        sequence.is_tensor_sequence()
        and not maps.is_tensor_sequence()
        and sequence.has_value()
        and not sequence.is_tensor()
    )
    assert sequence.element_type() == 1
    with pytest.raises(RuntimeError, match=r"Tensor proto_type is unavailable for this value."):
        maps.element_type()
    for value in (sequence, maps, OrtValue._wrap(None)):
        for method in (
            "shape",
            "numpy",
            "data_ptr",
            "tensor_size_in_bytes",
            "device_name",
            "__dlpack__",
            "__dlpack_device__",
            "__array__",
        ):
            with pytest.raises(RuntimeError, match=r"Only .*[tT]ensor"):
                getattr(value, method)()
        with pytest.raises(RuntimeError, match="does not contain SparseTensor"):
            value.as_sparse_tensor()
    assert not OrtValue._wrap(None).has_value()
    text = OrtValue._wrap(np.array(["a", "b"], object))
    assert text.data_type() == "tensor(string)" and text.element_type() == 8 and text.numpy().tolist() == ["a", "b"]
    with pytest.raises(RuntimeError, match="Unexpected data type of 8"):
        text.__dlpack__()


class FakeDeviceArray:
    """A tensor that NumPy does not see."""

    def __init__(self, array: np.ndarray) -> None:
        self.native, self.device, self._array = object(), Device("acme", 1), array.copy()

    @property
    def dtype(self) -> np.dtype:
        return self._array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    def to_host(self) -> np.ndarray:
        return self._array.copy()

    def write(self, array: np.ndarray) -> None:
        self._array[...] = array


class FakeMemory:
    def upload(self, array: np.ndarray) -> FakeDeviceArray:
        return FakeDeviceArray(array)

    def empty(self, dtype: np.dtype, shape: tuple[int, ...]) -> FakeDeviceArray:
        return FakeDeviceArray(np.zeros(shape, dtype))


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider of a device kind of its own."""
    monkeypatch.setattr("onnxplug.session.device.device_kinds", lambda: {"cpu", "acme"})
    monkeypatch.setattr("onnxplug.run.memory.device_memory", lambda kind, index: FakeMemory())


def test_value_on_a_device(acme: None) -> None:
    array = ones("f4", 2, 2)
    value = OrtValue.ortvalue_from_numpy(array, "acme", 1)
    array[:] = 0
    assert value.device_name() == "acme" and value.shape() == [2, 2] and value.is_tensor() and value.numpy().sum() == 4
    value.update_inplace(ones("f4", 4) * 2)
    assert value.numpy().sum() == 8 and np.asarray(value).sum() == 8
    with pytest.raises(RuntimeError, match="Memory of acme:1 has no address"):
        value.data_ptr()
    assert OrtValue.ortvalue_from_shape_and_type([3], 16, "acme", 1).numpy().dtype == ml_dtypes.bfloat16


def test_devices(ort: Any) -> None:
    made = {name: ort.OrtDevice.make(name, 2) for name in ("cpu", "cuda", "gpu", "dml", "cann", "npu", "webgpu")}
    assert {
        name: (d.device_type(), d.device_id(), int(d.device_vendor_id()), d.device_mem_type())
        for name, d in made.items()
    } == {
        "cpu": (0, 2, 0, 0),
        "cuda": (1, 2, 4318, 0),
        "gpu": (1, 2, 0, 0),
        "dml": (1, 2, 5140, 0),
        "cann": (3, 2, 6629, 0),
        "npu": (3, 2, 0, 0),
        "webgpu": (1, 2, 0, 0),
    }
    assert ort.OrtDevice.make("gpu", 0, 5).device_vendor_id() == 5
    with pytest.raises(TypeError):
        ort.OrtDevice.make("cpu", "0")
    with pytest.raises(ValueError):
        ort.OrtDevice(3)
    numbers = importlib.import_module(ort.__name__ + ".capi._pybind_state").OrtDevice
    assert numbers(0, 0, 0).device_type() == numbers.cpu() == numbers.default_memory() == 0
    assert (numbers.cuda(), numbers.fpga(), numbers.npu(), numbers.dml()) == (1, 2, 3, 4)


def test_memory_infos(ort: Any) -> None:
    arena, output = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, ort.OrtMemType.CPU_OUTPUT
    for name, facts in {
        "Cpu": (0, 0, 0),
        "Cuda": (1, 0, 4318),
        "CudaPinned": (1, 5, 4318),
        "DML": (1, 0, 5140),
    }.items():
        info = ort.OrtMemoryInfo(name, arena, 1, output)
        assert (info.device_id, int(info.device_mem_type), info.device_vendor_id) == facts
        assert (info.name, info.allocator_type, info.mem_type) == (name, arena, output)
    with pytest.raises(RuntimeError, match=r"^Specified device is not supported. Try CreateMemoryInfo_V2.$"):
        ort.OrtMemoryInfo("cpu", arena, 0, output)
    with pytest.raises(TypeError):
        ort.OrtMemoryInfo("Cpu", 0, 0, 0)
    device, memory = ort.OrtMemoryInfoDeviceType.GPU, ort.OrtDeviceMemoryType.HOST_ACCESSIBLE
    made = ort.OrtMemoryInfo.create_v2("mine", device, 7, 2, memory, 0, ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR)
    assert (made.name, made.device_id, made.device_vendor_id, made.device_mem_type) == ("mine", 2, 7, memory)


def test_arena_configurations(ort: Any) -> None:
    made = ort.OrtArenaCfg(1, 2, 3, 4)
    assert (made.max_mem, made.arena_extend_strategy, made.initial_chunk_size_bytes, made.max_dead_bytes_per_chunk) == (
        1,
        2,
        3,
        4,
    )
    made = ort.OrtArenaCfg({"max_mem": 3})
    assert made.max_mem == 3 and made.initial_growth_chunk_size_bytes == -1
    with pytest.raises(RuntimeError, match="Invalid OrtArenaCfg option: x"):
        ort.OrtArenaCfg({"x": 1})
    with pytest.raises(RuntimeError):
        ort.OrtArenaCfg({"max_mem": "a"})


def test_sparse_tensors(ort: Any) -> None:
    device, make = ort.OrtDevice.make("cpu", 0), ort.SparseTensor.sparse_coo_from_numpy
    coo = make(np.array([3, 3]), np.array([1, 2], "f4"), np.array([1, 5]), device)
    assert (
        coo.values().tolist() == [1, 2]
        and not coo.values().flags.writeable
        and coo.as_coo_view().indices().tolist() == [1, 5]
    )
    assert (coo.dense_shape(), coo.data_type(), coo.device_name()) == ([3, 3], "sparse_tensor(float)", "cpu")
    assert coo.format() == ort.OrtSparseFormat.ORT_SPARSE_COO
    csr = ort.SparseTensor.sparse_csr_from_numpy(
        [3, 3], ones("f4", 2), np.array([1, 2]), np.array([0, 1, 2, 2]), device
    )
    view = csr.as_csrc_view()
    assert (view.inner().tolist(), view.outer().tolist()) == ([1, 2], [0, 1, 2, 2])
    for call, text in (
        (coo.as_csrc_view, "This sparse tensor does not contain CSR"),
        (csr.as_coo_view, "This sparse tensor does not contain COO format"),
        (coo.as_blocksparse_view, "does not contain BlockSparse format"),
        (lambda: coo.to_cuda(device), "Cuda is not available in this build"),
        (
            lambda: make([3, 3], ones("f4", 2), np.array([1, 5, 7]), device),
            "Index size: 3 must be equal to or twice the values size: 2",
        ),
        (
            lambda: make([3, 3], ones("f4", 2, 2), np.array([1]), device),
            "Expecting values 1-D numpy values array for COO format",
        ),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()
    assert make([3, 3], np.array(["a", "b"]), np.array([1, 5]), device).values().tolist() == ["a", "b"]
    value = ort.OrtValue.ort_value_from_sparse_tensor(coo)
    assert value.is_sparse_tensor() and value.shape() == [3, 3] and value.data_type() == "sparse_tensor(float)"
    assert (
        value.device_name() == "cpu"
        and value.element_type() == 1
        and value.as_sparse_tensor().values().tolist() == [1, 2]
    )
    with pytest.raises(RuntimeError, match="Only OrtValues that are Tensors are convertible to Numpy objects"):
        value.numpy()
    with pytest.raises(ValueError, match="`Provided object` needs to be of type"):
        ort.SparseTensor(3)


def test_value_vectors() -> None:
    vector = OrtValueVector()
    vector.push_back(OrtValue.ortvalue_from_numpy(ones("?", 1)))
    vector.push_back(OrtValue.ortvalue_from_numpy(ones("f4", 1)))
    assert len(vector) == 2 and vector.bool_tensor_indices() == [0] and vector.element_type_at(1) == 1
    assert [value.data_type() for value in vector] == ["tensor(bool)", "tensor(float)"]
    assert OrtValue.from_dlpack(vector.dlpack_at(1)).data_type() == "tensor(float)"
    assert [OrtValue.from_dlpack(c).data_type() for c in vector.to_dlpacks(None)] == ["tensor(bool)", "tensor(float)"]
    with pytest.raises(IndexError):
        vector[2]


def test_copy_tensors() -> None:
    source, target = OrtValue.ortvalue_from_numpy(ones("f4", 2)), OrtValue.ortvalue_from_numpy(np.zeros(2, np.float32))
    onnxplug.copy_tensors([source], [target])
    assert target.numpy().tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="Invalid arguments provided to CopyTensors"):
        onnxplug.copy_tensors([source], [])


def test_sparse_views_are_shared() -> None:
    values = ones("f4", 2)
    made = SparseTensor.sparse_coo_from_numpy([3], values, np.array([0, 2]), onnxplug.OrtDevice.make("cpu", 0))
    values[0] = 4
    assert made.values().tolist() == [4, 1] and SparseTensor(made).values().tolist() == [4, 1]

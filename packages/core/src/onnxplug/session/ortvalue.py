"""``OrtValue``: a value of any ONNX type, in host memory (NumPy) or in a device's (``DeviceArray``)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from onnxplug.contract.types import (
    ELEMENT_CODES,
    ELEMENT_NAMES,
    SequenceType,
    TensorType,
    ValueType,
    element_of,
    numpy_dtype,
)
from onnxplug.session import dlpack
from onnxplug.session.arrays import element_dtype, from_dlpack, host_memory, shape_tuple, tensor_array
from onnxplug.session.device import OrtDevice, OrtMemoryInfo
from onnxplug.session.handed import handed
from onnxplug.session.settings import as_int
from onnxplug.session.sparse import SparseData, SparseTensor

if TYPE_CHECKING:
    import numpy.typing as npt

    from onnxplug.run.memory import DeviceArray, DeviceMemory

_NUMERIC_ONLY = "Creation of OrtValues is currently only supported from non-string numpy arrays"
_NO_MEMORY = (
    "Can't allocate memory on the device using this package of OnnxRuntime. Please use the appropriate package of"
    " OnnxRuntime for your hardware to use this feature."
)
_NO_CUDA_MEMORY = (
    "Can't allocate memory on the CUDA device using this package of OnnxRuntime. Please use the CUDA package of"
    " OnnxRuntime to use this feature."
)


class OrtValue:
    """A value that can be fed, bound and fetched without conversion. Made by the ``ortvalue_from_...`` functions and by
    runs.
    """

    __slots__ = ("__weakref__", "_owner", "_payload", "_scope", "_told")

    def __init__(self, ortvalue: OrtValue, numpy_obj: Any = None, session: Any = None) -> None:
        if not isinstance(ortvalue, OrtValue):
            raise ValueError("`Provided ortvalue` needs to be of type `OrtValue`")
        self._payload: Any = ortvalue._payload
        self._told: ValueType | None = ortvalue._told
        self._owner: Any = ortvalue._owner
        self._scope: Any = ortvalue._scope

    @classmethod
    def _wrap(cls, payload: Any, type_: ValueType | None = None, owner: Any = None, scope: Any = None) -> Self:
        """A value over a NumPy array, DeviceArray, SparseTensor, list, dict, or None for no value. ``type_`` is needed
        for lists, dicts and None; tensors know theirs. ``owner`` is kept alive as long as the value. Where ``scope`` is
        given, only the session whose lifetime that is takes the value.
        """
        value = cls.__new__(cls)
        value._payload, value._owner, value._scope = payload, owner, scope
        value._told = type_
        return value

    @property
    def _type(self) -> ValueType | None:
        """Of a tensor nobody was told the type of, made when it is asked for, which it seldom is."""
        if self._told is None and self._payload is not None:
            self._told = _type_of(self._payload)
        return self._told

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: np.ndarray, /, device_type: str | OrtDevice = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> Self:
        """A tensor of the array's type and shape. On "cpu" it aliases the array (a non-contiguous or byte-swapped one
        is copied), on any other device it is a copy. RuntimeError for strings, for what is not an array, and for a
        device nobody here offers.
        """
        device = _device(device_type, device_id, vendor_id)
        array = tensor_array(numpy_obj, _NUMERIC_ONLY)
        if device.kind == "cpu":
            return cls._wrap(array)
        return cls._wrap(_memory(device, _NO_MEMORY).upload(array))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: np.ndarray, /, onnx_element_type: int) -> Self:
        """A tensor over the bytes of ``data`` read as another element type of the same size (a TensorProto.DataType
        number).
        """
        if not isinstance(data, np.ndarray):
            raise TypeError(f"incompatible function arguments: expected a numpy.ndarray, got {data!r}")
        if as_int(onnx_element_type) not in ELEMENT_NAMES:
            raise RuntimeError(f"Not a valid ONNX Tensor data type: {onnx_element_type}")
        dtype = numpy_dtype(ELEMENT_NAMES[onnx_element_type])
        if dtype.hasobject or data.dtype.itemsize != dtype.itemsize:
            raise RuntimeError(
                f"Items size in the incoming array: {data.dtype.itemsize} specified by onnxtype: {dtype.itemsize}"
            )
        return cls._wrap(np.ascontiguousarray(data).view(dtype).reshape(data.shape))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: npt.DTypeLike | int,
        device_type: str | OrtDevice = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> Self:
        """An uninitialised tensor. ``element_type`` is a NumPy type or a TensorProto.DataType number; ``memory_info``
        names the device in place of the other arguments.
        """
        if memory_info is not None:
            if not isinstance(memory_info, OrtMemoryInfo):
                raise TypeError(f"incompatible function arguments: expected an OrtMemoryInfo, got {memory_info!r}")
            if (device_type, device_id, vendor_id) != ("cpu", 0, -1):
                warnings.warn(
                    "device_type, device_id, and vendor_id are ignored when memory_info is provided.", stacklevel=2
                )
            device = memory_info._device
        else:
            device = _device(device_type, device_id, vendor_id)
        dims, dtype = shape_tuple(shape), element_dtype(element_type, _NUMERIC_ONLY)
        if device.kind == "cpu":
            return cls._wrap(host_memory(dims, dtype))
        unavailable = _NO_CUDA_MEMORY if device.kind in ("cuda", "gpu") else _NO_MEMORY
        return cls._wrap(_memory(device, unavailable).empty(dtype, dims))

    @classmethod
    def ortvalue_from_shape_and_onnx_type(cls, shape: Sequence[int], onnx_element_type: int, device: OrtDevice) -> Self:
        """As ``ortvalue_from_shape_and_type`` with a TensorProto.DataType number: the extension class's form."""
        return cls.ortvalue_from_shape_and_type(shape, as_int(onnx_element_type), device)

    @classmethod
    def ortvalue_from_shape_and_type_for_memory_info(
        cls, shape: Sequence[int], element_type: npt.DTypeLike | int, memory_info: OrtMemoryInfo
    ) -> Self:
        """As ``ortvalue_from_shape_and_type`` on the device of ``memory_info``: the extension class's form."""
        return cls.ortvalue_from_shape_and_type(shape, element_type, memory_info=memory_info)

    ortvalue_from_shape_and_onnx_type_for_memory_info = ortvalue_from_shape_and_type_for_memory_info

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: SparseTensor | SparseData) -> Self:
        """The sparse tensor as a value."""
        return cls._wrap(SparseTensor(sparse_tensor))

    @classmethod
    def from_dlpack(cls, data: Any, /, is_bool_tensor: bool = False) -> Self:
        """A tensor that shares memory with ``data``: an object with ``__dlpack__``, or a capsule, of the host's memory or
        of a device's that a provider is there for. One of uint8 is taken for booleans where ``is_bool_tensor``.
        """
        if isinstance(data, OrtValue):
            return cls._wrap(data._tensor("Only tensor type OrtValues are supported"), owner=data)
        found = dlpack.elsewhere(data)
        if found is None:
            return cls._wrap(from_dlpack(data, is_bool_tensor))
        dtype = np.dtype(np.bool_) if is_bool_tensor and found.dtype == np.uint8 else found.dtype
        device = OrtDevice.make(found.kind, found.device_id, -1)
        return cls._at(device, dtype, found.shape, found.address, "Error when importing:", found.owner)

    @classmethod
    def _at(
        cls, device: OrtDevice, dtype: np.dtype, shape: tuple[int, ...], address: int, failed: str, owner: Any = None
    ) -> Self:
        """A tensor over the memory of a device at ``address``, which the caller keeps, or ``owner`` does. RuntimeError that begins with
        ``failed`` where no provider has such memory, and for an address where no tensor can begin."""
        where = f"{device.kind}:{device.device_id()}"
        unknown = f"{failed} There's no data transfer registered for copying tensors from addresses on {where}"
        memory = _memory(device, f"{unknown}; bind an OrtValue of a device that is there.")
        if 0 in shape:
            return cls._wrap(memory.empty(dtype, shape))
        try:
            return cls._wrap(memory.over(address, dtype, shape), owner=owner)
        except NotImplementedError as error:
            raise RuntimeError(f"{unknown}: {error}") from error
        except ValueError as error:
            raise RuntimeError(f"{failed} {error}") from error

    def data_ptr(self) -> int:
        """Address of the first element: of host memory, or what the device's array gives as its address."""
        tensor = self._tensor()
        if isinstance(tensor, np.ndarray):
            return tensor.ctypes.data
        interface = getattr(tensor.native, "__cuda_array_interface__", None)
        if interface is None:
            raise RuntimeError(f"Memory of {tensor.device} has no address")
        return int(interface["data"][0])

    def device_name(self) -> str:
        """Where the data is: ``cpu``, ``cuda``, ..."""
        if isinstance(self._payload, SparseTensor):
            return self._payload.device_name()
        tensor = self._tensor("Only OrtValues that are Tensors/SparseTensors are currently supported")
        return "cpu" if isinstance(tensor, np.ndarray) else tensor.device.kind

    def shape(self) -> list[int]:
        """The shape of a dense or sparse tensor."""
        if isinstance(self._payload, SparseTensor):
            return self._payload.dense_shape()
        return list(self._tensor("Only OrtValues that are Tensors/SpareTensors are currently supported").shape)

    def data_type(self) -> str:
        """The type string, such as ``tensor(float)`` or ``seq(tensor(int64))``."""
        if self._type is None:
            raise RuntimeError("This OrtValue is not allocated and has no type yet")
        return str(self._type)

    def element_type(self) -> int:
        """TensorProto.DataType number of a tensor's elements, or of a sequence's tensors."""
        type_ = self._type.element if isinstance(self._type, SequenceType) else self._type
        element = getattr(type_, "element", None)
        if not isinstance(element, str):
            raise RuntimeError("Tensor proto_type is unavailable for this value.")
        return ELEMENT_CODES[element]

    def tensor_size_in_bytes(self) -> int:
        """Bytes of a dense tensor's data (strings: of the references to them)."""
        tensor = self._tensor()
        return int(tensor.dtype.itemsize * np.prod(tensor.shape, dtype=np.int64))

    def has_value(self) -> bool:
        """False for an empty optional and for an output that was not computed yet."""
        return self._payload is not None

    def is_tensor(self) -> bool:
        """Whether this is a dense tensor."""
        return isinstance(self._type, TensorType)

    def is_sparse_tensor(self) -> bool:
        """Whether this is a sparse tensor."""
        return isinstance(self._payload, SparseTensor)

    def is_tensor_sequence(self) -> bool:
        """Whether this is a sequence of tensors."""
        return isinstance(self._type, SequenceType) and isinstance(self._type.element, TensorType)

    def as_sparse_tensor(self) -> SparseTensor:
        """The sparse tensor; RuntimeError for any other value."""
        if not isinstance(self._payload, SparseTensor):
            raise RuntimeError("This OrtValue does not contain SparseTensor. Check data_type() value.")
        return self._payload

    def numpy(self) -> np.ndarray:
        """A dense tensor as an array: a view of host memory, a copy of a device's and of strings. Types beyond NumPy's
        are ml_dtypes'.
        """
        tensor = self._tensor("Only OrtValues that are Tensors are convertible to Numpy objects")
        if not isinstance(tensor, np.ndarray):
            shown: np.ndarray = handed(tensor.to_host())
        else:
            shown = tensor.copy() if tensor.dtype == object else handed(tensor.view())
        return shown

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        if copy is None:
            return np.asarray(self.numpy(), dtype=dtype)
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, *, stream: Any = None, **protocol: Any) -> Any:
        """A DLPack capsule over the tensor's memory. ``stream`` matters to devices only."""
        tensor = self._tensor("Only tensor type OrtValues are supported")
        if isinstance(tensor, np.ndarray):
            return dlpack.exported(tensor, protocol)
        return dlpack.keeping(tensor.native.__dlpack__(stream=stream, **protocol), self)

    def __dlpack_device__(self) -> tuple[int, int]:
        """(device type, device index) in DLPack's numbers."""
        tensor = self._tensor("Only tensor type OrtValues are supported")
        if isinstance(tensor, np.ndarray):
            return dlpack.CPU, 0
        kind, index = tensor.native.__dlpack_device__()
        return int(kind), int(index)

    def to_dlpack(self) -> Any:
        """As ``__dlpack__()``."""
        return self.__dlpack__()

    def update_inplace(self, data: np.ndarray | OrtValue) -> None:
        """Copy ``data`` over the contents, address kept. It has as many elements, of the same type; into a type that
        NumPy lacks an unsigned integer array of the same width is copied bit by bit.
        """
        if isinstance(data, OrtValue):
            source = data.numpy()
            self._overwrite(source, "The source and destination OrtValues must have the same size")
        elif isinstance(data, np.ndarray):
            if data.dtype.kind in "OUST":
                raise RuntimeError(
                    "Inplace update of OrtValues is currently only supported from non-string numpy arrays"
                )
            self._overwrite(data, "The input size of numpy arrays does not match the size of the OrtValue.")
        else:
            raise TypeError("data must be a numpy.ndarray or an OrtValue.")

    def _overwrite(self, source: np.ndarray, wrong_size: str) -> None:
        target = self._tensor()
        if source.dtype != target.dtype and target.dtype.kind == "V" and source.dtype.kind == "u":
            source = np.ascontiguousarray(source)
            source = source.view(target.dtype) if source.itemsize == target.dtype.itemsize else source
        if source.dtype != target.dtype:
            types = f"{source.dtype} and {target.dtype}"
            raise RuntimeError(f"The source and destination OrtValues must have the same data type, not {types}")
        if source.size != np.prod(target.shape, dtype=np.int64):
            raise RuntimeError(wrong_size)
        source = source.reshape(target.shape)
        if isinstance(target, np.ndarray):
            np.copyto(target, source)
        else:
            target.write(np.ascontiguousarray(source))

    def _tensor(
        self, otherwise: str = "Only OrtValues that are Tensors are currently supported"
    ) -> np.ndarray | DeviceArray:
        payload = self._payload
        if isinstance(payload, np.ndarray) or (payload is not None and isinstance(self._type, TensorType)):
            return payload
        raise RuntimeError(otherwise)

    def _get_c_value(self) -> Self:
        return self

    _ortvalue = property(_get_c_value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"cannot pickle '{type(self).__name__}' object")

    def __copy__(self) -> OrtValue:
        return OrtValue(self)


def _memory(device: OrtDevice, otherwise: str) -> DeviceMemory:
    """Memory of a device; RuntimeError that begins with ``otherwise`` and says which providers there are."""
    from onnxplug.run.memory import device_memory

    try:
        return device_memory(device.kind, device.device_id())
    except LookupError as error:
        from onnxplug.plugins.registry import available_providers

        here = ", ".join(available_providers()) or "none"
        raise RuntimeError(f"{otherwise} {error} (available providers: {here})") from None


def _device(device_type: str | OrtDevice, device_id: int, vendor_id: int) -> OrtDevice:
    return device_type if isinstance(device_type, OrtDevice) else OrtDevice.make(device_type, device_id, vendor_id)


def _type_of(payload: Any) -> ValueType:
    if isinstance(payload, SparseTensor):
        return payload.value_type
    return TensorType(element_of(payload.dtype), tuple(payload.shape))

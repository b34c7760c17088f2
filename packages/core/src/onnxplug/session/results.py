"""Results of a run as OrtValues."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug.contract.memory import HOST
from onnxplug.contract.types import OptionalType, TensorType, ValueType, element_of
from onnxplug.run import DeviceArray
from onnxplug.run.memory import DeviceMemory, device_memory
from onnxplug.session.arrays import element_dtype, host_memory, shape_tuple
from onnxplug.session.comparison import check_shape
from onnxplug.session.device import OrtDevice
from onnxplug.session.ortvalue import OrtValue
from onnxplug.session.sparse import SparseTensor

if TYPE_CHECKING:
    from onnxplug.session.engine import Engine
    from onnxplug.session.iobinding import OutputBinding


def deliver(engine: Engine, binding: OutputBinding, result: Any) -> OrtValue:
    """One result of a bound run, in the memory that was given or on the device that was asked for."""
    if binding.value is not None:
        _fill(binding.value, result, binding.name, engine.type_of(binding.name))
        return binding.value
    memory = _memory(engine, binding.device)
    if isinstance(result, DeviceArray) and (memory is None or memory.device != result.device):
        result = result.to_host()
    if memory is not None and memory.device != HOST and isinstance(result, np.ndarray):
        result = memory.upload(result)
    return value(engine, binding.name, result)


def _memory(engine: Engine, device: OrtDevice) -> DeviceMemory | None:
    """Memory of a device of the session, or of another one of the same kind; None where there is none."""
    memories, kind, number = engine.built.runtime.memories, device.kind, device.device_id()
    found = memories.find(kind, number)
    if found is None and any(space.device.kind == kind for space in memories):
        with suppress(LookupError, Fail, RuntimeError):  # no such device, or none that can be used
            found = device_memory(kind, number)
    return found


def empty(engine: Engine, shape: Sequence[int], element_type: Any, kind: str, id_: int, vendor_id: int) -> OrtValue:
    """An uninitialised tensor in memory of the session."""
    device, dims = OrtDevice.make(kind, id_, vendor_id), shape_tuple(shape)
    dtype = element_dtype(element_type, "Creation of OrtValues is currently only supported for numeric tensor types")
    where = f"{device.kind}:{device.device_id()}"
    if where == str(HOST) and vendor_id <= 0:
        return OrtValue._wrap(host_memory(dims, dtype), owner=engine.lifetime, scope=engine.lifetime)
    memory = engine.built.runtime.memories.find(device.kind, device.device_id())
    if memory is None or memory.device == HOST:
        here = ", ".join(str(space.device) for space in engine.built.runtime.memories)
        vendor = f" of vendor {vendor_id:#x}" if vendor_id > 0 else ""
        raise RuntimeError(f"No session allocator found for {where}{vendor} (there are: {here})")
    return OrtValue._wrap(memory.empty(dtype, dims), owner=engine.lifetime, scope=engine.lifetime)


def value(engine: Engine, name: str, payload: Any) -> OrtValue:
    """A result with its declared type; one on a device keeps the memory alive."""
    type_ = engine.type_of(name)
    if isinstance(payload, SparseTensor):
        return OrtValue._wrap(payload)
    if isinstance(type_, OptionalType) and payload is not None:
        type_ = type_.element  # an optional that has a value is that value
    return OrtValue._wrap(payload, type_, engine.lifetime if isinstance(payload, DeviceArray) else None)


def filled(held: Any, result: Any) -> bool:
    """Whether a result is in the memory given for it now, as nearly always: what fits is found out without spelling types."""
    if held is result:
        return True
    if not (
        held.__class__ is result.__class__ is np.ndarray
        and held.dtype is result.dtype
        and held.shape == result.shape
        and not held.dtype.hasobject
    ):
        return False
    held[...] = result
    return True


def _fill(value: OrtValue, result: Any, name: str, declared: ValueType | None) -> None:
    if filled(value._payload, result):
        return
    if isinstance(result, SparseTensor):
        raise InvalidArgument(
            f"Output '{name}' is a {result.data_type()}: no memory can be bound for it, only a device"
        )
    shape, actual = tuple(result.shape), f"tensor({element_of(np.dtype(result.dtype))})"
    if value.data_type() != actual:
        raise InvalidArgument(
            f"Unexpected output data type. Actual: ({value.data_type()}) , expected: ({actual}) (output '{name}')"
        )
    if tuple(value.shape()) != shape:
        if isinstance(declared, TensorType):
            check_shape(name, value.shape(), declared, "output")
        raise InvalidArgument(
            f"The output OrtValue provided for output '{name}' has shape {{{','.join(map(str, value.shape()))}}} but the "
            f"computed output shape for this run is {{{','.join(map(str, shape))}}}."
        )
    target = value._tensor()
    if isinstance(result, DeviceArray) and isinstance(target, DeviceArray) and target.device == result.device:
        result.memory.send(result.native, target.native)
    else:
        value.update_inplace(result.to_host() if isinstance(result, DeviceArray) else result)

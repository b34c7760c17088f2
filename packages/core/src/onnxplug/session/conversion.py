"""Python values to ONNX values, guided by the declared type where Python's own type does not say enough."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from onnxplug.contract.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, ValueType
from onnxplug.session.arrays import check_dtype, is_text, tensor_array
from onnxplug.session.ortvalue import OrtValue
from onnxplug.session.sparse import SparseTensor

_KEY_WORDS = {"string": "string", "int64": "int64_t"}


class Typed(NamedTuple):
    """A value of the run and the type it has by itself."""

    value: Any
    type: ValueType | None


def convert(name: str, declared: ValueType | None, value: Any) -> Typed:
    """The value fed as ``name``, for which ``declared`` is None when the model has no such input. RuntimeError in
    onnxruntime's words for what cannot be converted. Types and shapes are not compared with the declaration, except
    where elements are made from it.
    """
    if isinstance(value, np.ndarray | np.generic):  # NumPy scalars are taken as 0-d arrays, which onnxruntime refuses
        made = tensor_of(declared, np.asarray(value))
        return made._replace(value=_ready(made.value))
    if isinstance(value, OrtValue):
        return Typed(_ready(value._payload), value._type)
    if isinstance(declared, OptionalType):
        declared = declared.element
    if isinstance(value, list):
        return _from_list(name, declared, value)
    if isinstance(value, dict):
        return _from_dict(name, declared, value)
    if isinstance(value, SparseTensor) and isinstance(declared, SparseTensorType):
        return Typed(value, value.value_type)
    return _from_iterable(name, declared, value)


def declared_tensor(type_: ValueType | None) -> TensorType | None:
    """The tensor that ``type_`` is or optionally is, else None."""
    if isinstance(type_, OptionalType):
        type_ = type_.element
    return type_ if isinstance(type_, TensorType) else None


def strings(array: np.ndarray) -> np.ndarray:
    """A fresh object array of ``str``, C-contiguous. Bytes are read as UTF-8 (void elements keep their NULs), objects
    by ``str()``.
    """
    if array.dtype.kind in "UT":
        return np.array(array.astype(object), order="C")
    if array.dtype.names and array.dtype.hasobject:
        raise RuntimeError(f"Structured arrays with references hold no text: {array.dtype}")
    plain = array if array.dtype.names is None else np.ascontiguousarray(array).view(f"V{array.dtype.itemsize}")
    flat = plain.ravel().tolist()
    if array.dtype.kind in "SV":
        texts = [element.decode() for element in flat]
    else:
        texts = [element if type(element) is str else str(element) for element in flat]
    made = np.empty(len(texts), object)
    made[:] = texts
    return made.reshape(array.shape)


def is_plain(array: np.ndarray, dtype: np.dtype) -> bool:
    """Whether the array is fed as it is, where elements of ``dtype`` are declared that are no text."""
    return type(array) is np.ndarray and array.dtype is dtype and array.flags.c_contiguous


def tensor_of(declared: ValueType | None, array: np.ndarray) -> Typed:
    """An array as it is fed. Text becomes ``str`` objects only where that is declared; elsewhere it is refused for its type anyway."""
    wanted = declared_tensor(declared)
    if wanted is not None and wanted.element != "string" and is_plain(array, wanted.dtype):
        return Typed(array, TensorType(wanted.element, array.shape))  # as nearly always
    if is_text(array.dtype):
        use = strings(array) if wanted is not None and wanted.element == "string" else np.asarray(array)
        return Typed(use, TensorType("string", array.shape))
    element = check_dtype(array.dtype)
    if element.startswith("complex") and (wanted is None or wanted.element != element):
        raise RuntimeError(f"Numpy_type {array.dtype.num} can't be converted to MLDataType.")
    return Typed(tensor_array(array, ""), TensorType(element, array.shape))


def _ready(payload: Any) -> Any:
    """Arrays must be aligned; a view at an odd address is copied."""
    if isinstance(payload, np.ndarray) and not payload.flags.aligned:
        return payload.copy()
    return payload


def _from_list(name: str, declared: ValueType | None, values: list[Any]) -> Typed:
    if declared is None:
        raise RuntimeError(f"Failed to find input with name: {name} in the model input def list")
    if isinstance(declared, TensorType):
        return Typed(_array_from_list(declared, values), TensorType(declared.element))
    if isinstance(declared, SequenceType):
        if isinstance(declared.element, TensorType):
            return Typed(
                [_member_tensor(declared.element, each) for each in values],
                SequenceType(TensorType(declared.element.element)),
            )
        return Typed([convert(name, declared.element, each).value for each in values], declared)
    raise RuntimeError("The graph is missing type information needed to construct the ORT tensor")


def _array_from_list(declared: TensorType, values: list[Any]) -> np.ndarray:
    """Elements are converted to the declared type: floats lose their fraction for integers, numbers become text for
    strings.
    """
    try:
        array = np.array(values, dtype=declared.dtype)
        if declared.element == "string":
            if any(isinstance(each, list | tuple) for each in array.ravel()):
                raise ValueError("ragged")
            return strings(array)
    except (ValueError, TypeError, OverflowError):
        raise RuntimeError("Could not create tensor from given input list") from None
    return array


def _member_tensor(declared: TensorType, value: Any) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise RuntimeError("CreateSequenceOfTensors: Input is not a tensor")
    array, type_ = tensor_of(declared, value)
    if not isinstance(type_, TensorType) or type_.element != declared.element:
        raise RuntimeError("TensorSeq: tensor to be added has a different data type.")
    return _ready(array)  # type: ignore[no-any-return]


def _from_dict(name: str, declared: ValueType | None, values: dict[Any, Any]) -> Typed:
    """A map by the type of its first key; values are float unless the model says otherwise."""
    if not values:
        raise RuntimeError("Size of dictionary is empty, unable to run the prediction.")
    key = _key_kind(next(iter(values)), name)
    element = "float"
    if isinstance(declared, MapType) and isinstance(declared.value, TensorType):
        element = declared.value.element
    made = {}
    for each, value in values.items():
        if _key_kind(each, name) != key:
            raise RuntimeError(
                f"Unexpected key type  {type(each)}, it cannot be linked to C type {_KEY_WORDS[key]} for input '{name}'"
            )
        made[str(each) if key == "string" else int(each)] = _map_value(name, key, element, value)
    if isinstance(declared, MapType) and key == declared.key:
        return Typed(made, declared)
    return Typed(made, MapType(key, TensorType(element)))


def _key_kind(key: Any, name: str) -> str:
    if isinstance(key, str):
        return "string"
    if isinstance(key, int | np.integer):
        return "int64"
    raise RuntimeError(f"Key type must be either string or int64, not {type(key)}, for input '{name}'.")


def _map_value(name: str, key: str, element: str, value: Any) -> Any:
    try:
        if element == "string":
            if isinstance(value, str):
                return value
        elif not isinstance(value, str):
            if "int" in element:
                whole = int(value)
                if whole == value:
                    return whole
                raise RuntimeError(f"{value!r} is no integer, which the map '{name}' holds")
            number = float(value)  # of None NumPy would make a NaN
            return np.float64(number) if element == "double" else number  # kernels tell double by its type
    except (TypeError, ValueError, OverflowError):
        pass
    raise RuntimeError(
        f"Unexpected value type  {type(value)}, it cannot be linked to C type {_KEY_WORDS[key]} for input '{name}'."
    )


def _from_iterable(name: str, declared: ValueType | None, value: Iterable[Any]) -> Typed:
    """Other iterables may hold maps, which make a sequence of maps; nothing else."""
    try:
        items = list(value)
    except (TypeError, NotImplementedError):
        raise RuntimeError(f"Unable to handle object of type {type(value)}") from None
    if not items:
        raise RuntimeError(f"Input '{name}' must not be empty.")
    if isinstance(items[0], np.ndarray):
        raise RuntimeError(f"Iterable of {type(items[0])} should be given as array for input '{name}'.")
    if not all(isinstance(item, dict) for item in items):
        raise RuntimeError(f"Input must be a list of dictionaries or a single numpy array for input '{name}'.")
    element = declared.element if isinstance(declared, SequenceType) else None
    maps = [_from_dict(name, element, item) for item in items]
    assert maps[0].type is not None
    return Typed([each.value for each in maps], SequenceType(maps[0].type))

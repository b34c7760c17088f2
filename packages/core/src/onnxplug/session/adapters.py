"""LoRA adapters: tensors by name that stand in for a model's optional inputs, in onnxruntime's file format
(a FlatBuffer with identifier TORT, onnxruntime/lora/adapter_format/adapter_schema.fbs)."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping

import numpy as np

from onnxplug.contract.errors import InvalidArgument
from onnxplug.contract.types import ELEMENT_NAMES, numpy_dtype
from onnxplug.session.flatbuffer import Table, Writer
from onnxplug.session.ortvalue import OrtValue
from onnxplug.session.settings import as_int

_IDENTIFIER = b"TORT"
_FORMAT_VERSION = 1
_FORMAT, _ADAPTER, _MODEL, _PARAMETERS = range(4)
_NAME, _DIMS, _TYPE, _DATA = range(4)


class AdapterFormat:
    """An adapter to be written to a file, or as it was read from one."""

    def __init__(self, adapter: AdapterFormat | None = None) -> None:
        self._format: int = _FORMAT_VERSION if adapter is None else adapter._format
        self._adapter_version: int = 0 if adapter is None else adapter._adapter_version
        self._model_version: int = 0 if adapter is None else adapter._model_version
        self._parameters: dict[str, OrtValue] = {} if adapter is None else dict(adapter._parameters)

    @staticmethod
    def read_adapter(file_path: str | os.PathLike[str]) -> AdapterFormat:
        """The adapter of a file; its values show the file's memory. RuntimeError for what is no adapter."""
        data = _mapped(file_path)
        try:
            root = Table.root(data, _IDENTIFIER)
            adapter = AdapterFormat()
            adapter._format = root.number(_FORMAT)
            adapter._adapter_version, adapter._model_version = root.number(_ADAPTER), root.number(_MODEL)
            adapter._parameters = dict(map(_parameter, root.tables(_PARAMETERS)))
        except (ValueError, KeyError, UnicodeDecodeError) as error:
            text = "The buffer does not appear to be a valid lora parameter format"
            raise RuntimeError(f"{text}: '{os.fspath(file_path)}' ({error})") from None
        return adapter

    def export_adapter(self, file_path: str | os.PathLike[str]) -> None:
        """Write the adapter to a file."""
        tables = [_fields(name, value) for name, value in sorted(self._parameters.items())]
        versions = (self._format, self._adapter_version, self._model_version)
        data = Writer().file(_IDENTIFIER, [*(("<i", v) for v in versions), ("tables", tables)])
        try:
            with open(os.fspath(file_path), "wb") as file:
                file.write(data)
        except OSError as error:
            raise RuntimeError(str(InvalidArgument(f"Cannot write adapter '{file_path}': {error.strerror}"))) from error

    def get_format_version(self) -> int:
        """Version of the file format."""
        return self._format

    def set_adapter_version(self, adapter_version: int) -> None:
        """Set the author's version of the adapter."""
        self._adapter_version = as_int(adapter_version)

    def get_adapter_version(self) -> int:
        """The author's version of the adapter."""
        return self._adapter_version

    def set_model_version(self, model_version: int) -> None:
        """Set the version of the model that the adapter is for."""
        self._model_version = as_int(model_version)

    def get_model_version(self) -> int:
        """The version of the model that the adapter is for."""
        return self._model_version

    def set_parameters(self, params: Mapping[str, OrtValue]) -> None:
        """Set the tensors by input name. RuntimeError for strings and what is no tensor."""
        values = {name: value._ortvalue for name, value in params.items()}
        for name, value in values.items():
            if not value.is_tensor() or value.data_type() == "tensor(string)":
                raise RuntimeError(f"Parameter '{name}' of an adapter must be a tensor of numbers")
        self._parameters = values

    def get_parameters(self) -> dict[str, OrtValue]:
        """The tensors by input name."""
        return dict(self._parameters)

    # the extension class's names

    format_version = property(get_format_version)
    adapter_version = property(get_adapter_version, set_adapter_version)
    model_version = property(get_model_version, set_model_version)
    parameters = property(get_parameters, set_parameters)


class LoraAdapter:
    """An adapter for ``RunOptions.add_active_adapter``."""

    def __init__(self) -> None:
        self._parameters: dict[str, OrtValue] = {}

    def Load(self, file_path: str | os.PathLike[str]) -> None:
        """Read an adapter file. RuntimeError for what is no adapter."""
        self._parameters = AdapterFormat.read_adapter(file_path).get_parameters()


def _mapped(path: str | os.PathLike[str]) -> memoryview:
    try:
        with open(os.fspath(path), "rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise RuntimeError(str(InvalidArgument(f"Cannot read adapter '{os.fspath(path)}': {error}"))) from error


def _parameter(table: Table) -> tuple[str, OrtValue]:
    dtype = numpy_dtype(ELEMENT_NAMES[table.number(_TYPE)])
    array = np.frombuffer(table.bytes(_DATA), np.uint8)
    if array.ctypes.data % dtype.alignment:
        array = array.copy()
    return bytes(table.bytes(_NAME)).decode(), OrtValue._wrap(array.view(dtype).reshape(table.numbers(_DIMS)))


def _fields(name: str, value: OrtValue) -> list[tuple[str, object] | None]:
    array = np.ascontiguousarray(value.numpy())
    dims = [int(dim) for dim in value.shape()]
    return [("text", name.encode()), ("numbers", dims), ("<i", value.element_type()), ("bytes", array.tobytes())]

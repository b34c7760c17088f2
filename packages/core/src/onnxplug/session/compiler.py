"""``ModelCompiler``: a model compiled ahead of time for the providers of session options, written as a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug.graph.external import move_out, refer
from onnxplug.session.context_data import OrtEpContextData
from onnxplug.session.device_enums import OrtCompileApiFlags
from onnxplug.session.enums import GraphOptimizationLevel
from onnxplug.session.ep_context import beside, context_path, with_contexts
from onnxplug.session.options import SessionOptions
from onnxplug.session.ortvalue import OrtValue
from onnxplug.session.settings import as_int, as_size, as_text


class OrtExternalInitializerInfo:
    """Where an initializer lies outside of its model's file."""

    def __init__(self, filepath: str, file_offset: int, byte_size: int) -> None:
        self._place = (as_text(filepath), int(file_offset), int(byte_size))

    @property
    def filepath(self) -> str:
        """The file, relative to the model's folder."""
        return self._place[0]

    @property
    def file_offset(self) -> int:
        """Where it begins in the file."""
        return self._place[1]

    @property
    def byte_size(self) -> int:
        """Its bytes."""
        return self._place[2]


Locate = Callable[[str, OrtValue, OrtExternalInitializerInfo | None], OrtExternalInitializerInfo | None]


class ModelCompiler:
    """Compiles a model for the providers of ``sess_options``; regions that a provider compiles and can export become
    EPContext nodes, the rest of the model stays as it is.

    ValueError for an empty path or empty bytes and for two places for initializers, TypeError for arguments of other
    types.
    """

    def __init__(
        self,
        sess_options: SessionOptions,
        input_model_path_or_bytes: str | os.PathLike[str] | bytes,
        embed_compiled_data_into_model: bool = False,
        external_initializers_file_path: str | os.PathLike[str] | None = None,
        external_initializers_size_threshold: int = 1024,
        flags: int | OrtCompileApiFlags = OrtCompileApiFlags.NONE,
        graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_DISABLE_ALL,
        get_initializer_location_func: Locate | None = None,
    ) -> None:
        if not isinstance(sess_options, SessionOptions):
            raise TypeError(f"ModelCompiler(): sess_options must be SessionOptions, got {type(sess_options).__name__}")
        self._source = _source(input_model_path_or_bytes)
        if external_initializers_file_path and get_initializer_location_func is not None:
            raise ValueError(
                "Cannot initialize ModelCompiler with both `external_initializers_file_path` and "
                "`get_initializer_location_func`"
            )
        if external_initializers_file_path and not isinstance(external_initializers_file_path, str | os.PathLike):
            kind = type(external_initializers_file_path)
            raise TypeError(f"Output external initializer filepath is of unexpected type '{kind}'")
        self._options = sess_options._copy()
        self._options.graph_optimization_level = graph_optimization_level
        self._embed = bool(embed_compiled_data_into_model)
        self._external = os.fspath(external_initializers_file_path) if external_initializers_file_path else None
        self._threshold, self._flags = as_size(external_initializers_size_threshold), as_int(flags)
        self._locate = get_initializer_location_func
        self._write: Callable[[str, OrtEpContextData], None] | None = None
        self._binaries: str | None = None

    def compile_to_file(self, output_model_path: str | os.PathLike[str] | None = None) -> None:
        """Write the compiled model, by default to ``model_ctx.onnx`` for ``model.onnx``."""
        if output_model_path is not None and not isinstance(output_model_path, str | os.PathLike):
            raise TypeError(f"Output model's filepath is of unexpected type '{type(output_model_path)}'")
        path = os.fspath(output_model_path) if output_model_path else self._default_path()
        if self._flags & OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS.value and os.path.exists(path):
            raise Fail(
                f"Failed to generate EP context model since the file '\"{path}\"' exists already. Please remove the EP context model "
                "if you want to re-generate it."
            )
        proto = self._compiled(path)
        try:
            Path(path).write_bytes(proto.SerializeToString())
        except OSError as error:
            raise InvalidArgument(f'open file "{path}" failed: {error.strerror or error}') from error

    def compile_to_bytes(self) -> bytes:
        """The compiled model, serialized."""
        return bytes(self._compiled(None).SerializeToString())

    def compile_to_stream(self, write_function: Callable[[bytes], None]) -> None:
        """Give the serialized model to ``write_function``."""
        made = self.compile_to_bytes()
        if not callable(write_function):
            raise TypeError(
                f"compile_to_stream(): incompatible function arguments: expected a callable, got {write_function!r}"
            )
        with _callback():
            write_function(made)

    def set_ep_context_data_write_func(self, write_func: Callable[[str, OrtEpContextData], None]) -> None:
        """Let ``write_func(name, data)`` keep what the nodes do not hold themselves, in place of files beside the
        model."""
        if not callable(write_func):
            raise TypeError(f"expected a callable, got {write_func!r}")
        self._write = write_func

    def clear_ep_context_data_write_func(self) -> None:
        """Undo ``set_ep_context_data_write_func``."""
        self._write = None

    def set_ep_context_binary_information(self, output_directory: str | os.PathLike[str], model_name: str) -> None:
        """Let files of what the nodes do not hold themselves lie in a folder, under names that begin with that of the model.
        InvalidArgument where one of both is empty, and, as in onnxruntime, for a folder without an extension or a slash at its
        end."""
        folder, name = os.fsdecode(output_directory), as_text(model_name)
        if not folder or not name:
            raise InvalidArgument("output_dir or model_name is empty.")
        if not os.path.basename(folder) == "" and not os.path.splitext(folder)[1]:
            raise InvalidArgument("output_dir is not a valid directory.")
        self._binaries = os.path.join(folder, name)

    def _default_path(self) -> str:
        if isinstance(self._source, bytes):
            raise InvalidArgument("A model given as bytes needs a path for the compiled model")
        return context_path(self._source)

    def _compiled(self, path: str | None) -> Any:
        """The compiled ModelProto, with its data and initializers put where they belong."""
        from onnxplug.session.session import InferenceSession

        if isinstance(self._source, str) and not os.path.exists(self._source):
            raise InvalidArgument(f'Input model path does not exist: "{self._source}"')
        folder = os.path.dirname(path or "") or "."
        with InferenceSession(self._source, self._options, enable_fallback=0) as session:
            named = self._binaries or path or (self._source if isinstance(self._source, str) else "model")
            proto, count = with_contexts(session._engine.built, self._writer(self._binaries or path), Path(named).stem)
            if not count and self._flags & OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED.value:
                raise Fail(
                    "Unable to compile any nodes. Check that the session EPs support compilation and can execute at least "
                    "one subgraph in the model."
                )
            self._place_initializers(proto, folder)
        return proto

    def _writer(self, path: str | None) -> Callable[[str, bytes], None] | None:
        if self._embed:
            return None
        if self._write is not None:
            function = self._write
            return lambda name, data: function(name, OrtEpContextData(data))
        if path is not None:
            return beside(path)

        def refuse(name: str, data: bytes) -> None:
            raise InvalidArgument(
                "A model compiled to bytes holds its compiled data only with embed_compiled_data_into_model, or gives it to "
                "set_ep_context_data_write_func"
            )

        return refuse

    def _place_initializers(self, proto: Any, folder: str) -> None:
        """Move initializers out of the model: large ones into one file, or each where a function says it is."""
        from onnx import numpy_helper

        if self._external is not None:
            move_out(proto, folder, self._external, self._threshold + 1)
        if self._locate is None:
            return
        for tensor in proto.graph.initializer:
            array = numpy_helper.to_array(tensor)
            if array.dtype == object:
                continue
            with _callback():
                info = self._locate(tensor.name, OrtValue._wrap(array), None)
                if info is not None and not isinstance(info, OrtExternalInitializerInfo):
                    raise TypeError(
                        f"get_initializer_location_func gave {info!r}, not OrtExternalInitializerInfo or None"
                    )
            if info is not None:
                refer(tensor, info.filepath, info.file_offset, info.byte_size)


@contextmanager
def _callback() -> Iterator[None]:
    """Raise Fail, as onnxruntime, for what a program's function raises."""
    try:
        yield
    except Exception as error:
        raise Fail(f"{type(error).__name__}: {error}") from error


def _source(given: Any) -> str | bytes:
    if isinstance(given, bytes):
        if not given:
            raise ValueError("Input model bytes array is empty")
        return given
    if not isinstance(given, str | os.PathLike):
        raise TypeError(f"Unable to load from type '{type(given)}'")
    if not os.fspath(given):
        raise ValueError("Input model path is empty")
    return os.fsdecode(given)

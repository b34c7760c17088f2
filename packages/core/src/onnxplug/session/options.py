"""``SessionOptions`` and ``RunOptions``: onnxruntime's names, defaults and checks.

Objects hold what was set and nothing else; a session takes its own copy (``_copy``) when it is created. What has no
meaning here is accepted, kept and said so in its documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug.contract.errors import NotImplemented as OrtNotImplemented
from onnxplug.session.enums import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtExecutionProviderDevicePolicy,
)

if TYPE_CHECKING:
    from onnxplug.session.ortvalue import OrtValue

T = TypeVar("T")
_MAX_KEY, _MAX_VALUE = 1024, 8192


def as_int(value: Any) -> int:
    """An integer that fits 32 bits; TypeError for anything else, floats and digits in a string included."""
    if not hasattr(value, "__index__") or not -(2**31) <= (number := int(value)) < 2**31:
        raise TypeError(f"expected an int of 32 bits, got {value!r}")
    return number


def as_size(value: Any) -> int:
    """A number of bytes; TypeError for what is no integer or negative."""
    if not hasattr(value, "__index__") or int(value) < 0:
        raise TypeError(f"expected a number of bytes, got {value!r}")
    return int(value)


def as_bool(value: Any) -> bool:
    """A truth value: bool, number or None, but nothing that merely has a length."""
    if value is not None and not hasattr(value, "__bool__"):
        raise TypeError(f"expected a bool, got {value!r}")
    return bool(value)


def as_text(value: Any) -> str:
    """A string; bytes are read as UTF-8."""
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError(f"expected a str, got {value!r}")
    return value


def _member(cls: type[T]) -> Callable[[Any], T]:
    def check(value: Any) -> T:
        if not isinstance(value, cls):
            raise TypeError(f"expected a {cls.__name__}, got {value!r}")
        return value

    return check


class _Setting(Generic[T]):
    """One property of an options class: its default, its check, its documentation."""

    def __init__(self, default: T, check: Callable[[Any], T], doc: str) -> None:
        self.default, self.check, self.__doc__ = default, check, doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.owner = name, owner.__name__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: _Options, owner: type) -> T: ...
    def __get__(self, instance: _Options | None, owner: type) -> Self | T:
        if instance is None:
            return self
        return instance._values.get(self.name, self.default)  # type: ignore[no-any-return]

    def __set__(self, instance: _Options, value: T) -> None:
        try:
            instance._values[self.name] = self.check(value)
        except TypeError as error:
            raise TypeError(f"{self.owner}.{self.name}: incompatible function arguments: {error}") from None


class _Options:
    """Typed properties plus free configuration entries. Unknown attributes raise AttributeError. Copies and pickles hold
    all that was set.
    """

    __slots__ = ("__weakref__", "_config_entries", "_values")

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._config_entries: dict[str, str] = {}

    def _slots(self) -> list[str]:
        slots = (slot for cls in type(self).__mro__ for slot in getattr(cls, "__slots__", ()))
        return [slot for slot in slots if slot != "__weakref__"]

    def _copy(self) -> Self:
        """The session's own copy, which later changes of the original do not reach."""
        twin = object.__new__(type(self))
        for slot in self._slots():
            value = getattr(self, slot)
            setattr(twin, slot, value.copy() if isinstance(value, dict | list) else value)
        return twin

    __copy__ = _copy

    def __getstate__(self) -> dict[str, Any]:
        return {slot: getattr(self, slot) for slot in self._slots()}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        for slot, value in state.items():
            setattr(self, slot, value)

    def _add_config_entry(self, key: Any, value: Any) -> None:
        key, value = as_text(key), as_text(value)
        if not key or len(key) > _MAX_KEY:
            raise RuntimeError(f"Config key is empty or longer than maximum length {_MAX_KEY}")
        if len(value) > _MAX_VALUE:
            raise RuntimeError(f"Config value is longer than maximum length: {_MAX_VALUE}")
        if key in self._config_entries:
            from onnxplug.session.logging import process_logger

            process_logger().warning(
                "Config with key [%s] already exists with value [%s]. It will be overwritten",
                key,
                self._config_entries[key],
            )
        self._config_entries[key] = value

    def _get_config_entry(self, key: Any) -> str:
        try:
            return self._config_entries[as_text(key)]
        except KeyError:
            raise RuntimeError(f"{type(self).__name__} does not have configuration with key: {key}") from None


class SessionOptions(_Options):
    """How a session is made."""

    __slots__ = (
        "_ep_context_reader", "_external_files", "_external_initializers", "_free_dimensions_by_denotation",
        "_free_dimensions_by_name", "_initializers", "_load_cancelled", "_policy", "_providers",
    )  # fmt: skip

    graph_optimization_level = _Setting(
        GraphOptimizationLevel.ORT_ENABLE_ALL,
        _member(GraphOptimizationLevel),
        "How far the model is rewritten: not at all, or by the passes of ORT_ENABLE_BASIC. Higher levels add nothing here: "
        "fusions are what providers claim.",
    )
    intra_op_num_threads = _Setting(0, as_int, "Threads of one operator; 0: one for each core.")
    inter_op_num_threads = _Setting(0, as_int, "Kept only: nodes of one run are executed one after the other.")
    execution_mode = _Setting(
        ExecutionMode.ORT_SEQUENTIAL,
        _member(ExecutionMode),
        "Kept only: nodes of one run are executed one after the other.",
    )
    execution_order = _Setting(ExecutionOrder.DEFAULT, _member(ExecutionOrder), "Kept only: the order is topological.")
    optimized_model_filepath = _Setting("", as_text, "Where the rewritten model is saved at creation; '' for nowhere.")
    enable_profiling = _Setting(False, as_bool, "Record each run; ``end_profiling`` names the file.")
    profile_file_prefix = _Setting("onnxruntime_profile_", as_text, "Path and beginning of the profile's file name.")
    log_severity_level = _Setting(-1, as_int, "0 verbose .. 4 fatal; -1 for the process's severity.")
    log_verbosity_level = _Setting(0, as_int, "Kept only: verbose records have one level.")
    logid = _Setting("", as_text, "Stamped on this session's log records.")
    enable_cpu_mem_arena = _Setting(True, as_bool, "Take host memory through an arena.")
    enable_mem_pattern = _Setting(True, as_bool, "Lay out intermediate values of a run in one block per input shape.")
    enable_mem_reuse = _Setting(True, as_bool, "Let intermediate values share memory.")
    use_deterministic_compute = _Setting(False, as_bool, "Ask kernels for reproducible results.")
    use_per_session_threads = _Setting(
        True, as_bool, "Off: take the number of threads that ``set_global_thread_pool_sizes`` gave the process."
    )

    def __init__(self) -> None:
        super().__init__()
        self._free_dimensions_by_name: dict[str, int] = {}
        self._free_dimensions_by_denotation: dict[str, int] = {}
        self._initializers: dict[str, OrtValue] = {}
        self._external_initializers: dict[str, OrtValue] = {}
        self._external_files: dict[str, memoryview] = {}
        self._providers: list[tuple[str, dict[str, str]]] = []
        self._policy: Any = None
        self._ep_context_reader: Any = None
        self._load_cancelled = False

    def __getstate__(self) -> dict[str, Any]:
        """What was set; values given in place of initializers as host arrays, files in memory as bytes."""
        state = super().__getstate__()
        for slot in ("_initializers", "_external_initializers"):
            state[slot] = {name: value.numpy() for name, value in state[slot].items()}
        state["_external_files"] = {name: bytes(data) for name, data in state["_external_files"].items()}
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        super().__setstate__(state)
        if self._initializers or self._external_initializers:
            from onnxplug.session.ortvalue import OrtValue

            self._initializers = {n: OrtValue._wrap(a) for n, a in state["_initializers"].items()}
            self._external_initializers = {n: OrtValue._wrap(a) for n, a in state["_external_initializers"].items()}
        self._external_files = {name: memoryview(data) for name, data in state["_external_files"].items()}

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set a configuration entry; unknown keys are kept and have no effect. RuntimeError for an empty or too long
        key or value.
        """
        self._add_config_entry(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """The value of a configuration entry; RuntimeError when it was not set."""
        return self._get_config_entry(key)

    def add_free_dimension_override_by_name(self, dim_param: str, dim_value: int) -> None:
        """Fix the symbolic dimension of this name in all declared inputs."""
        self._free_dimensions_by_name[as_text(dim_param)] = as_int(dim_value)

    def add_free_dimension_override_by_denotation(self, dim_denotation: str, dim_value: int) -> None:
        """Fix the dimensions that carry this denotation."""
        self._free_dimensions_by_denotation[as_text(dim_denotation)] = as_int(dim_value)

    def add_initializer(self, name: str, ort_value: OrtValue) -> None:
        """Use ``ort_value`` in place of the model's initializer ``name``. RuntimeError for a second value of one
        name.
        """
        name = as_text(name)
        if name in self._initializers:
            text = f"An OrtValue for this name has already been added: {name}"
            raise RuntimeError(str(InvalidArgument(text)))
        self._initializers[name] = _ortvalue(ort_value)

    def add_external_initializers(self, names: Sequence[str], ort_values: Sequence[OrtValue]) -> None:
        """Values for initializers whose data the model keeps outside of its file."""
        if not isinstance(names, list) or not isinstance(ort_values, list):
            raise TypeError("add_external_initializers(): incompatible function arguments: expected two lists")
        if len(names) != len(ort_values):
            raise RuntimeError("Expecting names and ort_values lists to have equal length")
        values = [_ortvalue(value) for value in ort_values]
        self._external_initializers.update(zip(map(as_text, names), values, strict=True))

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """Contents of external data files, by the file names that the model gives."""
        if not len(names) == len(buffers) == len(lengths):
            raise RuntimeError(
                "add_external_initializers_from_files_in_memory: expecting 'names', 'buffers' and 'lengths' to have"
                " equal length"
            )
        for name, buffer, length in zip(names, buffers, lengths, strict=True):
            self._external_files[as_text(name)] = memoryview(buffer).cast("B")[: as_size(length)]

    def register_custom_ops_library(self, path: str) -> None:
        """NotImplemented: such libraries are written against onnxruntime's C interface, which does not exist here. Fail
        where there is no file.
        """
        import os

        path = as_text(path)
        if os.path.exists(path):
            raise OrtNotImplemented(
                f"Cannot load library {path}: custom operators come from provider packages here, not from libraries for "
                "onnxruntime's C interface"
            )
        raise Fail(
            f"Failed to load library {path} with error: {path}: cannot open shared object file: No such file or directory"
        )

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Append a provider; the session's ``providers`` argument wins over these. RuntimeError for an unknown name,
        InvalidArgument for a provider that is not available.
        """
        name = as_text(name)
        if not isinstance(options, Mapping):
            raise TypeError(
                f"add_provider(): incompatible function arguments: expected a mapping of str to str, got {options!r}"
            )
        checked = {as_text(key): as_text(value) for key, value in options.items()}
        from onnxplug.plugins import registry

        if name not in registry.available_providers():
            if name not in registry.all_providers():
                raise RuntimeError(f"Unknown Provider Type: {name}")
            raise InvalidArgument(
                f"Failed to add provider of type '{name}' to SessionOptions. {registry.explain_missing(name)}"
            )
        self._providers.append((name, checked))

    def add_provider_for_devices(self, ep_devices: Sequence[Any], provider_options: Mapping[str, str]) -> None:
        """Append the provider of these devices (entries of ``get_ep_devices()``), which must belong to one provider."""
        from onnxplug.session.ep_devices import OrtEpDevice
        from onnxplug.session.policy import device_options

        if not all(isinstance(device, OrtEpDevice) for device in ep_devices):
            raise TypeError(
                "add_provider_for_devices(): incompatible function arguments: expected entries of get_ep_devices(), got "
                f"{ep_devices!r}"
            )
        names = {device.ep_name for device in ep_devices}
        if not names:
            raise InvalidArgument("Must provide one or more OrtEpDevice instances.")
        if len(names) > 1:
            raise InvalidArgument(
                f"All OrtEpDevice values in ep_devices must have the same execution provider: {sorted(names)}"
            )
        self.add_provider(names.pop(), {**device_options(ep_devices[0]), **provider_options})

    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy) -> None:
        """Let a session that is given no ``providers`` take those of the kind of device that the policy prefers, where
        there is one, and the CPU provider behind them.
        """
        self._policy = _member(OrtExecutionProviderDevicePolicy)(policy)

    def set_provider_selection_policy_delegate(self, delegate: Callable[..., Any]) -> None:
        """Let ``delegate(ep_devices, model_metadata, runtime_metadata, max_selections)`` select entries of
        ``get_ep_devices()`` in priority order. Session creation raises Fail when it raises or selects none.
        """
        if not callable(delegate):
            raise TypeError(f"expected a callable, got {delegate!r}")
        self._policy = delegate

    def has_providers(self) -> bool:
        """Whether providers, or a policy to select them, were set."""
        return bool(self._providers) or self._policy is not None

    def set_load_cancellation_flag(self, value: bool) -> None:
        """Make session creation stop with ModelLoadCanceled."""
        self._load_cancelled = as_bool(value)

    def set_ep_context_data_read_func(self, read_func: Callable[[str, Any], None], max_data_size: int) -> None:
        """Let ``read_func(name, buffer)`` supply what EPContext nodes keep outside of the model: it allocates the
        ``OrtEpContextDataBuffer``, at most ``max_data_size`` bytes, and writes into it.
        """
        if not callable(read_func):
            raise TypeError(f"expected a callable, got {read_func!r}")
        self._ep_context_reader = read_func, as_size(max_data_size)

    def clear_ep_context_data_read_func(self) -> None:
        """Undo ``set_ep_context_data_read_func``: such data is read from files beside the model."""
        self._ep_context_reader = None


class RunOptions(_Options):
    """How one run is done. The object may be shared between runs; setting ``terminate`` from another thread ends
    them.
    """

    __slots__ = ("_adapters",)

    log_severity_level = _Setting(-1, as_int, "0 verbose .. 4 fatal; -1 for the session's severity.")
    log_verbosity_level = _Setting(0, as_int, "Kept only: verbose records have one level.")
    logid = _Setting("", as_text, "Stamped on this run's log records.")
    terminate = _Setting(
        False, as_bool, "Runs with these options stop with Fail at the next step; stays set until cleared."
    )
    only_execute_path_to_fetches = _Setting(False, as_bool, "Leave out nodes that the requested outputs do not need.")

    def __init__(self) -> None:
        super().__init__()
        self._adapters: list[Any] = []

    def add_active_adapter(self, adapter: Any) -> None:
        """Feed the parameters of a ``LoraAdapter`` to the overridable inputs of their names, where the caller feeds
        none.
        """
        from onnxplug.session.adapters import LoraAdapter

        if not isinstance(adapter, LoraAdapter):
            raise TypeError(
                f"add_active_adapter(): incompatible function arguments: expected a LoraAdapter, got {adapter!r}"
            )
        self._adapters.append(adapter)

    def __getstate__(self) -> dict[str, Any]:
        if self._adapters:
            raise TypeError("cannot pickle 'RunOptions' object with active adapters")
        return super().__getstate__()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set a configuration entry; unknown keys are kept and have no effect."""
        self._add_config_entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """The value of a configuration entry; RuntimeError when it was not set."""
        return self._get_config_entry(key)


def _ortvalue(value: Any) -> OrtValue:
    from onnxplug.session.ortvalue import OrtValue

    if not isinstance(value, OrtValue):
        raise RuntimeError(f"The provided Python object must be an OrtValue, not {type(value)}")
    return value

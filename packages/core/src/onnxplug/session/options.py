"""``SessionOptions`` and ``RunOptions``: onnxruntime's names, defaults and checks.

Objects hold what was set and nothing else; a session takes its own copy (``_copy``) when it is created. What has no
meaning here is accepted, kept and said so in its documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug.contract.errors import NotImplemented as OrtNotImplemented
from onnxplug.session.enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
from onnxplug.session.settings import Options, Setting, as_bool, as_int, as_long, as_size, as_text, member

if TYPE_CHECKING:
    from onnxplug.session.device_enums import OrtExecutionProviderDevicePolicy
    from onnxplug.session.ortvalue import OrtValue


class SessionOptions(Options):
    """How a session is made."""

    __slots__ = (
        "_ep_context_reader", "_external_files", "_external_initializers", "_free_dimensions_by_denotation",
        "_free_dimensions_by_name", "_initializers", "_load_cancelled", "_policy", "_providers",
    )  # fmt: skip

    graph_optimization_level = Setting(
        GraphOptimizationLevel.ORT_ENABLE_ALL,
        member(GraphOptimizationLevel),
        "How far the model is rewritten: not at all, or by the passes of ORT_ENABLE_BASIC. Higher levels add nothing here: "
        "fusions are what providers claim.",
    )
    intra_op_num_threads = Setting(0, as_int, "Threads of one operator; 0: one for each core.")
    inter_op_num_threads = Setting(0, as_int, "Kept only: nodes of one run are executed one after the other.")
    execution_mode = Setting(
        ExecutionMode.ORT_SEQUENTIAL,
        member(ExecutionMode),
        "Kept only: nodes of one run are executed one after the other.",
    )
    execution_order = Setting(ExecutionOrder.DEFAULT, member(ExecutionOrder), "Kept only: the order is topological.")
    optimized_model_filepath = Setting("", as_text, "Where the rewritten model is saved at creation; '' for nowhere.")
    enable_profiling = Setting(False, as_bool, "Record each run; ``end_profiling`` names the file.")
    profile_file_prefix = Setting("onnxruntime_profile_", as_text, "Path and beginning of the profile's file name.")
    log_severity_level = Setting(-1, as_int, "0 verbose .. 4 fatal; -1 for the process's severity.")
    log_verbosity_level = Setting(0, as_int, "Kept only: verbose records have one level.")
    logid = Setting("", as_text, "Stamped on this session's log records.")
    enable_cpu_mem_arena = Setting(True, as_bool, "Take host memory through an arena.")
    enable_mem_pattern = Setting(True, as_bool, "Lay out intermediate values of a run in one block per input shape.")
    enable_mem_reuse = Setting(True, as_bool, "Let intermediate values share memory.")
    use_deterministic_compute = Setting(False, as_bool, "Ask kernels for reproducible results.")
    use_per_session_threads = Setting(
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
        """Fix the symbolic dimension of this name in all declared inputs. Of several sizes for a name the first counts."""
        self._free_dimensions_by_name.setdefault(as_text(dim_param), as_long(dim_value))

    def add_free_dimension_override_by_denotation(self, dim_denotation: str, dim_value: int) -> None:
        """Fix the dimensions that carry this denotation, in whatever case. Of several sizes for one the first counts."""
        self._free_dimensions_by_denotation.setdefault(as_text(dim_denotation).lower(), as_long(dim_value))

    def add_initializer(self, name: str, ort_value: OrtValue) -> None:
        """Use ``ort_value`` in place of the model's initializer ``name``. RuntimeError for a second value of one
        name.
        """
        self._add(self._initializers, as_text(name), _ortvalue(ort_value))

    @staticmethod
    def _add(held: dict[str, OrtValue], name: str, value: OrtValue) -> None:
        if name in held:
            text = f"An OrtValue for this name has already been added: {name}"
            raise RuntimeError(str(InvalidArgument(text)))
        held[name] = value

    def add_external_initializers(self, names: Sequence[str], ort_values: Sequence[OrtValue]) -> None:
        """Values for initializers whose data the model keeps outside of its file. RuntimeError for a second value of one name."""
        if not isinstance(names, list) or not isinstance(ort_values, list):
            raise TypeError("add_external_initializers(): incompatible function arguments: expected two lists")
        if len(names) != len(ort_values):
            raise RuntimeError("Expecting names and ort_values lists to have equal length")
        values = [_ortvalue(value) for value in ort_values]
        for name, value in zip(map(as_text, names), values, strict=True):
            self._add(self._external_initializers, name, value)

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
        """Append the provider of these devices (entries of ``get_ep_devices()``), which must belong to one, once for each device."""
        from onnxplug.session.ep_devices import OrtEpDevice
        from onnxplug.session.policy import as_providers

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
        for name, chosen in as_providers(ep_devices):
            self.add_provider(name, {**chosen, **provider_options})

    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy) -> None:
        """Let a session that is given no ``providers`` take those of the kind of device that the policy prefers, where
        there is one, and the CPU provider behind them.
        """
        from onnxplug.session.device_enums import OrtExecutionProviderDevicePolicy as Policy

        self._policy = member(Policy)(policy)

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


class RunOptions(Options):
    """How one run is done. The object may be shared between runs; setting ``terminate`` from another thread ends
    them.
    """

    __slots__ = ("_adapters",)

    log_severity_level = Setting(-1, as_int, "0 verbose .. 4 fatal; -1 for the session's severity.")
    log_verbosity_level = Setting(0, as_int, "Kept only: verbose records have one level.")
    logid = Setting("", as_text, "Stamped on this run's log records.")
    terminate = Setting(
        False, as_bool, "Runs with these options stop with Fail at the next step; stays set until cleared."
    )
    only_execute_path_to_fetches = Setting(False, as_bool, "Leave out nodes that the requested outputs do not need.")

    def __init__(self) -> None:
        super().__init__()
        self._adapters: list[Any] = []

    def add_active_adapter(self, adapter: Any) -> None:
        """Feed the parameters of a ``LoraAdapter`` to the overridable inputs of their names, in place of what the caller
        feeds.
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

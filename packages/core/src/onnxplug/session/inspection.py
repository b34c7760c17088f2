"""What a session tells about itself: inputs and outputs, metadata, providers, placement, memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from onnxplug.contract.errors import Fail
from onnxplug.session.model_io import ModelMetadata, NodeArg
from onnxplug.session.options import SessionOptions

if TYPE_CHECKING:
    from onnxplug.contract.types import ValueType
    from onnxplug.session.engine import Engine
    from onnxplug.session.ep_devices import OrtEpAssignedSubgraph, OrtEpDevice
    from onnxplug.session.explain import Explanation
    from onnxplug.session.extension import ExtensionSession
    from onnxplug.session.session import InferenceSession

RECORD_ASSIGNMENT = "session.record_ep_graph_assignment_info"


class Inspection:
    """The part of a session that changes nothing of how it runs; see ``InferenceSession``."""

    _source: str | bytes
    _engine: Engine
    _options: SessionOptions
    _profiled_from: int
    _fallback: bool

    def placement(self) -> dict[str, str]:
        """{node name: provider} for every node left after optimization, nested graphs and fused nodes included. Several devices of one
        provider are told apart: ``OpenCLExecutionProvider[opencl:1]``."""
        from onnxplug.session.explain import owners_of

        return owners_of(self._engine.built)

    def explain(self) -> Explanation:
        """Providers, reasons, regions, copies, and what the optimizer removed."""
        from onnxplug.session.explain import explain

        return explain(self._engine.built, self._engine.selection)

    def get_inputs(self) -> list[NodeArg]:
        """Inputs that must be fed."""
        return [arg for v, arg in self._engine.node_args if v.default is None]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that a feed may replace (IR version 4 and newer)."""
        return [arg for v, arg in self._engine.node_args if v.default is not None]

    def get_outputs(self) -> list[NodeArg]:
        """Outputs in the model's order."""
        return list(self._engine.output_args)

    def get_modelmeta(self) -> ModelMetadata:
        """The model's metadata."""
        about = self._engine.built.model.about
        return ModelMetadata(**{**about, "custom_metadata_map": dict(about["custom_metadata_map"])})

    def get_input_memory_infos(self) -> list[Any]:
        """Where each input is wanted (``OrtMemoryInfo``); feeds from elsewhere are copied there."""
        from onnxplug.session.device import memory_info

        required = [v.default is None for v in self._engine.inputs]
        homes = self._engine.built.placement.main.inputs
        return [memory_info(device) for (_, device), wanted in zip(homes, required, strict=True) if wanted]

    def get_output_memory_infos(self) -> list[Any]:
        """Where each output is computed (``OrtMemoryInfo``); ``run`` copies it to the host."""
        from onnxplug.session.device import memory_info

        return [memory_info(device) for _, device in self._engine.built.placement.main.outputs]

    def get_input_epdevices(self) -> list[OrtEpDevice | None]:
        """For each input an entry of ``get_ep_devices()`` in whose memory it is wanted, None where there is none. The entry is one of a
        provider of this session, the first where several have that memory."""
        from onnxplug.session.ep_devices import get_ep_devices

        rank = {name: place for place, name in enumerate(self.get_providers())}
        mine = sorted((d for d in get_ep_devices() if d.ep_name in rank), key=lambda d: rank[d.ep_name], reverse=True)
        known = {(d.device_kind, d.device.device_id): d for d in mine}
        return [known.get((info._device.kind, info.device_id)) for info in self.get_input_memory_infos()]

    def get_providers(self) -> list[str]:
        """Providers in use, in priority order, each once."""
        return self._engine.selection.names

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Effective options of each provider, defaults included. Those of a further device of a provider are under the name that
        ``placement()`` has for it."""
        found: dict[str, dict[str, str]] = {}
        for i in self._engine.selection.instances:
            found[i.name if i.spec.name in found else i.spec.name] = dict(i.option_strings)
        return found

    def get_session_options(self) -> SessionOptions:
        """A copy of the options in force."""
        return self._options._copy()

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Nodes by provider; Fail unless config entry ``session.record_ep_graph_assignment_info`` is 1."""
        if self._options._config_entries.get(RECORD_ASSIGNMENT) != "1":
            raise Fail(
                f"Session configuration entry '{RECORD_ASSIGNMENT}' must be set to \"1\" to retrieve EP graph assignment "
                "information."
            )
        from onnxplug.session.ep_devices import OrtEpAssignedNode, OrtEpAssignedSubgraph

        groups: dict[tuple[str, str | None], list[OrtEpAssignedNode]] = {}
        for node in self.explain().nodes:
            key = (node["provider"], node["region"])
            groups.setdefault(key, []).append(OrtEpAssignedNode(node["name"], node["op_type"], node["domain"]))
        return [OrtEpAssignedSubgraph(provider, nodes) for (provider, _), nodes in groups.items()]

    def get_tuning_results(self) -> list[dict[str, Any]]:
        """Always empty: providers keep what they measure to themselves."""
        return []

    def set_tuning_results(self, results: list[dict[str, Any]], *, error_on_invalid: bool = False) -> None:
        """Accepted for compatibility. With ``error_on_invalid`` results that no provider here can use are RuntimeError."""
        if not isinstance(results, list):
            raise TypeError(f"set_tuning_results(): incompatible function arguments: expected a list, got {results!r}")
        unknown = [name for name in (each["ep"] for each in results) if name not in self.get_providers()]
        if unknown and error_on_invalid:
            raise RuntimeError(f"Cannot find execution provider {unknown[0]}")
        if results and error_on_invalid:
            raise RuntimeError(f"No provider of this session takes tuning results: {self.get_providers()}")

    def get_profiling_start_time_ns(self) -> int:
        """``time.perf_counter_ns()`` when profiling began, also after it has ended; 0 when it was never on."""
        return self._profiled_from

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Change options of the session's providers while it lives. RuntimeError when there are none, or a provider
        refuses one."""
        if not isinstance(options, Mapping):
            raise TypeError(
                f"set_ep_dynamic_options(): incompatible function arguments: expected a dict, got {options!r}"
            )
        if not options:
            raise RuntimeError("No options were provided")
        for instance in self._engine.selection.instances:
            if instance.supports("set_dynamic_options"):
                instance.call("set_dynamic_options", options={str(k): str(v) for k, v in options.items()})

    def enable_fallback(self) -> None:
        """Let a run that a provider failed (EPFail) be answered by the others."""
        self._fallback = True

    def disable_fallback(self) -> None:
        """Raise EPFail instead."""
        self._fallback = False

    # names under which programs reach into onnxruntime's Python layer

    @property
    def _model_path(self) -> str | None:
        return None if isinstance(self._source, bytes) else self._source

    @property
    def _model_bytes(self) -> bytes | None:
        return self._source if isinstance(self._source, bytes) else None

    @property
    def _sess(self) -> ExtensionSession:
        from onnxplug.session.extension import ExtensionSession

        return ExtensionSession._over(cast("InferenceSession", self))

    @property
    def _sess_options(self) -> SessionOptions:
        return self._options

    @_sess_options.setter
    def _sess_options(self, options: SessionOptions) -> None:
        from onnxplug.session.arguments import session_options

        self._options = session_options(options)  # of the sessions that _reset_session makes

    @property
    def _enable_fallback(self) -> bool:
        return self._fallback

    @property
    def _fallback_providers(self) -> list[str]:
        from onnxplug.session.fallback import fallback_for

        return fallback_for(self.get_providers())

    def _validate_input(self, feed_input_names: Iterable[str]) -> None:
        self._engine.feeds.require(dict.fromkeys(feed_input_names))

    _profiling_start_time_ns = property(get_profiling_start_time_ns)
    _inputs_meta = property(get_inputs)
    _outputs_meta = property(get_outputs)
    _overridable_initializers = property(get_overridable_initializers)
    _model_meta = property(get_modelmeta)
    _providers = property(get_providers)
    _provider_options = property(get_provider_options)

    def _feedable(self) -> Mapping[str, ValueType]:
        return self._engine.feedable

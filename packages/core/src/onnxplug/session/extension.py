"""onnxruntime's extension class of sessions, which its Python class wraps: made in two steps, with arguments by position.

Programs meet it as ``capi.onnxruntime_pybind11_state.InferenceSession`` and as ``session._sess``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Self

from onnxplug.contract.errors import Fail
from onnxplug.session.device import OrtDevice, OrtMemoryInfo
from onnxplug.session.ep_devices import OrtEpAssignedSubgraph, OrtEpDevice
from onnxplug.session.extension_binding import SessionIOBinding
from onnxplug.session.iobinding import IOBinding
from onnxplug.session.model_io import ModelMetadata, NodeArg
from onnxplug.session.options import RunOptions, SessionOptions
from onnxplug.session.ortvalue import OrtValue
from onnxplug.session.session import InferenceSession
from onnxplug.session.settings import as_int
from onnxplug.session.vector import OrtValueVector


class ExtensionSession:
    """A session by the names of the extension class. ``is_path`` tells a path from a serialized model; providers come with
    ``initialize_session``, and until then everything raises Fail.
    """

    def __init__(
        self, sess_options: SessionOptions, model: str | bytes, is_path: bool, read_config_from_model: bool
    ) -> None:
        if not isinstance(model, str if is_path else bytes):
            kind = "a path" if is_path else "bytes"
            raise TypeError(f"InferenceSession(): incompatible constructor arguments: expected {kind}, got {model!r}")
        self._arguments = model, sess_options
        self._made: InferenceSession | None = None

    @classmethod
    def _over(cls, session: InferenceSession) -> Self:
        """A session that exists, by these names."""
        view = cls.__new__(cls)
        view._made = session
        return view

    def initialize_session(
        self,
        providers: Sequence[str],
        provider_options: Sequence[Mapping[str, str]],
        disabled_optimizers: Collection[str],
    ) -> None:
        """Make the session on these providers; what fails is raised."""
        self._made = InferenceSession(
            *self._arguments,
            list(providers),
            list(provider_options) or None,
            disabled_optimizers=sorted(disabled_optimizers),
            enable_fallback=0,
        )

    @property
    def _whole(self) -> InferenceSession:
        if self._made is None:
            raise Fail("Session not initialized.")
        return self._made

    # ---- running

    def run(
        self, output_names: Sequence[str], input_feed: Mapping[str, Any], run_options: RunOptions | None
    ) -> list[Any]:
        """See ``InferenceSession.run``."""
        return self._whole.run(output_names, input_feed, run_options)

    def run_async(
        self,
        output_names: Sequence[str],
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], object],
        user_data: Any,
        run_options: RunOptions | None,
    ) -> None:
        """See ``InferenceSession.run_async``."""
        self._whole.run_async(output_names, input_feed, callback, user_data, run_options)

    def run_with_ort_values(
        self, input_feed: Mapping[str, OrtValue], output_names: Sequence[str], run_options: RunOptions | None
    ) -> OrtValueVector:
        """See ``InferenceSession.run_with_ort_values``; the feed comes first here."""
        results = OrtValueVector()
        results._replace(self._whole.run_with_ort_values(output_names, input_feed, run_options))
        return results

    def run_with_iobinding(
        self, io_binding: SessionIOBinding | IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """See ``InferenceSession.run_with_iobinding``."""
        binding = io_binding._whole if isinstance(io_binding, SessionIOBinding) else io_binding
        self._whole.run_with_iobinding(binding, run_options)

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions,
        feed_names: Sequence[str],
        feeds: OrtValueVector,
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[OrtDevice],
    ) -> None:
        """See ``InferenceSession.run_with_ortvaluevector``."""
        self._whole.run_with_ortvaluevector(run_options, feed_names, feeds, fetch_names, fetches, fetch_devices)

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device: OrtDevice
    ) -> OrtValue:
        """See ``InferenceSession.create_ortvalue_from_shape_and_type``."""
        return self._whole.create_ortvalue_from_shape_and_type(
            shape, element_type, device.kind, device.device_id(), device.device_vendor_id()
        )

    def create_ortvalue_from_shape_and_onnx_type(
        self, shape: Sequence[int], onnx_element_type: int, device: OrtDevice
    ) -> OrtValue:
        """As ``create_ortvalue_from_shape_and_type`` with a TensorProto.DataType number."""
        return self.create_ortvalue_from_shape_and_type(shape, as_int(onnx_element_type), device)

    def release_captured_graph(self, graph_annotation_id: int) -> None:
        """See ``InferenceSession.release_captured_graph``."""
        self._whole.release_captured_graph(graph_annotation_id)

    def end_profiling(self) -> str:
        """See ``InferenceSession.end_profiling``."""
        return self._whole.end_profiling()

    # ---- what it tells of itself

    @property
    def inputs_meta(self) -> list[NodeArg]:
        """Inputs that must be fed."""
        return self._whole.get_inputs()

    @property
    def outputs_meta(self) -> list[NodeArg]:
        """Outputs in the model's order."""
        return self._whole.get_outputs()

    @property
    def overridable_initializers(self) -> list[NodeArg]:
        """Initializers that a feed may replace."""
        return self._whole.get_overridable_initializers()

    @property
    def model_meta(self) -> ModelMetadata:
        """The model's metadata."""
        return self._whole.get_modelmeta()

    @property
    def input_meminfos(self) -> list[OrtMemoryInfo]:
        """Where each input is wanted."""
        return self._whole.get_input_memory_infos()

    @property
    def output_meminfos(self) -> list[OrtMemoryInfo]:
        """Where each output is computed."""
        return self._whole.get_output_memory_infos()

    @property
    def input_epdevices(self) -> list[OrtEpDevice | None]:
        """For each input an entry of ``get_ep_devices()`` in whose memory it is wanted."""
        return self._whole.get_input_epdevices()

    @property
    def session_options(self) -> SessionOptions:
        """A copy of the options in force."""
        return self._whole.get_session_options()

    @property
    def get_profiling_start_time_ns(self) -> int:
        """When profiling began; 0 when it is off."""
        return self._whole.get_profiling_start_time_ns()

    def get_providers(self) -> list[str]:
        """Providers in use, in priority order."""
        return self._whole.get_providers()

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Effective options of each provider."""
        return self._whole.get_provider_options()

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """See ``InferenceSession.get_provider_graph_assignment_info``."""
        return self._whole.get_provider_graph_assignment_info()

    def get_tuning_results(self) -> list[dict[str, Any]]:
        """Always empty."""
        return self._whole.get_tuning_results()

    def set_tuning_results(self, results: list[dict[str, Any]], error_on_invalid: bool) -> None:
        """See ``InferenceSession.set_tuning_results``."""
        self._whole.set_tuning_results(results, error_on_invalid=error_on_invalid)

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """See ``InferenceSession.set_ep_dynamic_options``."""
        self._whole.set_ep_dynamic_options(options)

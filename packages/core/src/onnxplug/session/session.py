"""``InferenceSession``: load -> optimize -> place -> plan -> run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from onnxplug.contract.errors import EPFail, Fail, InvalidArgument, NoModel
from onnxplug.load.model import metadata
from onnxplug.plugins import observers_for
from onnxplug.session import environment
from onnxplug.session.engine import Engine, declared
from onnxplug.session.ep_devices import OrtEpAssignedNode, OrtEpAssignedSubgraph
from onnxplug.session.explain import Explanation, explain
from onnxplug.session.feeds import resolve_outputs
from onnxplug.session.hooks import close
from onnxplug.session.iobinding import IOBinding
from onnxplug.session.logging import session_logger
from onnxplug.session.model_io import ModelMetadata, NodeArg
from onnxplug.session.options import RunOptions, SessionOptions
from onnxplug.session.ortvalue import OrtValue
from onnxplug.session.pipeline import build
from onnxplug.session.profile import Profile
from onnxplug.session.selection import CPU, select, thread_count


class InferenceSession:
    """A model made ready to run on a list of providers.

    ``path_or_bytes``: a path or serialized model. ``providers``: names or (name, options) pairs in priority order; the
    CPU provider is appended when it is not named. Keyword ``enable_fallback=0`` raises what would otherwise end on the
    CPU provider. Raises onnxruntime's exception classes (``onnxplug.contract.errors``); nothing is left half made.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        self._source = _source(path_or_bytes)
        self._options = _session_options(sess_options)
        if "disabled_optimizers" in kwargs:
            names = ";".join(kwargs["disabled_optimizers"] or ())
            self._options._config_entries["optimization.disable_specified_optimizers"] = names
        self._log = session_logger(self._options.log_severity_level, self._options.logid)
        self._profile = Profile(self._options.profile_file_prefix) if self._options.enable_profiling else None
        self._fallback = bool(kwargs.get("enable_fallback", 1))
        self._remaking = threading.Lock()
        if not providers and self._options.has_providers():
            providers = self._options._providers or environment.get_available_providers()
        try:
            self._create(providers, provider_options)
        except (ValueError, RuntimeError) as error:
            if not self._fallback or self._options._config_entries.get("session.strict_providers") == "1":
                raise
            _announce_fallback(error, providers)
            self._create([CPU], None)

    def _create(self, providers: Any, provider_options: Any) -> None:
        options = self._options
        start = time.perf_counter_ns()
        threads = thread_count(options.intra_op_num_threads)
        selection = select(providers, provider_options, options._config_entries, threads, environment._seed, self._log)
        try:
            built = build(self._source, options, selection, self._log)
        except BaseException:
            close(selection.instances, self._log)
            raise
        if self._profile is not None:
            self._profile.event("Session", "session_initialization", start, time.perf_counter_ns())
        self._engine = Engine(built, selection, self._log, self._profile)
        for tell in observers_for("onnxplug_session_created"):
            tell(session=self)
        for tell in observers_for("onnxplug_placed"):
            tell(session=self, placement=self.placement())

    # ---- running

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Compute the outputs named (None: all) for a feed dictionary; fresh NumPy arrays, lists for sequences, dicts
        for maps.

        Raises ValueError for missing feeds, InvalidArgument for feeds or names that do not fit, Fail for a kernel that
        failed.
        """
        engine = self._engine
        inputs = engine.feeds(input_feed)
        names = resolve_outputs(output_names, engine.output_names) if output_names else engine.output_names
        return self._run(engine, inputs, names, run_options, host=True)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As ``run`` with OrtValues in and out; outputs are in host memory."""
        engine = self._engine
        inputs = engine.feeds({name: value._get_c_value() for name, value in input_dict_ort_values.items()})
        names = resolve_outputs(output_names, engine.output_names)
        results = self._run(engine, inputs, names, run_options, host=True)
        return [engine.value(name, result) for name, result in zip(names, results, strict=True)]

    def io_binding(self) -> IOBinding:
        """A new binding of this session."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run with bound inputs and outputs; results go where they were bound. RuntimeError ``Error in execution: ...``
        on failure."""
        engine = self._engine
        if getattr(iobinding, "_session", None) is not self or iobinding._made_for is not engine:
            raise ValueError("IOBinding must be used with the session that created it.")
        try:
            outputs = list(iobinding._outputs.values())
            if not outputs:
                raise InvalidArgument("At least one output should be requested.")
            unknown = [o.name for o in outputs if o.name not in engine.output_names]
            if unknown:
                raise InvalidArgument(f"Invalid output name: {unknown[0]}")
            inputs, names = engine.feeds(dict(iobinding._inputs)), [o.name for o in outputs]
            results = self._run(engine, inputs, names, run_options, host=False)
            iobinding._store([self._engine.deliver(o, r) for o, r in zip(outputs, results, strict=True)])
        except Exception as error:
            raise RuntimeError(f"Error in execution: {getattr(error, 'text', error)}") from error

    def _run(
        self, engine: Engine, inputs: list[Any], names: Sequence[str], options: RunOptions | None, host: bool
    ) -> list[Any]:
        if options is not None and not isinstance(options, RunOptions):
            raise TypeError(
                f"run(): incompatible function arguments: run_options must be RunOptions, got {type(options).__name__}"
            )
        for tell in observers_for("onnxplug_run_start"):
            tell(session=self, options=options)
        try:
            try:
                results = engine.run(inputs, names, options, host)
            except EPFail as error:
                results = self._without(engine, error).run(inputs, list(names), options, host)
        except BaseException as error:
            for tell in observers_for("onnxplug_run_end"):
                tell(session=self, options=options, error=error)
            raise
        for tell in observers_for("onnxplug_run_end"):
            tell(session=self, options=options, error=None)
        return results

    def _without(self, engine: Engine, error: EPFail) -> Engine:
        """The engine that goes on without the provider that failed; raises the failure where there is no other."""
        failed = getattr(error, "provider", None)
        rest = [i for i in engine.selection.instances if i.name != failed]
        if not self._fallback or failed is None or not rest:
            raise error
        with self._remaking:
            if self._engine is engine:  # else another thread was faster
                self._log.warning("%s failed at run time, the session goes on without it: %s", failed, error.text)
                self._create([(i.name, i.option_strings) for i in rest], None)
            return self._engine

    # ---- what it is made of

    def placement(self) -> dict[str, str]:
        """{node name: provider} for every node left after optimization, nested graphs and fused nodes included."""
        return dict(self._engine.built.placement.owners)

    def explain(self) -> Explanation:
        """Providers, reasons, regions, copies, and what the optimizer removed."""
        return explain(self._engine.built, self._engine.selection)

    def get_inputs(self) -> list[NodeArg]:
        """Inputs that must be fed."""
        return [NodeArg(v.name, declared(v)) for v in self._engine.inputs if v.default is None]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that a feed may replace (IR version 4 and newer)."""
        return [NodeArg(v.name, declared(v)) for v in self._engine.inputs if v.default is not None]

    def get_outputs(self) -> list[NodeArg]:
        """Outputs in the model's order."""
        return [NodeArg(v.name, declared(v)) for v in self._engine.built.graph.outputs]

    def get_modelmeta(self) -> ModelMetadata:
        """The model's metadata."""
        return ModelMetadata(**metadata(self._engine.built.model.proto))

    def get_providers(self) -> list[str]:
        """Providers in use, in priority order."""
        return self._engine.selection.names

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Effective options of each provider, defaults included."""
        return {i.name: dict(i.option_strings) for i in self._engine.selection.instances}

    def get_session_options(self) -> SessionOptions:
        """A copy of the options in force."""
        return self._options._copy()

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Nodes by provider; Fail unless config entry ``session.record_ep_graph_assignment_info`` is 1."""
        if self._options._config_entries.get("session.record_ep_graph_assignment_info") != "1":
            raise Fail(
                "Session configuration entry 'session.record_ep_graph_assignment_info' must be set to \"1\" to retrieve EP "
                "graph assignment information."
            )
        groups: dict[tuple[str, str | None], list[OrtEpAssignedNode]] = {}
        for node in self.explain().nodes:
            key = (node["provider"], node["region"])
            groups.setdefault(key, []).append(OrtEpAssignedNode(node["name"], node["op_type"], node["domain"]))
        return [OrtEpAssignedSubgraph(provider, nodes) for (provider, _), nodes in groups.items()]

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[Mapping[Any, Any]] | None = None
    ) -> None:
        """Make the session anew on other providers; what fails is raised, and the session stays as it was."""
        self._create(providers, provider_options)

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Change options of the session's providers while it lives. RuntimeError when there are none, or a provider refuses one."""
        if not options:
            raise RuntimeError("No dynamic options were given")
        for instance in self._engine.selection.instances:
            if instance.supports("set_dynamic_options"):
                instance.call("set_dynamic_options", options={str(k): str(v) for k, v in options.items()})

    def enable_fallback(self) -> None:
        """Let a run that a provider failed (EPFail) be answered by the others."""
        self._fallback = True

    def disable_fallback(self) -> None:
        """Raise EPFail instead."""
        self._fallback = False

    def end_profiling(self) -> str:
        """Write the profile; its file name, or '' when profiling is off or already ended."""
        if self._profile is None:
            return ""
        profile, self._profile = self._profile, None
        self._engine.profile = self._engine.built.runtime.profile = None
        return profile.save()

    def get_profiling_start_time_ns(self) -> int:
        """Clock at which profiling began; 0 when it is off."""
        return self._profile.start_ns if self._profile is not None else 0

    def _io_names(self) -> tuple[list[str], list[str]]:
        return [v.name for v in self._engine.inputs], self._engine.output_names

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give every buffer back and close the providers; happens by itself when the session and the device values it
        gave out are gone. A closed session raises NoModel; a provider that cannot be closed raises Fail."""
        engine, self._engine = self._engine, _Closed()  # type: ignore[assignment]
        if isinstance(engine, Engine):
            engine.lifetime.end()


class _Closed:
    """The engine of a closed session."""

    def __getattr__(self, name: str) -> NoReturn:
        raise NoModel("The session is closed.")


def _source(path_or_bytes: Any) -> str | bytes:
    if isinstance(path_or_bytes, bytes):
        return path_or_bytes
    if isinstance(path_or_bytes, str | os.PathLike):
        path = os.fspath(path_or_bytes)
        if not path:
            raise TypeError("Unable to load a model from an empty path")
        return os.fsdecode(path)
    serialize = getattr(path_or_bytes, "SerializeToString", None)
    if serialize is not None and type(path_or_bytes).__name__ == "ModelProto":
        return bytes(serialize())
    raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")


def _session_options(given: Any) -> SessionOptions:
    if not given:
        return SessionOptions()
    if not isinstance(given, SessionOptions):
        raise TypeError(
            f"InferenceSession(): incompatible constructor arguments: sess_options must be SessionOptions, got {type(given).__name__}"
        )
    return given._copy()


def _announce_fallback(error: Exception, providers: Any) -> None:
    print("*************** EP Error ***************")
    print(f"EP Error {error} when using {providers}")
    print(f"Falling back to {[CPU]} and retrying.")
    print("****************************************")

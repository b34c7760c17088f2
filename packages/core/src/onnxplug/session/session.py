"""``InferenceSession``: load -> optimize -> place -> plan -> run."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from onnxplug.contract.errors import EPFail, Fail, InvalidArgument, InvalidGraph, NoModel
from onnxplug.contract.memory import HOST
from onnxplug.contract.types import element_of
from onnxplug.graph.ir import Value
from onnxplug.load.model import metadata
from onnxplug.place import PlacedGraph
from onnxplug.plugins import observers_for
from onnxplug.run import DeviceArray, GraphRunner
from onnxplug.session import environment
from onnxplug.session.ep_devices import OrtEpAssignedNode, OrtEpAssignedSubgraph
from onnxplug.session.explain import Explanation, explain
from onnxplug.session.feeds import Feeds, InputSpec, resolve_outputs
from onnxplug.session.hooks import close, hooks
from onnxplug.session.iobinding import IOBinding, OutputBinding
from onnxplug.session.lifetime import Lifetime
from onnxplug.session.logging import session_logger
from onnxplug.session.model_io import ModelMetadata, NodeArg
from onnxplug.session.options import RunOptions, SessionOptions
from onnxplug.session.ortvalue import OrtValue
from onnxplug.session.pipeline import Built, build
from onnxplug.session.profile import Profile
from onnxplug.session.selection import CPU, Selection, select, thread_count


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
            built.runtime.profile = self._profile
        self._adopt(built, selection)
        for tell in observers_for("onnxplug_session_created"):
            tell(session=self)
        for tell in observers_for("onnxplug_placed"):
            tell(session=self, placement=self.placement())

    def _adopt(self, built: Built, selection: Selection) -> None:
        """Everything the run path reads, computed once."""
        main = built.placement.main
        self._built, self._selection = built, selection
        self._lifetime = Lifetime(built, selection, self._log)
        self._inputs = [v for v, _ in main.inputs]
        self._feeds = Feeds([InputSpec(v.name, _declared(v), v.default is None) for v in self._inputs])
        self._defaults = [v.default for v in self._inputs]
        self._homes = [d for _, d in main.inputs]
        self._plain = all(d == HOST for d in self._homes) and all(v is None for v in self._defaults)
        self._output_names = [v.name for v in built.graph.outputs]
        self._runners: dict[tuple[str, ...], GraphRunner] = {}
        self._starts = hooks(selection.instances, "on_run_start")
        self._ends = hooks(selection.instances, "on_run_end")
        self._syncs = hooks(selection.instances, "sync")
        self._serial = None if all(p.concurrent for p in built.placement.providers) else threading.Lock()

    # ---- running

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Compute the outputs named (None: all) for a feed dictionary; fresh NumPy arrays, lists for sequences, dicts
        for maps.

        Raises ValueError for missing feeds, InvalidArgument for feeds or names that do not fit, Fail for a kernel that
        failed.
        """
        inputs = self._feeds(input_feed)
        names = resolve_outputs(output_names, self._output_names) if output_names else self._output_names
        results = self._run(inputs, names, run_options)
        return [r.to_host() if r.__class__ is DeviceArray else r for r in results]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As ``run`` with OrtValues in and out; outputs are in host memory."""
        inputs = self._feeds({name: value._get_c_value() for name, value in input_dict_ort_values.items()})
        results = self._run(inputs, resolve_outputs(output_names, self._output_names), run_options)
        return [
            self._value(n, r.to_host() if r.__class__ is DeviceArray else r)
            for n, r in zip(output_names or self._output_names, results, strict=True)
        ]

    def io_binding(self) -> IOBinding:
        """A new binding of this session."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run with bound inputs and outputs; results go where they were bound. RuntimeError ``Error in execution: ...``
        on failure."""
        if getattr(iobinding, "_session", None) is not self or iobinding._made_for is not self._built:
            raise ValueError("IOBinding must be used with the session that created it.")
        try:
            outputs = list(iobinding._outputs.values())
            if not outputs:
                raise InvalidArgument("At least one output should be requested.")
            unknown = [o.name for o in outputs if o.name not in self._output_names]
            if unknown:
                raise InvalidArgument(f"Invalid output name: {unknown[0]}")
            names = [o.name for o in outputs]
            results = self._run(self._feeds(dict(iobinding._inputs)), names, run_options)
            iobinding._store([self._deliver(o, r) for o, r in zip(outputs, results, strict=True)])
        except Exception as error:
            raise RuntimeError(f"Error in execution: {getattr(error, 'text', error)}") from error

    def _run(self, inputs: list[Any], names: Sequence[str], options: RunOptions | None) -> list[Any]:
        if options is not None and not isinstance(options, RunOptions):
            raise TypeError(
                f"run(): incompatible function arguments: run_options must be RunOptions, got {type(options).__name__}"
            )
        try:
            return self._run_once(inputs, names, options)
        except EPFail as error:
            failed = getattr(error, "provider", None)
            rest = [i for i in self._selection.instances if i.name != failed]
            if not self._fallback or failed is None or not rest:
                raise
            self._log.warning("%s failed at run time, the session goes on without it: %s", failed, error.text)
            self._create([(i.name, i.option_strings) for i in rest], None)
            return self._run_once(inputs, names, options)

    def _run_once(self, inputs: list[Any], names: Sequence[str], options: RunOptions | None) -> list[Any]:
        lifetime = self._lifetime  # a run that makes the session anew must not take the memory away from this one
        for tell in observers_for("onnxplug_run_start"):
            tell(session=self, options=options)
        try:
            if not (self._starts or self._ends or self._serial or self._profile):
                results = self._execute(inputs, names, options)
            else:
                results = self._guarded(inputs, names, options)
        except BaseException as error:
            for tell in observers_for("onnxplug_run_end"):
                tell(session=self, options=options, error=error)
            raise
        for tell in observers_for("onnxplug_run_end"):
            tell(session=self, options=options, error=None)
        del lifetime
        return results

    def _guarded(self, inputs: list[Any], names: Sequence[str], options: RunOptions | None) -> list[Any]:
        """A run with everything around it: one at a time where a provider asks for that, providers' hooks, the
        profile."""
        start = time.perf_counter_ns()
        with self._serial or contextlib.nullcontext():
            try:
                for begin in self._starts:
                    begin(options)
                results = self._execute(inputs, names, options)
            except BaseException as error:
                self._end(options, error)
                raise
            finally:
                if self._profile is not None:
                    self._profile.event("Session", "model_run", start, time.perf_counter_ns())
            self._end(options, None)
        return results

    def _end(self, options: RunOptions | None, error: BaseException | None) -> None:
        """Tell every provider that the run ended; the first that fails is raised, unless the run failed already."""
        failures = []
        for end in self._ends:
            try:
                end(options, error)
            except Exception as failure:
                self._log.error("%s", failure)
                failures.append(failure)
        if failures and error is None:
            raise failures[0]

    def _execute(self, inputs: list[Any], names: Sequence[str], options: RunOptions | None) -> list[Any]:
        partial = options is not None and options.only_execute_path_to_fetches and list(names) != self._output_names
        runner = self._partial_runner(tuple(names)) if partial else self._built.runner
        held, natives = ((), inputs) if self._plain and DeviceArray not in map(type, inputs) else self._bring(inputs)
        with np.errstate(all="ignore"):
            results = runner.run(natives, options)
        for sync in self._syncs:
            sync()
        del held
        if partial or names is self._output_names:
            return results
        by_name = dict(zip(self._output_names, results, strict=True))
        return [by_name[name] for name in names]

    def _bring(self, inputs: list[Any]) -> tuple[list[DeviceArray], list[Any]]:
        """Inputs in the memory spaces the plan reads them from, defaults filled in; the first item keeps copies
        alive."""
        memories = self._built.runtime.memories
        held: list[DeviceArray] = []
        natives: list[Any] = []
        for value, default, home in zip(inputs, self._defaults, self._homes, strict=True):
            value = default if value is None else value
            if isinstance(value, DeviceArray):
                if value.device == home:
                    natives.append(value.native)
                    continue
                value = value.to_host()
            if home == HOST or value is None:
                natives.append(value)
            else:
                held.append(memories[home].upload(value))
                natives.append(held[-1].native)
        return held, natives

    def _partial_runner(self, names: tuple[str, ...]) -> GraphRunner:
        """A runner of only what the named outputs need."""
        found = self._runners.get(names)
        if found is None:
            main = self._built.placement.main
            outputs = {v.name: (v, d) for v, d in main.outputs}
            wanted = [outputs[name] for name in names]
            needed, units = set(wanted), []
            for unit in reversed(main.units):
                if any(located in needed for located in unit.outs if located is not None):
                    units.append(unit)
                    needed.update(located for located in unit.ins if located is not None)
            placed = PlacedGraph(main.graph, tuple(reversed(units)), main.inputs, main.captures, tuple(wanted))
            found = self._runners[names] = GraphRunner(placed, self._built.runtime)
        return found

    def _deliver(self, binding: OutputBinding, result: Any) -> OrtValue:
        """One result of a bound run, in the memory that was given or on the device that was asked for."""
        if binding.value is not None:
            _fill(binding.value, result, binding.name)
            return binding.value
        memory = self._built.runtime.memories.find(binding.device.kind, binding.device.device_id())
        if memory is not None and memory.device != HOST and isinstance(result, np.ndarray):
            result = memory.upload(result)
        elif isinstance(result, DeviceArray) and (memory is None or memory.device != result.device):
            result = result.to_host()
        return self._value(binding.name, result)

    def _value(self, name: str, payload: Any) -> OrtValue:
        declared = next(v for v in self._built.graph.outputs if v.name == name)
        return OrtValue._wrap(payload, declared.type, self._lifetime if isinstance(payload, DeviceArray) else None)

    # ---- what it is made of

    def placement(self) -> dict[str, str]:
        """{node name: provider} for every node left after optimization, nested graphs and fused nodes included."""
        return dict(self._built.placement.owners)

    def explain(self) -> Explanation:
        """Providers, reasons, regions, copies, and what the optimizer removed."""
        return explain(self._built, self._selection)

    def get_inputs(self) -> list[NodeArg]:
        """Inputs that must be fed."""
        return [NodeArg(v.name, _declared(v)) for v in self._inputs if v.default is None]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that a feed may replace (IR version 4 and newer)."""
        return [NodeArg(v.name, _declared(v)) for v in self._inputs if v.default is not None]

    def get_outputs(self) -> list[NodeArg]:
        """Outputs in the model's order."""
        return [NodeArg(v.name, _declared(v)) for v in self._built.graph.outputs]

    def get_modelmeta(self) -> ModelMetadata:
        """The model's metadata."""
        return ModelMetadata(**metadata(self._built.model.proto))

    def get_providers(self) -> list[str]:
        """Providers in use, in priority order."""
        return self._selection.names

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Effective options of each provider, defaults included."""
        return {i.name: dict(i.option_strings) for i in self._selection.instances}

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
        for instance in self._selection.instances:
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
        path = self._profile.save()
        self._profile = self._built.runtime.profile = None
        return path

    def get_profiling_start_time_ns(self) -> int:
        """Clock at which profiling began; 0 when it is off."""
        return self._profile.start_ns if self._profile is not None else 0

    def _io_names(self) -> tuple[list[str], list[str]]:
        return [v.name for v in self._inputs], self._output_names

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give every buffer back and close the providers; happens by itself when the session and the device values it
        gave out are gone. A closed session raises NoModel; a provider that cannot be closed raises Fail."""
        self._runners.clear()
        self._built = self._selection = _Closed()  # type: ignore[assignment]
        self._lifetime.end()


class _Closed:
    """What is left of a closed session."""

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


def _declared(value: Value) -> Any:
    if value.type is None:
        raise InvalidGraph(
            f"This is an invalid model. The type of '{value.name}' is neither declared nor to be inferred."
        )
    return value.type


def _announce_fallback(error: Exception, providers: Any) -> None:
    print("*************** EP Error ***************")
    print(f"EP Error {error} when using {providers}")
    print(f"Falling back to {[CPU]} and retrying.")
    print("****************************************")


def _fill(value: OrtValue, result: Any, name: str) -> None:
    shape, actual = tuple(result.shape), f"tensor({element_of(np.dtype(result.dtype))})"
    if value.data_type() != actual:
        raise InvalidArgument(
            f"Unexpected output data type. Actual: ({value.data_type()}) , expected: ({actual}) (output '{name}')"
        )
    if tuple(value.shape()) != shape:
        raise InvalidArgument(
            f"The output OrtValue provided for output '{name}' has shape {{{','.join(map(str, value.shape()))}}} but the "
            f"computed output shape for this run is {{{','.join(map(str, shape))}}}."
        )
    value.update_inplace(result.to_host() if isinstance(result, DeviceArray) else result)

"""The engine of a session: the built model with everything that a run reads, computed once. A session that is made anew gets another
engine, so that runs under way finish on theirs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.contract.errors import RuntimeException
from onnxplug.contract.memory import HOST
from onnxplug.place import PlacedGraph
from onnxplug.run import DeviceArray, GraphRunner, Memories, Places, places_for
from onnxplug.session.arguments import recording_id
from onnxplug.session.feeds import Feeds, InputSpec, resolve_outputs
from onnxplug.session.handed import handed, may_differ, viewed_as
from onnxplug.session.hooks import hook, hooks
from onnxplug.session.lifetime import Lifetime
from onnxplug.session.model_io import NodeArg, declared
from onnxplug.session.options import RunOptions, SessionOptions
from onnxplug.session.pipeline import Built
from onnxplug.session.promised import watched
from onnxplug.session.selection import Selection
from onnxplug.session.sparse import SparseTensor

if TYPE_CHECKING:
    from onnxplug.contract.arena import Arena
    from onnxplug.contract.logs import Logger
    from onnxplug.contract.types import ValueType
    from onnxplug.graph.ir import Graph
    from onnxplug.graph.value import Value
    from onnxplug.run.strides import Repeat
    from onnxplug.session.capture import Capture
    from onnxplug.session.profile import Profile

_NO_SYNC = "disable_synchronize_execution_providers"


class Engine:
    """Runs the built model. Nothing of it changes but ``profile``, which is dropped when profiling ends."""

    def __init__(
        self, built: Built, selection: Selection, log: Logger, profile: Profile | None, options: SessionOptions
    ) -> None:
        main = built.placement.main
        self.built, self.selection, self.profile, self._log = built, selection, profile, log
        built.runtime.profile = profile
        self.inputs = [v for v, _ in main.inputs]
        self.lifetime = Lifetime(built, selection, log)
        specs = [InputSpec(v.name, declared(v), v.default is None, bool(v.consumers)) for v in self.inputs]
        self.feeds = Feeds(specs, self.lifetime)
        lent = (*options._initializers.values(), *options._external_initializers.values())
        self._lent = [value._payload for value in lent]
        self.output_names = [v.name for v in built.graph.outputs]
        self._positions = {name: at for at, name in enumerate(self.output_names)}
        self._output_types = [v.type for v in built.graph.outputs]
        self._sparse = _sparse_outputs(built.graph)
        self._wide = {
            v.name: viewed_as(v.type) for v in built.graph.outputs if may_differ(v.type) or v.name in self._sparse
        }
        self._all_wide = self._wide_among(self.output_names)
        self._defaults = [v.default for v in self.inputs]
        self._homes = [d for _, d in main.inputs]
        self._plain = all(d == HOST for d in self._homes) and all(v is None for v in self._defaults)
        self._runners: dict[tuple[str, ...], GraphRunner] = {}
        self._call = watched(built.runner.run, built.graph.outputs, log)
        self._starts = hooks(selection.instances, "on_run_start")
        self._ends = hooks(selection.instances, "on_run_end")
        self._syncs = hooks(selection.instances, "sync")
        self._works = [(i.name, told) for i in selection.instances if (told := hook(i, "device_work")) is not None]
        self._serial = None if all(p.concurrent for p in built.placement.providers) else threading.Lock()
        self.capture = _capture(selection, main, built.runtime.memories)
        self._bare = (
            self._plain and all(d == HOST for _, d in main.outputs) and self.capture is None
            and not (self._starts or self._ends or self._syncs or self._serial or self._sparse)
        )  # fmt: skip
        """Whether a run without options that matter here is the graph's run and nothing else."""

    def run(
        self,
        inputs: list[Any],
        names: Sequence[str],
        options: RunOptions | None,
        host: bool,
        places: Places | None = None,
    ) -> list[Any]:
        """Results for inputs in declared order; with ``host`` those on a device are brought to NumPy arrays. ``places`` are taken where
        they can be. RuntimeException for want of memory."""
        try:
            told = options is not None and (options._config_entries or options.only_execute_path_to_fetches)
            if self._bare and not (told or self.profile) and DeviceArray not in map(type, inputs):
                results = self._call(inputs, options, places)
                return results if names is self.output_names else self._named(results, names)
            if not (self._starts or self._ends or self._serial or self.profile or told):
                return self._execute(inputs, names, options, host, places)
            return self._guarded(inputs, names, options, host, places)
        except MemoryError as error:
            raise RuntimeException(f"Failed to allocate memory for the run: {error}") from error

    def _guarded(
        self, inputs: list[Any], names: Sequence[str], options: RunOptions | None, host: bool, places: Places | None
    ) -> list[Any]:
        """A run with everything around it: one at a time where a provider asks for that, providers' hooks, the
        profile, memory given back."""
        start, profile = time.perf_counter_ns(), self.profile
        arenas: Sequence[Arena] = ()
        if options is not None and options._config_entries:
            from onnxplug.session.shrinkage import to_shrink

            arenas = to_shrink(options, self.built.runtime.memories)
        with self._serial or contextlib.nullcontext():
            try:
                for begin in self._starts:
                    begin(options)
                with contextlib.nullcontext() if profile is None else profile.stage("SequentialExecutor::Execute"):
                    results = self._execute(inputs, names, options, host, places)
                if profile is not None:
                    for provider, told in self._works:
                        for work in told():
                            profile.device_work(provider, work)
            except BaseException as error:
                self._end(options, error)
                raise
            finally:
                if profile is not None:
                    profile.event("Session", "model_run", start, time.perf_counter_ns())
            self._end(options, None)
        if arenas:
            from onnxplug.session.shrinkage import shrink

            shrink(arenas, self.built.runtime.memories, [self.built.runner, *self._runners.values()])
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

    def _execute(
        self, inputs: list[Any], names: Sequence[str], options: RunOptions | None, host: bool, places: Places | None
    ) -> list[Any]:
        partial = options is not None and options.only_execute_path_to_fetches and list(names) != self.output_names
        runner = self._partial_runner(tuple(names)) if partial else self.built.runner
        held, natives = ((), inputs) if self._plain and DeviceArray not in map(type, inputs) else self._bring(inputs)
        graph_id = recording_id(options) if options is not None and options._config_entries else 0
        if self.capture is not None and not partial and graph_id is not None:
            results = self.capture.run(graph_id, runner, natives, options)
        else:
            results = runner.run(natives, options) if partial else self._call(natives, options, places)
        if host or options is None or options._config_entries.get(_NO_SYNC) != "1":
            for sync in self._syncs:
                sync()
        del held
        if host:
            results = [self._to_host(r) if r.__class__ is DeviceArray else r for r in results]
        results = results if partial or names is self.output_names else self._named(results, names)
        if self._sparse:
            results = [self._sparse.get(name, result) for name, result in zip(names, results, strict=True)]
        return results

    def _named(self, results: list[Any], names: Sequence[str]) -> list[Any]:
        return [results[self._positions[name]] for name in names]

    def _bring(self, inputs: list[Any]) -> tuple[list[DeviceArray], list[Any]]:
        """Inputs in the memory spaces the plan reads them from, defaults filled in; the first item keeps copies
        alive."""
        memories = self.built.runtime.memories
        held: list[DeviceArray] = []
        natives: list[Any] = []
        for value, default, home in zip(inputs, self._defaults, self._homes, strict=True):
            value = default if value is None else value
            if isinstance(value, DeviceArray):
                if value.device == home:
                    natives.append(value.native)
                    continue
                value = self._to_host(value)
            if home == HOST or value is None:
                natives.append(value)
            else:
                start = time.perf_counter_ns()
                held.append(memories[home].upload(value))
                natives.append(held[-1].native)
                if self.profile is not None:
                    self.profile.copy(HOST, home, value, start, time.perf_counter_ns())
        return held, natives

    def _to_host(self, result: DeviceArray) -> np.ndarray:
        start = time.perf_counter_ns()
        array = result.to_host()
        if self.profile is not None:
            self.profile.copy(result.device, HOST, array, start, time.perf_counter_ns())
        return array

    def _partial_runner(self, names: tuple[str, ...]) -> GraphRunner:
        """A runner of only what the named outputs need."""
        found = self._runners.get(names)
        if found is None:
            main = self.built.placement.main
            outputs = {v.name: (v, d) for v, d in main.outputs}
            wanted = [outputs[name] for name in names]
            needed, units = set(wanted), []
            for unit in reversed(main.units):
                if any(located in needed for located in unit.outs if located is not None):
                    units.append(unit)
                    needed.update(located for located in unit.ins if located is not None)
            placed = PlacedGraph(main.graph, tuple(reversed(units)), main.inputs, main.captures, tuple(wanted))
            found = self._runners[names] = GraphRunner(placed, self.built.runtime)
        return found

    def handed(self, results: list[Any], names: Sequence[str]) -> list[Any]:
        """The results of the outputs named, in the form in which programs get them: see ``session.handed``."""
        for at, wide in self._all_wide if names is self.output_names else self._wide_among(names):
            value = results[at]
            results[at] = value.view(wide) if wide is not None and value.__class__ is np.ndarray else handed(value)
        return results

    def _wide_among(self, names: Sequence[str]) -> list[tuple[int, np.dtype | None]]:
        """Positions of the results that ``handed`` may change, and the dtype that tensors among them are viewed as."""
        return [(at, self._wide[name]) for at, name in enumerate(names) if name in self._wide]

    def requested(self, names: Any) -> Sequence[str]:
        """The outputs a run is asked for (see ``resolve_outputs``): ``output_names`` itself for all of them in order."""
        everything = names.__class__ is list and names == self.output_names
        return self.output_names if everything else resolve_outputs(names, self.output_names)

    @cached_property
    def feedable(self) -> Mapping[str, ValueType]:
        """The declared type of each input, by name."""
        return {v.name: declared(v) for v in self.inputs}

    @cached_property
    def node_args(self) -> list[tuple[Value, NodeArg]]:
        """The inputs with the ``NodeArg`` that ``get_inputs`` gives for each, the same objects each time."""
        return [(v, NodeArg(v.name, declared(v))) for v in self.inputs]

    @cached_property
    def output_args(self) -> list[NodeArg]:
        """As ``node_args``, of the outputs."""
        return [NodeArg(v.name, v.told or declared(v)) for v in self.built.graph.outputs]

    def places(self, inputs: Sequence[Any], given: Mapping[str, Any]) -> Places | None:
        """Where a run on these inputs may write results at once, if arrays are given for some outputs, by name."""
        return places_for(inputs, {self._positions[name]: array for name, array in given.items()}, self._lent)

    def repeated(self, inputs: Sequence[Any], given: Sequence[np.ndarray | None]) -> Repeat | None:
        """Runs on always these inputs where nothing but the graph's one region runs: see ``GraphRunner.repeated``. ``given``: the caller's
        memory for each output, None for those of which each run makes a fresh one."""
        if not self._bare or self.profile is not None or self._call != self.built.runner.run:
            return None
        arrays = {at: array for at, array in enumerate(given) if array is not None}
        places = (places_for(inputs, arrays, self._lent) or {}) if arrays else {}
        if any(at not in places or places[at].over is not None for at in arrays):
            return None
        return self.built.runner.repeated(inputs, given)

    def type_of(self, name: str) -> ValueType | None:
        """An output's declared type."""
        return self._output_types[self._positions[name]]


def _sparse_outputs(graph: Graph) -> dict[str, SparseTensor]:
    """The outputs that are sparse constants, which every run gives alike."""
    if not graph.sparse_outputs:
        return {}  # as nearly always
    from onnxplug.graph.constants import constant_of

    return {v.name: SparseTensor.of_array(constant_of(v)) for v in graph.outputs if v.name in graph.sparse_outputs}


def _capture(selection: Selection, main: PlacedGraph, memories: Memories) -> Capture | None:
    if any(device == HOST for _, device in (*main.inputs, *main.outputs)):
        return None  # as nearly always
    from onnxplug.session.capture import capture_of

    return capture_of(selection.instances, main, memories)

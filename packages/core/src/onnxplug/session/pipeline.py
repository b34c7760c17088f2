"""The stages of session creation: ``open_model`` loads (``Model``), ``build`` optimizes (``Graph``), places (``Placement``) and makes the
kernels. Plans are made by the ``GraphRunner`` for each signature of shapes: here for the declared one, where it is known, else by runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from onnxplug.contract.arena import Arena
from onnxplug.contract.errors import Fail, InvalidArgument, InvalidGraph, ModelLoadCanceled, begin_with
from onnxplug.contract.logs import DEBUG, INFO
from onnxplug.contract.records import record
from onnxplug.graph.ir import Graph
from onnxplug.graph.schemas import NCHWC, Schemas
from onnxplug.optimize import Optimizer
from onnxplug.place import PlacedGraph, Placement, SessionProvider, place
from onnxplug.plugins import ProviderInstance
from onnxplug.run import DeviceMemory, GraphRunner, Memories, Runtime
from onnxplug.run.lender import Lender
from onnxplug.run.runtime import PlaceAgain
from onnxplug.session.context_data import reader
from onnxplug.session.environment import requested_threads
from onnxplug.session.hooks import GuardedAllocator, guarded
from onnxplug.session.options import SessionOptions
from onnxplug.session.recall import Recalled, Shelf, shelf
from onnxplug.session.selection import CPU, Selection, op_schemas, session_provider, thread_count

if TYPE_CHECKING:
    from onnxplug.contract.logs import Logger
    from onnxplug.load import Model


@record(frozen=True, slots=True)
class Opened:
    """What ``build`` begins with: the model, or what an earlier session kept of it; the providers; the operators' schemas; and where the
    optimized graph is kept for later sessions, None where it is not."""

    model: Model | Recalled
    providers: list[SessionProvider]
    schemas: Schemas
    shelf: Shelf | None


@record(frozen=True, slots=True)
class Built:
    """What a session runs on, and what it tells of itself."""

    model: Model | Recalled
    graph: Graph
    optimizer: Optimizer
    placement: Placement
    runtime: Runtime
    runner: GraphRunner
    variants: list[Placement]
    """Further placements, made in runs whose shapes decided a condition (see ``run.planners``)."""


Stage = Callable[[str], AbstractContextManager[Any]]
"""Tells a profile how long what follows takes."""


def build(
    opened: Opened, options: SessionOptions, selection: Selection, log: Logger, stage: Stage = nullcontext
) -> Built:
    """Optimize -> place -> make kernels, and the first plan where shapes are fixed: all that lies between the parsed model and the
    first run. What fails leaves no memory taken."""
    config, model, providers = options._config_entries, opened.model, opened.providers
    memories = make_memories(selection.instances, providers, options.enable_cpu_mem_arena)
    runtime = Runtime(memories, providers, thread_count(requested_threads(options)))

    try:
        optimizer = make_optimizer(runtime, options)
        graph = _optimized(opened, options, optimizer, log, stage)
        if options.optimized_model_filepath:
            from onnxplug.graph.export import save_graph
            from onnxplug.optimize.passes import BASIC
            from onnxplug.optimize.written import write_products

            if optimizer.level >= BASIC:
                write_products(graph, optimizer.disabled)
            save_graph(graph, model.proto, options.optimized_model_filepath, *_weights_beside(config))
        with stage("placement"):
            fallback = config.get("session.disable_compile_fallback") != "1"
            placement = place(graph, providers, optimizer, fallback, reader(options))
            _check(placement, config)
            variants: list[Placement] = []
            if optimizer.takes_branches:
                anew = partial(place, providers=providers, allow_fallback=fallback, read=reader(options))
                runtime.place_again = _placing_again(anew, optimizer, runtime, variants, partial(_check, config=config))
        log_placement(placement, log)
        with stage("kernel_creation"):
            runner = runtime.runner(placement)
            _read_constants(graph)
            return Built(model, graph, optimizer, placement, runtime, runner, variants)
    except BaseException:
        runtime.close()
        raise


def _optimized(opened: Opened, options: SessionOptions, optimizer: Optimizer, log: Logger, stage: Stage) -> Graph:
    """The graph as it is to be placed: read and optimized, unless an earlier session's is recalled."""
    model = opened.model
    if isinstance(model, Recalled):
        optimizer.removed.update(model.removed)
        _remark(model.graph, log)
        return model.graph
    beside = [] if opened.shelf is None else opened.shelf.beside(model)
    with stage("graph_building"):
        graph = read(model, options, opened.schemas)
        _remark(graph, log)
        said = len(graph.remarks)
    with stage("graph_optimization"):
        optimizer(graph)
        del graph.remarks[said:]  # of what passes infer nobody is told, nor is a later session's user
        if opened.shelf is not None:
            opened.shelf.put(graph, optimizer.removed, model, beside)
    return graph


def _remark(graph: Graph, log: Logger) -> None:
    for remark in graph.remarks:
        log.warning("%s", remark)


def _placing_again(
    anew: Callable[..., Placement],
    optimizer: Optimizer,
    runtime: Runtime,
    variants: list[Placement],
    check: Callable[[Placement], None],
) -> PlaceAgain:
    """A function that optimizes and places a variant of a graph, one call at a time, and adds the placement to ``variants``."""
    placing = threading.Lock()

    def place_again(graph: Graph, like: PlacedGraph) -> PlacedGraph:
        with placing:
            tidy = optimizer.anew()
            tidy(graph)
            variant = anew(graph, tidy=tidy, like=like)
            check(variant)
            runtime.prepare(variant.main)
            variants.append(variant)
            return variant.main

    return place_again


def open_model(source: str | bytes, options: SessionOptions, selection: Selection) -> Opened:
    """Load: the model, or the optimized graph that an earlier session kept of it, and what ``build`` needs besides."""
    if options.optimized_model_filepath:
        from onnxplug.load.ort_format import refuse_to_write_ort

        refuse_to_write_ort(
            options.optimized_model_filepath, options._config_entries.get("session.save_model_format", "")
        )
    providers = [session_provider(i) for i in selection.instances]
    schemas, kept = Schemas(partial(op_schemas, selection.instances)), shelf(source, options, selection)
    recalled = None if kept is None else kept.get(schemas)
    return Opened(recalled or load(source, options), providers, schemas, kept)


def _check(placement: Placement, config: Mapping[str, str]) -> None:
    if config.get("session.disable_cpu_ep_fallback") == "1":
        refuse_cpu(placement, config.get("session.disable_cpu_ep_fallback.allow", ""))


def load(source: Any, options: SessionOptions) -> Model:
    """The parsed model."""
    if options._load_cancelled:
        raise ModelLoadCanceled("Graph loading canceled due to user request.")
    folder = options._config_entries.get("session.model_external_initializers_file_folder_path", "")
    from onnxplug.load import load_model

    return load_model(source, folder, options._config_entries.get("session.load_model_format", ""))


def read(model: Model, options: SessionOptions, schemas: Schemas) -> Graph:
    """The graph, with the options' dimensions and initializers put in and every type inferred."""
    from onnxplug.graph.build import build_graph
    from onnxplug.graph.infer import infer_graph

    _override_dimensions(model.proto.graph, options._free_dimensions_by_name, options._free_dimensions_by_denotation)
    given = {}
    if options._initializers or options._external_initializers or options._external_files:
        from onnxplug.session.replaced import replacements

        given = replacements(model.proto.graph, options)
    with _told_of(model.path):
        graph = build_graph(model, schemas, given)
    model.payloads.clear()  # the graph's constants have them now, and let go of them one by one
    if NCHWC in model.opsets:
        from onnxplug.graph.unblock import unblock  # few models have it

        unblock(graph)
    with _told_of(model.path):
        infer_graph(graph)
        for value in graph.outputs:
            if value.type is None:
                raise InvalidGraph(
                    f"This is an invalid model. The type of graph output ({value.name}) is neither declared nor to be inferred."
                )
    return graph


@contextmanager
def _told_of(path: str | None) -> Iterator[None]:
    """What is wrong with the graph of a model that was read from a file is told with the file, as onnxruntime tells it."""
    try:
        yield
    except (Fail, InvalidArgument, InvalidGraph) as error:
        if path is not None and not error.text.startswith("External "):  # data beside the model has a file of its own
            begin_with(error, f"Load model from {path} failed:")
        raise


def _weights_beside(config: Mapping[str, str]) -> tuple[str, int]:
    """The file for the initializers of an optimized model, '' for none, and from how many bytes on they go there."""
    prefix = "session.optimized_model_external_initializers_"
    least = config.get(f"{prefix}min_size_in_bytes", "1024")
    if not least.isdecimal():
        raise Fail(f"Failed to parse the value of {prefix}min_size_in_bytes, {least!r}: it must be a number of bytes")
    return config.get(f"{prefix}file_name", ""), int(least)


def _read_constants(graph: Graph) -> None:
    """Read what the nodes left need, so that damaged data is an error of creation, not of the first run."""
    for node in graph.walk():
        for value in node.inputs:
            if value is not None and value.is_constant and not value.was_released:
                _ = value.constant


def make_optimizer(runtime: Runtime, options: SessionOptions) -> Optimizer:
    """The provider-neutral passes of the level asked for, for the graph and for functions inlined later."""
    disabled = options._config_entries.get("optimization.disable_specified_optimizers", "").split(";")
    return Optimizer(int(options.graph_optimization_level), runtime.evaluate, frozenset(disabled))


def make_memories(
    instances: Sequence[ProviderInstance], providers: Sequence[SessionProvider], host_arena: bool
) -> Memories:
    """One memory space for each allocator; the first provider that offers a space serves it."""
    spaces: dict[Any, DeviceMemory] = {}
    for instance, provider in zip(instances, providers, strict=True):
        for allocator in provider.allocators:
            direct = allocator.device.kind == "cpu" and not host_arena
            view = guarded(instance, "view", instance.provider.view)
            own = GuardedAllocator(instance, allocator)
            memory = DeviceMemory(own if direct else Arena(own), view, provider.transfer)
            memory.provider = provider.name
            spaces.setdefault(allocator.device, memory)
    return Memories(spaces, Lender() if host_arena else None)


def log_placement(placement: Placement, log: Logger) -> None:
    """Which provider has how many nodes, and at the verbose level which, in onnxruntime's lines."""
    if not log.isEnabledFor(INFO):
        return
    groups: dict[str, list[str]] = {}
    for name, owner in placement.owners.items():
        groups.setdefault(owner, []).append(name)
    log.info("placed %d nodes: %s", len(placement.owners), ", ".join(sorted(groups)))
    if not log.isEnabledFor(DEBUG):
        return
    ops = {n.name: n.op_type for n in placement.main.graph.walk()}
    log.debug("Node placements")
    for provider, names in groups.items():
        which = " All nodes placed" if len(groups) == 1 else " Node(s) placed"
        log.debug("%s on [%s]. Number of nodes: %d", which, provider, len(names))
        for name in names if len(groups) > 1 else ():
            log.debug("  %s (%s)", ops.get(name, "fused"), name)


def refuse_cpu(placement: Placement, allowed: str) -> None:
    """Fail when a node is left to the CPU provider; ``allowed`` lists operator types that may be."""
    permitted = {name.strip() for name in allowed.split(",")}
    ops = {n.name: n.op_type for n in placement.main.graph.walk()}
    left = [n for n, owner in placement.owners.items() if owner == CPU and ops.get(n) not in permitted]
    if left:
        shown = ", ".join(f"'{n}' ({ops.get(n, 'fused')})" for n in left[:10]) + (
            f" and {len(left) - 10} more" if len(left) > 10 else ""
        )
        raise Fail(
            "This session contains graph nodes that are assigned to the default CPU EP, but fallback to CPU EP has been "
            f"explicitly disabled by the user. Nodes: {shown}"
        )


def _override_dimensions(graph: Any, by_name: Mapping[str, int], by_denotation: Mapping[str, int]) -> None:
    if not by_name and not by_denotation:
        return
    for info in (*graph.input, *graph.output, *graph.value_info):
        for dim in info.type.tensor_type.shape.dim:
            named = by_name.get(dim.dim_param) if dim.dim_param else None
            denoted = by_denotation.get(dim.denotation.lower()) if dim.denotation else None
            if named is not None and denoted is not None and named != denoted:
                raise InvalidArgument(
                    f"Conflicting free dimension overrides. Dimension '{dim.dim_param}' of '{info.name}' is {named} by its name "
                    f"and {denoted} by its denotation '{dim.denotation}'."
                )
            size = named if denoted is None else denoted
            if size is not None and dim.HasField("dim_value") and dim.dim_value != size:
                raise InvalidArgument(
                    f"Invalid free dimension override. The dimension of '{info.name}' with denotation '{dim.denotation}' is "
                    f"{dim.dim_value}, not {size}."
                )
            if size is not None:
                dim.dim_value = size

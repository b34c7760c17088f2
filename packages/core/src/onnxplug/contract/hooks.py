"""The hook specifications, carried by pluggy. ``ProviderHooks`` is what a session's provider implements,
``PluginHooks`` what a plugin module implements. Hooks are called at discovery, session creation and the edges of a run,
never between two steps of a run.

A hook a provider does not have means that it does not support the feature; only ``create_allocators`` is required when
its memory is not host memory, together with ``get_data_transfer`` and ``view``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import numpy as np
    from onnx.defs import OpSchema

    from onnxplug.contract.claims import Claim, CompiledRegion, Decline, DeviceWork, Inline, Region
    from onnxplug.contract.graph import GraphView
    from onnxplug.contract.kernels import KernelLookup, KernelRegistry
    from onnxplug.contract.memory import Allocator, Buffer, DataTransfer, Device
    from onnxplug.contract.provider import ProviderSpec

PROJECT = "onnxplug"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class PluginHooks:
    """Process-wide hooks: announcing providers, and observing sessions (tracing, metrics). An observer that raises is
    disabled."""

    @hookspec
    def onnxplug_provider(self) -> ProviderSpec | Sequence[ProviderSpec]:
        """The provider, or providers, of this module."""
        raise NotImplementedError

    @hookspec
    def onnxplug_session_created(self, session: Any) -> None:
        """A session is ready."""

    @hookspec
    def onnxplug_placed(self, session: Any, placement: Mapping[str, str]) -> None:
        """Every node has a provider: {node name: provider name}."""

    @hookspec
    def onnxplug_run_start(self, session: Any, options: Any) -> None:
        """A run begins; ``options`` is the caller's RunOptions or None."""

    @hookspec
    def onnxplug_run_end(self, session: Any, options: Any, error: BaseException | None) -> None:
        """A run ended; ``error`` is what it raised or None."""


class ProviderHooks:
    """Hooks of one provider instance of one session."""

    @hookspec(firstresult=True)
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterable[Claim | Decline | Inline]:
        """What of ``graph`` this provider runs. Pure: asked twice it answers the same and changes nothing. Called for
        the main graph first, then for nested graphs whose owner nobody claimed whole. Default: every node for which the
        registry has a kernel."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_kernel_registry(self) -> KernelRegistry | None:
        """The kernels; may be the same object for every session."""

    @hookspec(firstresult=True)
    def get_op_schemas(self) -> Sequence[OpSchema]:
        """Schemas of custom or contrib operators, in force for this session only; they do not replace onnx's own. Types
        and shapes are inferred by the function that ``OpSchema.set_type_and_shape_inference_function`` was given.
        Called when the model holds an operator that onnx does not define."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def create_allocators(self) -> Sequence[Allocator]:
        """One raw allocator per memory kind, the default memory first; none means that the provider works in host
        memory."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_data_transfer(self) -> DataTransfer | None:
        """Copies between this provider's devices and the host."""

    @hookspec(firstresult=True)
    def view(self, buffer: Buffer, offset: int, dtype: np.dtype, shape: Sequence[int]) -> Any:
        """The native array its kernels take, over ``offset`` bytes into ``buffer``. Dense row-major; no copy."""

    @hookspec(firstresult=True)
    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        """One compiled region for each region, all at once so that work can be shared. An exception bars this provider
        from these nodes and placement is made again without it."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def load_region(self, blob: bytes) -> CompiledRegion:
        """Restore what ``CompiledRegion.export`` gave, perhaps in another process: called for each EPContext node of a model
        whose attribute ``source`` is the provider's name (``ModelCompiler`` and config entry ``ep.context_enable`` write
        such models)."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def create_stream(self, device: Device) -> Any:
        """A queue of work on ``device``. The core keeps one for each frame, orders copies to the device on it and hands it to regions;
        ``sync`` is called before results are read."""

    @hookspec(firstresult=True)
    def on_run_start(self, options: Any) -> None:
        """A run that uses this provider begins."""

    @hookspec(firstresult=True)
    def on_run_end(self, options: Any, error: BaseException | None) -> None:
        """It ended."""

    @hookspec(firstresult=True)
    def sync(self) -> None:
        """Wait until everything queued on the device is done."""

    @hookspec(firstresult=True)
    def device_work(self) -> Sequence[DeviceWork]:
        """What the device has timed since it was last asked. Asked at the end of a profiled run, behind ``sync``; each becomes an event
        of category ``Kernel`` in the profile, and counts there in place of the step's own time."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def is_graph_captured(self, graph_id: int) -> bool:
        """Whether device work is recorded under this id. A provider that records work once and replays it has this hook and
        the three that follow; where its options switch that off it sets one of them to None. They are called in sessions
        whose whole graph, inputs and outputs included, is on this provider: of the runs with one run option
        ``gpu_graph_id`` (default 0; -1: never) the first is a normal one, the second with the same shapes is recorded, the others
        are replays.
        Inputs are copied into the memory of the recording before a replay, results out of it afterwards, on the stream of the
        recorded run where there are streams."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def begin_capture(self, graph_id: int) -> None:
        """Record the device work of the run that follows in place of an earlier recording of this id. It need not be done
        as well: a replay follows."""

    @hookspec(firstresult=True)
    def end_capture(self, graph_id: int) -> None:
        """Stop recording."""

    @hookspec(firstresult=True)
    def replay_graph(self, graph_id: int) -> None:
        """Do the recorded work again, on the memory it was recorded with."""

    @hookspec(firstresult=True)
    def release_graph(self, graph_id: int) -> None:
        """Forget what is recorded under this id, if anything is, and give back what it holds: ``release_captured_graph`` was called, or the
        run that was to be recorded failed. The memory that replays read and write goes afterwards, so that none may be under way on return.
        A provider that records may do without this hook: its recordings then go when their ids are recorded anew, or with the session."""

    @hookspec(firstresult=True)
    def set_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Options that may change while the session lives; RuntimeError for one that may not."""

    @hookspec(firstresult=True)
    def close(self) -> None:
        """The session goes; every buffer has been freed."""

"""What ``get_capability`` yields, and the regions a compiling provider receives for what it claimed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from onnxplug.contract.graph import GraphView, NodeView, ValueView
from onnxplug.contract.kernels import TensorSpec
from onnxplug.contract.records import record


@record(frozen=True, slots=True, eq=False)
class Claim:
    """I run these nodes. ``fused`` None: each by its own kernel of my registry. A name: as one region that I compile.

    A fused claim must be convex (no path leaves it and comes back) and is honoured whole or not at all.
    """

    nodes: Sequence[NodeView]
    fused: str | None = None


@record(frozen=True, slots=True, eq=False)
class Decline:
    """I do not run this node, because ...: the reason is shown to users by ``explain``."""

    node: NodeView
    reason: str


@record(frozen=True, slots=True, eq=False)
class Inline:
    """Show me the body of this function node instead; beats a lower provider's claim of the node as a whole."""

    node: NodeView


Watch = Callable[[Sequence[NodeView], Mapping[str, TensorSpec], int, int], None]
"""A function that a profiled region calls for each part of its run, with the part's nodes, the specs of values by name (those that ``bind``
was given), start and end (nanoseconds of ``time.perf_counter_ns``). Each call becomes an event of category ``Kernel`` in the profile."""


@record(frozen=True, slots=True, eq=False)
class DeviceWork:
    """A piece of a step's work of which the device took the time itself: the launch of a kernel, say."""

    step: str
    """The node or region that runs it, by name."""
    nodes: Sequence[NodeView]
    """What it computes, or helps to."""
    kernel: str
    start_ns: int
    """As ``time.perf_counter_ns`` counts, like ``end_ns``; within the run."""
    end_ns: int


def _nobody() -> Watch | None:
    return None


@record(frozen=True, slots=True)
class RunContext:
    """What a region may use during one run."""

    stream: Any
    """The stream that ``create_stream`` made for the region's device, None where the provider has no streams."""
    workspace: Any
    """A native uint8 array of the bytes that ``workspace`` asked for, in the provider's memory; None where it asked for none."""
    threads: int
    """The session's ``intra_op_num_threads``, as a number."""
    cancelled: Callable[[], bool]
    """True once the caller has set the run's terminate flag. A region that takes long asks now and then, and stops by raising
    ``Fail(TERMINATED)`` (``onnxplug.contract.errors``): what it returns are results."""
    watch: Callable[[], Watch | None] = _nobody
    """In a profiled run the function to tell of the region's parts, else None."""


@record(frozen=True, slots=True, eq=False)
class Region:
    """Claimed nodes that become one unit. ``name`` is stable: the claim's name and a hash of the structure. ``key()`` also
    hashes the weights (about a second per GB), which makes it fit to key a cache of whatever was made of them. ``outputs`` may
    be empty: nodes whose results nobody reads are claimed like others."""

    name: str
    graph: GraphView
    inputs: Sequence[ValueView]
    outputs: Sequence[ValueView]
    key: Callable[[], str]


Shapes = Sequence[tuple[int, ...] | None]


class TripOperand(NamedTuple):
    """Where the trips of a loop find one of their operands, in a numbered list of arrays: trip 0 in array ``first``, later odd trips in
    array ``odd``, later even ones in array ``even``. With ``rows`` the three are the same array, of which trip ``t`` has row ``t``."""

    first: int
    odd: int
    even: int
    rows: bool = False

    def of(self, arrays: Sequence[Any], trip: int) -> Any:
        """The operand of one trip, a view."""
        array = arrays[self.first if not trip else self.odd if trip & 1 else self.even]
        return array[trip, ...] if self.rows else array


class CompiledRegion(ABC):
    """A compiled region. Keeps no state between runs, so one serves several threads."""

    packed: tuple[str, ...] = ()
    """Names of constants this region packed and will not read again."""
    host_inputs: frozenset[int] = frozenset()
    """Indices of inputs that the region reads in host memory, whatever the provider's device is."""
    host_outputs: frozenset[int] = frozenset()
    """Indices of outputs that it writes to host memory."""
    shape_inputs: frozenset[int] = frozenset()
    """Indices of host inputs whose values decide shapes: ``bind`` finds the values in ``specs``. Where data decides one of them, and
    shapes inside the region with it, ``bind`` is called by the run that brings it."""
    inplace: Mapping[int, tuple[int, ...]] = {}
    """Output -> inputs whose memory it may be made in (a cache of keys to which rows are added), read before ``bind``. ``run_into`` and
    ``function`` then get one array for both, of one shape and dtype, or two that are apart as ever. In one array they write only what
    differs; what nobody reads may stay as it is. One node of the region reads such an input, and no result shows its memory. A run that
    fails is repeated, maybe by another provider: from what a run left there, another makes the same results. The core gives one array
    where the caller bound it as both, in host memory, and nothing else in the model reads it during the region's run or later."""

    def bind(self, specs: Mapping[str, TensorSpec]) -> CompiledRegion:
        """This region for the shapes of one plan: offsets, tile sizes and whatever else shapes decide. The default is the region
        itself, which then looks at its operands in each run.

        ``specs`` has, by name, dtype and shape of every value of the region's graph for which they are known; ``constant`` is set where
        the shapes decide the value too (shape arithmetic). Called once per plan, or by a run whose shapes were not known before.
        """
        return self

    @abstractmethod
    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        """The region's outputs for its inputs, both native arrays in the region's order. An exception with an attribute ``node``, one of
        the region's nodes, is reported as that node's."""

    def output_shapes(self, inputs: Shapes) -> Shapes | None:
        """Output shapes for input shapes; None when only the data decides (the default)."""
        return None

    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        """Write the results into ``outputs`` (None for one whose value the plan knows) and return True; return False (the default) when
        the region has no such form."""
        return False

    def function(self) -> Callable[..., bool] | None:
        """A quicker form of ``run_into``, for regions so small that the call itself counts: ``function(workspace, *inputs, *outputs)``.
        It returns whether it did the work; where it did not, ``run_into`` is called. The region is kept alive as long as the function
        may be called. None (the default): there is no such form."""
        return None

    def trips(self, inputs: Sequence[TripOperand], outputs: Sequence[TripOperand]) -> Callable[..., int] | None:
        """A form of ``run_into`` that runs many trips of a loop in one call: ``function(workspace, count, condition, *arrays)``. None (the
        default): there is no such form, and each trip is a run of its own.

        ``count``: how many trips there are. ``condition``: a host array of one truth value, which is among the outputs and ends the
        loop when a trip leaves False in it; None where nothing ends it early. ``arrays``: host arrays, in which ``inputs`` and
        ``outputs`` say where each trip finds its operands. An input may be an output of an earlier trip; no output shares memory with
        an input of the same trip.

        The function returns how many trips it ran: all of them; fewer where ``condition`` ended the loop; or those before a trip that it
        cannot do, for which ``run_into`` is called before the function is asked to go on behind it. Where it ran none because operands
        have gaps, it is called again with dense row-major arrays (of those with ``rows``, each row is). The region is kept alive as
        long as the function may be called. Several threads may call it at once, each with a workspace and arrays of its own."""
        return None

    def workspace(self, inputs: Shapes) -> int:
        """Bytes of scratch wanted for these input shapes; given as ``context.workspace`` in the provider's memory."""
        return 0

    def facts(self) -> Mapping[str, Any]:
        """What ``explain`` shows of the region besides its nodes, fit for JSON: memory it holds, algorithms it chose."""
        return {}

    def export(self) -> bytes | None:
        """A blob that ``ExecutionProvider.load_region`` restores; None when the region cannot be exported."""
        return None

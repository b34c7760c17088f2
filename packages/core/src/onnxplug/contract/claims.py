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
"""Told of a part of a region's run: its nodes, specs of values by name (as ``bind`` has them), start and end in nanoseconds of
``time.perf_counter_ns``. It becomes an event of category ``Kernel`` within the region's in the profile."""


def _nobody() -> Watch | None:
    return None


@record(frozen=True, slots=True)
class RunContext:
    """What a region may use during one run. ``cancelled()`` turns true when the caller set the terminate flag. ``watch()`` is
    None but for runs that are profiled; then a region that can tell the time of its parts calls what it gives for each."""

    stream: Any
    workspace: Any
    threads: int
    cancelled: Callable[[], bool]
    watch: Callable[[], Watch | None] = _nobody


@record(frozen=True, slots=True, eq=False)
class Region:
    """Claimed nodes that become one unit. ``name`` is stable: the claim's name and a hash of the structure. ``key()`` also
    hashes the weights (about a second per GB), which makes it fit to key a cache of whatever was made of them."""

    name: str
    graph: GraphView
    inputs: Sequence[ValueView]
    outputs: Sequence[ValueView]
    key: Callable[[], str]


Shapes = Sequence[tuple[int, ...] | None]


class TripOperand(NamedTuple):
    """Where an operand of trip after trip is, among arrays that have numbers: in the first trip in array ``first``, then in ``odd``
    and ``even`` by turns. Of arrays of ``rows``, which are one and the same array, trip ``t`` has row ``t``."""

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
    host_outputs: frozenset[int] = frozenset()
    shape_inputs: frozenset[int] = frozenset()
    """Host inputs whose values decide shapes: ``bind`` finds them in ``specs``."""

    def bind(self, specs: Mapping[str, TensorSpec]) -> CompiledRegion:
        """This region for the shapes of one plan: offsets, tile choices, whatever shapes decide. The default is the region
        itself, which then finds out from its operands.

        ``specs`` has dtype and shape of every value of the region's graph that shapes decide, by name, ``constant`` set where
        they decide the value too (shape arithmetic). Called once per plan, or by a run whose shapes were not known before.
        """
        return self

    @abstractmethod
    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        """Native arrays in, native arrays out, in the order of the region's inputs and outputs. An exception whose ``node`` is
        one of the region's nodes is reported as that node's."""

    def output_shapes(self, inputs: Shapes) -> Shapes | None:
        """Output shapes for input shapes; None when only the data decides (the default)."""
        return None

    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        """Write into given outputs (None: the plan knows the value) and return True; return False (the default) when the
        region has no such form."""
        return False

    def function(self) -> Callable[..., bool] | None:
        """``run_into`` as a function of the workspace, the inputs and the outputs, one after the other, for regions so small that
        what lies between is to be felt; None (the default) where there is none. It says whether it did the work: where it did
        not, ``run_into`` is called. The region is kept as long as it may be called."""
        return None

    def trips(self, inputs: Sequence[TripOperand], outputs: Sequence[TripOperand]) -> Callable[..., int] | None:
        """``run_into`` for trip after trip of a loop, without coming back in between; None (the default) where there is none, and each
        trip is a run of its own. What is given is a function of the workspace, of how many trips there are, of a host array of one
        truth value or None, and of the host arrays, one after the other, in which ``inputs`` and ``outputs`` are found. Inputs may be
        outputs of earlier trips; no output shares memory with an input of the same trip.

        It says how many trips were run: all, or those up to one that left False in the truth value, which is among its outputs, or
        those before one that it cannot do, for which ``run_into`` is called before it is asked to go on behind that. Where it ran none
        because operands have gaps, it is asked again with arrays that have none: those without rows are dense and row-major then, as
        are the rows of those that have. The region is kept as long as the function may be called; several threads may call it at once,
        each with a workspace and arrays of its own."""
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

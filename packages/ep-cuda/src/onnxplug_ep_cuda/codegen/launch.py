"""A node for a kernel to be made, without arguments; nothing here needs CUDA."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onnxplug.contract import NodeView, TensorSpec
from onnxplug.contract.errors import InvalidArgument
from onnxplug_kernel_text.nodes.call import NodeCall, Ref, ValueWanted
from onnxplug_kernel_text.nodes.faults import OUT_OF_BOUNDS, Watched
from onnxplug_kernel_text.nodes.launch import Job, Launch, integers, text_type

__all__ = ["Call", "Job", "Launch", "Lower", "Ref", "integers", "text_type", "watched", "where_known"]


@dataclass(frozen=True)
class Call(NodeCall):
    """A node with the shapes of one plan."""

    watch: Callable[[str, type[Exception]], int] | None = None
    """By which number the node's kernels tell of an error; None: they tell nobody."""

    @classmethod
    def of(
        cls,
        node: NodeView,
        inputs: Sequence[TensorSpec | None],
        outputs: Sequence[TensorSpec | None],
        faults: Watched | None = None,
    ) -> Call:
        """The call of a node."""
        watch = None if faults is None else functools.partial(faults.watch, node.name)
        return cls(node.op_type, node.since_version, node.attributes, inputs, outputs, watch)

    def fault(self, text: str = OUT_OF_BOUNDS, error: type[Exception] = InvalidArgument) -> tuple[Ref, int]:
        """Where a kernel leaves the number, and the number, when it meets what ``text`` says and onnxruntime raises as ``error``. The
        reference's own number is that one's negative: see ``Faults.address``."""
        number = 1 if self.watch is None else self.watch(text, error)
        return Ref(-number, 4), number


Lower = Callable[[Call], Job | None]


def watched(describe: Callable[[Call, tuple[Ref, int]], Job | None]) -> Lower:
    """The lowering of an operator whose kernels tell of an index out of bounds."""
    return lambda call: describe(call, call.fault())


def where_known(lower: Lower) -> Lower:
    """A lowering that gives None, too, where it asks for numbers that only a run knows."""

    def lowered(call: Call) -> Job | None:
        try:
            return lower(call)
        except ValueWanted:
            return None

    return lowered

"""A node for a kernel to be made, without arguments; nothing here needs CUDA."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnxplug.contract import NodeView, TensorSpec
from onnxplug_kernel_text.nodes.call import NodeCall, Ref, ValueWanted
from onnxplug_kernel_text.nodes.launch import Job, Launch, integers, text_type

__all__ = ["Call", "Job", "Launch", "Lower", "Ref", "integers", "text_type", "where_known"]


class Call(NodeCall):
    """A node with the shapes of one plan."""

    @classmethod
    def of(cls, node: NodeView, inputs: Sequence[TensorSpec | None], outputs: Sequence[TensorSpec | None]) -> Call:
        """The call of a node."""
        return cls(node.op_type, node.since_version, node.attributes, inputs, outputs)


Lower = Callable[[Call], Job | None]


def where_known(lower: Lower) -> Lower:
    """A lowering that gives None, too, where it asks for numbers that only a run knows."""

    def lowered(call: Call) -> Job | None:
        try:
            return lower(call)
        except ValueWanted:
            return None

    return lowered

"""Launches that nodes have on any device (``onnxplug_kernel_text.nodes``) as this provider's."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.launch import Launch
from onnxplug_kernel_text.nodes.launch import Launch as Described


def shared(target: Target, launches: Sequence[Described]) -> list[Launch]:
    """The same launches. On devices of smaller groups than described there are more of them: kernels whose groups share memory are not to
    be asked for there."""
    found = []
    for made in launches:
        group = min(made.block, 1 << (target.largest_group.bit_length() - 1))
        found.append(Launch(made.text, made.name, made.tensors, made.scalars, (made.grid * made.block,), (group,)))
    return found

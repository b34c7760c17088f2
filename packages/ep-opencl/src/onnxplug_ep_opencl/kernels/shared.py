"""Launches that nodes have on any device (``onnxplug_kernel_text.nodes``) as this provider's."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug.contract import EPFail
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.launch import Job, Launch
from onnxplug_kernel_text.nodes.launch import Job as DescribedJob
from onnxplug_kernel_text.nodes.launch import Launch as Described


def shared(target: Target, launches: Sequence[Described]) -> list[Launch]:
    """The same launches. On devices of smaller groups than described there are more of them: kernels whose groups share memory are not to
    be asked for there."""
    found = []
    for made in launches:
        group = min(made.block, 1 << (target.largest_group.bit_length() - 1))
        found.append(Launch(made.text, made.name, made.tensors, made.scalars, (made.grid * made.block,), (group,)))
    return found


def whole_groups(target: Target, name: str, made: DescribedJob) -> Job:
    """The same job, whose kernels share memory; EPFail where the device's groups are too small for it."""
    largest = max((launch.block for launch in made.launches), default=0)
    if largest > target.largest_group:
        raise EPFail(f"{name}: groups of {largest} work-items; the device takes {target.largest_group}")
    return Job(shared(target, made.launches), made.workspace)

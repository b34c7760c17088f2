"""Launches that nodes have on any device (``onnxplug_kernel_text.nodes``) as this provider's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from onnxplug.contract import EPFail
from onnxplug_ep_opencl.kernels.call import Call
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.launch import Job, Launch
from onnxplug_ep_opencl.unknown_shapes import misfit
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
    """The same job; EPFail where the device's groups are too small for a kernel whose groups share memory."""
    largest = max((launch.block for launch in made.launches if "BARRIER" in launch.text), default=0)
    if largest > target.largest_group:
        raise EPFail(f"{name}: groups of {largest} work-items; the device takes {target.largest_group}")
    return Job(shared(target, made.launches), made.workspace)


def described(describe: Callable[[Call], DescribedJob | None]) -> Callable[[Call], Job]:
    """The lowering of an operator whose launches are the same on any device."""

    def lowered(call: Call) -> Job:
        found = describe(call)
        if found is None:
            unfit(call)
        return whole_groups(call.target, call.op_type, found)

    return lowered


def unfit(call: Call) -> NoReturn:
    """Say that no kernel is written for such operands."""
    raise misfit(call.op_type, [None if s is None else s.shape for s in call.inputs])

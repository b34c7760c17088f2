"""Memory for kernels that cannot write to, or read, tensors of every layout: parts of concatenations, and what is sliced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor


@contextmanager
def fitting(b: Lowering, target: Tensor, order: Ints, fits: Callable[[Tensor], bool]) -> Iterator[Tensor]:
    """Where to write what ``target`` is to hold, by a kernel that cannot write to memory of every layout: ``target`` if it ``fits``,
    else memory laid in ``order``, which is copied to it in the end."""
    written = target if fits(target) else b.scratch(target.shape, order, target.element)
    yield written
    if written is not target:
        copy(b.program, b.target, written, target)

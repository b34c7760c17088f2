"""Operators that walk lines of a tensor, a block or a thread a line (``onnxplug_kernel_text.nodes.lines``)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from onnxplug_ep_cuda.codegen.launch import Call, Job
from onnxplug_kernel_text.nodes import hybrid, lines
from onnxplug_kernel_text.nodes.embed import embedded
from onnxplug_kernel_text.nodes.lines import Division

_SHORT = 32
"""Elements of a line up to which one thread takes it."""
_MANY = 8192
"""Lines from which on threads that take one each fill the device, if neighbours read neighbours."""
_LONG = 1 << 16
"""Elements of a line from which on it should be divided among blocks where there are few lines: those are CuPy's, which does."""
_FEW = 64
_ALONE = 128


def together(count: int, length: int, stride: int) -> int:
    """Threads of a block that shares a line; 0: a thread has it alone."""
    if length <= _SHORT or (stride >= _SHORT and count >= _MANY):
        return 0
    return min(512, max(64, 1 << (length // 4 - 1).bit_length()))


def _reduced(count: int, length: int, stride: int) -> int | None:
    return None if length >= _LONG and count < _FEW else together(count, length, stride)


def _normalised(count: int, length: int, stride: int) -> int:
    return max(together(count, length, stride), 32)


def _walked(
    describe: Callable[[Call, Division], Job | None], share: Callable[[int, int, int], int | None]
) -> Callable[[Call], Job | None]:
    return functools.partial(_lowered, describe, Division(share, _ALONE))


def _lowered(describe: Callable[[Call, Division], Job | None], division: Division, call: Call) -> Job | None:
    return describe(call, division)


softmax, lp_norm, lrn = (_walked(each, together) for each in (lines.softmax, lines.lp_norm, lines.lrn))
reduce, arg, whole = (_walked(each, _reduced) for each in (lines.reduce, lines.arg, lines.whole))
layer_norm, instance_norm, group_norm, skip_norm, gated_norm = (
    _walked(each, _normalised)
    for each in (lines.layer_norm, lines.instance_norm, lines.group_norm, lines.skip_norm, hybrid.gated_norm)
)


def embed_norm(call: Call) -> Job | None:
    """EmbedLayerNormalization of domain com.microsoft."""
    return embedded(call, _normalised(math.prod(call.input(0).shape), call.input(2).shape[1], 1), call.fault())

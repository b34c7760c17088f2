"""The blocked ("NCHWc") layout in which onnxruntime saves convolutions: how filters lie in it, and how many channels a block has.

A model that onnxruntime optimized for its own processor holds operators of ``com.microsoft.nchwc`` on tensors of shape (N, C, H, W) whose
memory is (N, C / block, H, W, block), C padded to whole blocks. Filters of shape (O, I, H, W) lie as (O / block, I / block, H, W, block
of I, block of O), those of depthwise convolutions and of convolutions that read an ordinary tensor as (O / block, I, H, W, block of O).
The model does not say how long a block is: it is 16 where the processor that saved it has AVX-512 or is an ARM, 8 on other x86. (Sources:
onnxruntime's optimizer/nchwc_transformer.cc, mlas/lib/reorder.cpp, mlas/lib/platform.cpp.)
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug.contract.errors import InvalidGraph
from onnxplug.contract.errors import NotImplemented as OrtNotImplemented
from onnxplug.contract.processor import features
from onnxplug.contract.records import record
from onnxplug.graph.schemas import NCHWC
from onnxplug.graph.value import Value

BLOCKS = (16, 8)


@record(frozen=True, slots=True, eq=False)
class Filter:
    """The filter of a blocked convolution, as it is stored. ``reads_blocks``: the layout has blocks of input channels too."""

    node: str
    stored: Value
    shape: tuple[int, ...]
    group: int
    reads_blocks: bool

    @property
    def is_depthwise(self) -> bool:
        """Whether it has one channel for each group."""
        return is_depthwise(self.shape, self.group)

    def fits(self, block: int) -> bool:
        """Whether onnxruntime makes such a filter where blocks are that long."""
        o, i = self.shape[:2]
        if o % block or (self.reads_blocks and i % block):
            return False
        if self.group > 1:
            return self.is_depthwise or not (o // self.group) % block
        return self.reads_blocks or i < block

    def plain(self, block: int, outputs: int, inputs: int) -> np.ndarray:
        """The filter (outputs, inputs, H, W) without what pads it."""
        held = self._opened(block).transpose(0, 5, 1, 4, 2, 3).reshape(self.shape)
        self.stored.release()
        return np.ascontiguousarray(held[:outputs, :inputs])

    def padding(self, block: int) -> tuple[int, int]:
        """How many of the last block's output and input channels have zeros for all their weights, counted from the end."""
        opened = self._opened(block)
        of_outputs = opened[-1].any(axis=(0, 1, 2, 3))
        of_inputs = opened[:, -1].any(axis=(0, 1, 2, 4))
        return _behind(of_outputs), _behind(of_inputs)

    def _opened(self, block: int) -> np.ndarray:
        array = self.stored.constant
        assert array is not None
        o, i, h, w = self.shape
        inner = block if self.reads_blocks else 1
        return array.reshape(o // block, i // inner, h, w, inner, block)


def is_depthwise(shape: Sequence[int], group: int) -> bool:
    """Whether a filter of that shape has one channel for each group."""
    return group > 1 and shape[1] == 1 and shape[0] == group


def _behind(used: Any) -> int:
    """How many False are behind the last True."""
    return int(np.argmax(used[::-1])) if used.any() else used.size


@record(frozen=True, slots=True)
class Evidence:
    """What a model's graphs show of the length of a block."""

    filters: list[Filter]
    aligned: list[tuple[str, int, int]]
    """Nodes that take so many channels out of so many padded ones."""
    lengths: list[tuple[str, int]]
    """Nodes that name the length."""


def block_length(found: Evidence, remarks: list[str]) -> int:
    """The length of the model's blocks. Where the shapes leave a choice, the one under which more channels turn out to be padding, and
    where that says nothing the one of this processor, as in onnxruntime, with a word of it among ``remarks``. InvalidGraph
    where no length fits, NotImplemented where nothing decides."""
    fitting = [block for block in BLOCKS if _fits(found, block)]
    if not fitting:
        raise InvalidGraph(
            f"The filters and channels of the model's {NCHWC} nodes fit neither blocks of 8 nor of 16 channels ({_culprit(found)})"
        )
    if len(fitting) == 1 or not any(_matters(each) for each in found.filters):
        return fitting[0]
    zeros = [sum(sum(each.padding(block)) for each in found.filters if _matters(each)) for block in fitting]
    if zeros[0] != zeros[1]:
        return fitting[int(zeros[1] > zeros[0])]
    own = own_block_length()
    if own is None:
        raise OrtNotImplemented(
            f"Whether the {NCHWC} nodes of the model have blocks of 8 or of 16 channels depends on the processor of the machine that "
            "saved it, and nothing in the model tells. Save it with a lower graph optimization level."
        )
    remarks.append(
        f"The {NCHWC} nodes of the model may have blocks of 8 or of 16 channels, depending on the machine that saved it: taken "
        f"to be {own}, as onnxruntime would here. A model for other machines is saved with a lower graph optimization level."
    )
    return own


def own_block_length() -> int | None:
    """The length of a block where onnxruntime runs on this processor; None where it has no blocked layout."""
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        return 16 if "AVX512F" in features() else 8
    return 16 if machine in ("aarch64", "arm64") else None


def _fits(found: Evidence, block: int) -> bool:
    return (
        all(each.fits(block) for each in found.filters)
        and all(padded == -(-channels // block) * block for _, channels, padded in found.aligned)
        and all(length == block for _, length in found.lengths)
    )


def _culprit(found: Evidence) -> str:
    """A node that fits no length, or all."""
    parts: Sequence[tuple[str, Evidence]] = [
        *((each.node, Evidence([each], [], [])) for each in found.filters),
        *((each[0], Evidence([], [each], [])) for each in found.aligned),
        *((each[0], Evidence([], [], [each])) for each in found.lengths),
    ]
    alone = [name for name, part in parts if not any(_fits(part, block) for block in BLOCKS)]
    return f"node '{alone[0]}'" if alone else "they contradict each other"


def _matters(each: Filter) -> bool:
    """Whether the filter is another one with blocks of another length."""
    o, i, h, w = each.shape
    return bool(h * w > 1 or i > 1) and o > min(BLOCKS)

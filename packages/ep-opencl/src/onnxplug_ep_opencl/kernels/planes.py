"""Images laid out before a convolution by tiles in registers, so that panels are copied run by run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxplug_ep_opencl.launch import Launch, Ref
from onnxplug_kernel_text.planes import Phases, planes

_ROW = (1, 1, 1, 1, 1, 0)
"""``factors.WINDOW`` of the dimension that images of one dimension lack."""

Dimension = tuple[int, ...]


def two_dimensions(numbers: Sequence[int]) -> tuple[Dimension, Dimension] | None:
    """``factors.WINDOW`` of rows and of columns; None for three dimensions and more."""
    if len(numbers) > 12:
        return None
    both = tuple(numbers) if len(numbers) == 12 else (*_ROW, *numbers)
    return both[:6], both[6:]


@dataclass(frozen=True)
class Layout:
    """The planes of images, and where the elements of a window lie in them. ``count`` images of ``of_window`` channels for each window."""

    rows: Dimension
    columns: Dimension
    count: int
    of_window: int

    @property
    def phases(self) -> tuple[Phases, Phases]:
        (_, _, w0, m0, g0, _), (_, _, w1, m1, g1, _) = self.rows, self.columns
        return Phases.of(w0, m0, g0), Phases.of(w1, m1, g1)

    @property
    def extents(self) -> tuple[int, int]:
        """Of a plane."""
        first, second = (o + (w - 1) * g // m for _, o, w, m, g, _ in (self.rows, self.columns))
        return first, second

    @property
    def image(self) -> int:
        """Elements of all planes of an image."""
        first, second = self.phases
        high, wide = self.extents
        return len(first.remainders) * len(second.remainders) * high * wide

    def table(self) -> np.ndarray:
        """Where the elements of a window lie, from its first image's start on."""
        (_, _, w0, _, g0, _), (_, _, w1, _, g1, _) = self.rows, self.columns
        first, second = self.phases
        high, wide = self.extents
        inner = np.empty((w0, w1), np.int32)
        for i in range(w0):
            for k in range(w1):
                (f, down), (g, along) = first.place(i, g0), second.place(k, g1)
                inner[i, k] = ((f * len(second.remainders) + g) * high + down) * wide + along
        return (np.arange(self.of_window, dtype=np.int32)[:, None] * self.image + inner.reshape(1, -1)).reshape(-1)

    def launch(self, name: str, type_: str, source: Ref, target: Ref, room: int) -> Launch:
        """The launch that lays images out, with ``room`` elements behind them."""
        (h0, _, _, _, _, p0), (h1, _, _, _, _, p1) = self.rows, self.columns
        text = planes(name, type_, *self.phases)
        scalars = [np.int64(n) for n in (self.count, h0, h1, p0, p1, *self.extents, room)]
        return Launch(text, name, [source, target], scalars, (self.count,), (1,))

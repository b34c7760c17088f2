"""What structures are drawn of: options, shapes, axes, windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

NEGATIVE_SINCE = 11
"""The operator set from which an axis may be counted from the end."""
SIZES = (3, 2, 1, 4, 5, 0)


class Draw:
    """hypothesis's ``draw``, for a version of an operator. First options are the plain ones."""

    def __init__(self, draw: Callable[[Any], Any], version: int) -> None:
        self._draw, self.from_the_end = draw, version >= NEGATIVE_SINCE

    def __call__(self, strategy: Any) -> Any:
        return self._draw(strategy)

    def pick(self, *options: Any) -> Any:
        """One of the options."""
        return options[self(st.integers(0, len(options) - 1))]

    def shape(self, least: int = 0, most: int = 4, sizes: tuple[int, ...] = SIZES) -> tuple[int, ...]:
        """A shape of ``least`` to ``most`` dimensions."""
        ranks = sorted(range(least, most + 1), key=lambda rank: abs(rank - 2))
        return tuple(self.pick(*sizes) for _ in range(self.pick(*ranks)))

    def beside(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to ``shape``."""
        return tuple(self.pick(size, 1) for size in shape[self.pick(*range(len(shape) + 1)) :])

    def axis(self, rank: int) -> int:
        """One axis."""
        return int(self(st.integers(-rank if self.from_the_end else 0, rank - 1)))

    def axes(self, rank: int) -> list[int]:
        """Some axes, at least one."""
        chosen = [axis for axis in range(rank) if self.pick(True, False)] or [0]
        return self.turned(chosen, rank)

    def turned(self, axes: list[int], rank: int) -> list[int]:
        """Some of the axes counted from the end."""
        return [axis - rank if self.from_the_end and self.pick(False, True) else axis for axis in axes]

    def window(self, space: tuple[int, ...]) -> dict[str, Any]:
        """Attributes of a window over axes of these sizes."""
        kernel = [self.pick(*range(1, min(3, size) + 1)) for size in space]
        pads = [self.pick(*range(size)) for size in (*kernel, *kernel)]
        return {"kernel_shape": kernel, "strides": [self.pick(1, 2, 3) for _ in space], "pads": pads}

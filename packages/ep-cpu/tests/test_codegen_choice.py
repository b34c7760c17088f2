"""Which algorithm a convolution is done by."""

from __future__ import annotations

from typing import Any

import pytest

from onnxplug_ep_cpu.codegen.kernels.filtering import Axis
from onnxplug_ep_cpu.codegen.lower.choice import Algorithm, Layer, candidates
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_kernels.windows import windows

TARGET = Target("avx2", "", "", 8, 16, 32 << 10, 512 << 10)


def layer(
    channels: int, outputs: int, sides: tuple[int, ...], kernel: tuple[int, ...], group: int = 1, **how: Any
) -> Layer:
    """A layer of one image, padded to keep its size but for the strides."""
    reach = [(k - 1) * d for k, d in zip(kernel, how.get("dilations", (1,) * len(kernel)), strict=True)]
    moves = windows(sides, kernel, pads=[*(r // 2 for r in reach), *(r - r // 2 for r in reach)], **how)
    return Layer((1, outputs, *moves.output), (outputs, channels // group, *kernel), moves, group)


def choose(of: Layer, winograd: bool = True) -> Algorithm:
    """The algorithm that is expected to be fastest."""
    times = candidates(TARGET, of, winograd)
    return min(times, key=lambda algorithm: times[algorithm])


def kind(of: Layer, winograd: bool = True) -> str:
    return choose(of, winograd).kind


def test_large_tiles_for_large_images() -> None:
    assert choose(layer(64, 64, (56, 56), (3, 3))) == Algorithm("winograd", (Axis(4, 3), Axis(4, 3)))
    assert choose(layer(512, 512, (7, 7), (3, 3))) == Algorithm("winograd", (Axis(2, 3), Axis(2, 3)))


@pytest.mark.parametrize(
    "of",
    (
        layer(128, 128, (17, 17), (1, 7)),
        layer(128, 128, (17, 17), (7, 1)),
        layer(384, 384, (8, 8), (1, 3)),
        layer(96, 256, (27, 27), (5, 5), 2),
        layer(256, 256, (33, 33), (3, 3), dilations=(6, 6)),
        layer(256, 256, (28, 28), (3, 3), strides=(2, 2)),
        layer(256, 256, (100,), (3,)),
    ),
)
def test_filtering_pays(of: Layer) -> None:
    assert kind(of) == "winograd"
    assert kind(of, winograd=False) != "winograd"


@pytest.mark.parametrize(
    "of",
    (
        layer(64, 256, (56, 56), (1, 1)),
        layer(3, 64, (224, 224), (3, 3)),
        layer(3, 64, (224, 224), (7, 7), strides=(2, 2)),
        layer(64, 64, (14, 14), (7, 7)),
        layer(16, 16, (8, 8, 8), (3, 3, 3)),
        layer(64, 64, (0, 8), (1, 1)),
    ),
)
def test_products_of_gathered_rows(of: Layer) -> None:
    assert kind(of) == "direct"


def test_narrow_groups_slide() -> None:
    for channels in (2, 4):
        assert kind(layer(128, 128, (56, 56), (3, 3), 128 // channels)) == "sliding"
    spreads = [
        a.spread for a in candidates(TARGET, layer(128, 128, (56, 56), (3, 3), 32), False) if a.kind == "sliding"
    ]
    assert spreads == [4]
    assert "sliding" not in {a.kind for a in candidates(TARGET, layer(120, 120, (9, 9), (3, 3), 10), True)}


def test_strided_filters_of_narrow_groups_are_products() -> None:
    assert kind(layer(256, 256, (28, 28), (3, 3), 8)) == "winograd"
    for channels, side, group in ((256, 28, 8), (144, 56, 9), (64, 112, 4)):
        assert kind(layer(channels, channels, (side, side), (3, 3), group, strides=(2, 2))) == "direct"


@pytest.mark.parametrize(
    ("sides", "kernel"), (((20, 20), (7, 7)), ((200,), (31,)), ((20, 20), (9, 9)), ((40, 40), (31, 5)))
)
def test_depthwise(sides: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    assert kind(layer(64, 64, sides, kernel, 64)) == "depthwise"

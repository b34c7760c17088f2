"""Where windows of convolutions and pools lie, as arguments of kernels."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug_kernel_text.nodes.call import NodeCall


def window_numbers(call: NodeCall, x: Sequence[int], out: Sequence[int], window: Sequence[int]) -> list[int]:
    """The arguments ``factors.WINDOW`` of a convolution or pooling, from the spatial sizes of its input, output and window."""
    strides, gaps = steps(call, len(x))
    return interleaved(x, out, window, strides, gaps, padding_before(call, x, out, window))


def interleaved(*lists: Sequence[int]) -> list[int]:
    """The entries of all lists for the first dimension, then for the second, and so on."""
    return [int(n) for of_dimension in zip(*lists, strict=True) for n in of_dimension]


def steps(call: NodeCall, rank: int) -> tuple[list[int], list[int]]:
    """Strides and dilations."""
    return call.attributes.get("strides") or [1] * rank, call.attributes.get("dilations") or [1] * rank


def as_they_lie(numbers: Sequence[int]) -> bool:
    """Whether windows, given as ``factors.WINDOW``, are the elements of the image one by one, in their order."""
    each = zip(*(numbers[place::6] for place in range(6)), strict=True)
    return all(h == o and w == 1 and (m == 1 or o == 1) and p == 0 for h, o, w, m, _, p in each)


def padding_before(call: NodeCall, x: Sequence[int], out: Sequence[int], window: Sequence[int]) -> list[int]:
    """Padding before the input."""
    auto = call.attributes.get("auto_pad", "NOTSET")
    if auto == "NOTSET":
        return list(call.attributes.get("pads") or [0] * len(x))[: len(x)]
    if auto == "VALID":
        return [0] * len(x)
    return [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in _missing(call, x, out, window)]


def padding_after(call: NodeCall, x: Sequence[int], out: Sequence[int], window: Sequence[int]) -> list[int]:
    """Padding behind the input."""
    auto = call.attributes.get("auto_pad", "NOTSET")
    if auto == "NOTSET":
        return list(call.attributes.get("pads") or [0] * (2 * len(x)))[len(x) :]
    if auto == "VALID":
        return [0] * len(x)
    before = padding_before(call, x, out, window)
    return [t - b for t, b in zip(_missing(call, x, out, window), before, strict=True)]


def _missing(call: NodeCall, x: Sequence[int], out: Sequence[int], window: Sequence[int]) -> list[int]:
    """By how much the windows of the output exceed the input."""
    strides, gaps = steps(call, len(x))
    return [
        max((o - 1) * m + (w - 1) * g + 1 - h, 0) for h, o, w, m, g in zip(x, out, window, strides, gaps, strict=True)
    ]

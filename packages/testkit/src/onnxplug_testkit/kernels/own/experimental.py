"""The kit's own structures of experimental operators that ONNX withdrew, for which it has no data."""

from __future__ import annotations

from collections.abc import Iterator

from onnxplug_testkit.kernels.own.node import F, N, OwnNode, ints, node, real


def experimental_nodes() -> Iterator[OwnNode]:
    """All of them."""
    x, image = real(3, 4), real(2, 3, 6, 7)
    for op_type in ("Affine", "ParametricSoftplus", "ScaledTanh"):
        yield node(op_type, 1, [x], [F], alpha=0.75, beta=1.25)
    yield node("Scale", 1, [x], [F], scale=0.5)
    yield node("ImageScaler", 1, [image], [F], scale=0.5, bias=[1.0, -2.0, 0.5])
    yield node("Crop", 1, [image], [F], border=[1, 2, 3, 0])
    limits = [(ints(1, -3), N), (ints(99, -1), N), (ints(3, 2), N)]
    yield node("DynamicSlice", 1, [image, *limits], [F])

"""What MatMulNBits may be: its numbers, and the shapes of weights that lie in the model, which onnxruntime packs before any run."""

from __future__ import annotations

from onnxplug.contract.types import TensorType
from onnxplug.graph.ir import Node
from onnxplug.graph.value import Value

_LEAST = 16
"""Blocks are as long or several times that; onnxruntime has the powers of two up to 256."""


def refusal(node: Node) -> str | None:
    """Why a MatMulNBits node means nothing; None where it does."""
    given = node.attributes
    bits, block, n, k = given.get("bits", 4), given["block_size"], given["N"], given["K"]
    if bits not in (2, 4, 8):
        return f"bits is {bits}, it must be 2, 4 or 8"
    if block < _LEAST or block % _LEAST:
        return f"block_size is {block}, it must be a positive multiple of {_LEAST}"
    weights, scales, points, *_ = (*node.inputs[1:], None)
    blocks = -(-k // block)
    packed = points is not None and isinstance(points.type, TensorType) and points.type.element == "uint8"
    beside = -(-blocks * bits // 8) if packed else blocks
    return (
        _other("B", weights, [n, blocks, block * bits // 8])
        or _other("scales", scales, [n * blocks], [n, blocks])
        or _other("zero_points", points, [n * beside], [n, beside])
    )


def _other(name: str, value: Value | None, *due: list[int]) -> str | None:
    """What to say of a constant operand whose shape is none of ``due``."""
    if value is None or not value.is_constant or not isinstance(value.type, TensorType) or value.type.shape is None:
        return None
    shape = list(value.type.shape)
    wanted = " or ".join(str(each).replace(" ", "") for each in due)
    braced = "{" + ",".join(map(str, shape)) + "}"
    return (
        None if shape in due else f"{name} initializer shape {braced} does not match attribute-derived shape {wanted}"
    )

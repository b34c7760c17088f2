"""Results of products as pending values: which operands the kernels' ends read, and how."""

from __future__ import annotations

from collections.abc import Callable

from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.fitting import fitting
from onnxplug_ep_cpu.codegen.lower.pending import Anchor, DoubleAnchor, Pending
from onnxplug_ep_cpu.codegen.lower.products import Matrix
from onnxplug_ep_cpu.codegen.lower.taps import even_pixels
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor


def column_kind(
    shape: Ints, channel: int, element: str = "float32", rows: bool = False
) -> Callable[[Tensor], str | None]:
    """How a product with result ``shape``, its columns along dimension ``channel``, reads an operand: "column", "full", "scalar" or not
    at all (None); with ``rows`` also "row", one number for each row of a matrix. Operands are of type ``element`` and broadcast to the
    result."""

    def kind(leaf: Tensor) -> str | None:
        if leaf.element != element or len(leaf.shape) > len(shape):
            return None
        if leaf.size == 1:
            return "scalar"
        view = leaf.broadcast(shape)
        moving = [d for d, n in enumerate(shape) if n != 1 and view.strides[d] != 0]
        if moving == [channel] and view.strides[channel] == 1:
            return "column"
        if rows and moving == [channel - 1]:
            return "row"
        if len(moving) == sum(n != 1 for n in shape) and (view.strides[channel] == 1 or shape[channel] == 1):
            return "full"
        return None

    return kind


def pending_product(
    b: Lowering,
    shape: Ints,
    channel: int,
    order: Ints,
    emit: Callable[[ex.Expr, list[tuple[str, Tensor]], Tensor], None],
    fits: Callable[[Tensor], bool] = lambda tensor: True,
    element: str = "float32",
    rows: bool = False,
) -> Pending:
    """The result of a product as a pending value; ``emit`` gets the expression, its operands with their kinds, and the
    target. ``fits``: whether it can write to a tensor of ``shape``, or read it, where that lies; rows may be unevenly spaced in a part
    of a concatenation, or of something that is sliced. ``rows``: see ``column_kind``."""
    kind_of = column_kind(shape, channel, element, rows)

    def anchor(expr: ex.Expr, leaves: list[Tensor], target: Tensor) -> None:
        with fitting(b, target, order, fits) as written:
            emit(expr, [(kind_of(leaf) or "", leaf) for leaf in leaves], written)

    made = DoubleAnchor(anchor) if element == "float64" else anchor
    return anchored(shape, channel, order, made, fits, element, rows)


def anchored(
    shape: Ints,
    channel: int,
    order: Ints,
    anchor: Anchor,
    fits: Callable[[Tensor], bool] = lambda tensor: True,
    element: str = "float32",
    rows: bool = False,
) -> Pending:
    """As ``pending_product``, where ``anchor`` sees to tensors that do not fit."""
    kind_of = column_kind(shape, channel, element, rows)

    def takes(leaf: Tensor) -> bool:
        kind = kind_of(leaf)
        if kind != "full":
            return kind is not None
        view = leaf.broadcast(shape)
        return fits(view) and all(
            n == 1 or m == 1 or (view.strides[i] > view.strides[j]) == (order.index(i) < order.index(j))
            for i, n in enumerate(shape) for j, m in enumerate(shape) if i != j
        )  # fmt: skip

    return Pending(shape, ex.IDENTITY, [None], anchor, takes, order, element)


def as_pixels(tensor: Tensor, per_group: int) -> Matrix:
    """A channels-last tensor whose pixels are evenly spaced, as a matrix of pixels by channels, batched over images and groups."""
    pixel = even_pixels(tensor)
    assert pixel is not None, "pixels of a result are evenly spaced"
    return Matrix(tensor.ref, pixel, (tensor.strides[0], per_group))


def pixel_operand(kind: str, leaf: Tensor, shape: Ints, per_group: int) -> Matrix:
    """An operand of the end of a convolution with result ``shape``, read as ``kind`` says (see ``column_kind``)."""
    if kind == "full":
        return as_pixels(leaf.broadcast(shape), per_group)
    return Matrix(leaf.ref, 0, (0, per_group if kind == "column" else 0))

"""Einsum of two operands as a batched matrix product of their dimensions in another order; of one, that order alone."""

from __future__ import annotations

import math

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.lower.context import Lowering, Unsupported
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.matmul import product_of_tensors
from onnxplug_ep_cpu.codegen.lower.support import floats, rank
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor
from onnxplug_kernels.einsum import Term, parse


def _terms(node: NodeView) -> tuple[list[Term], Term]:
    return parse(node.attributes["equation"], [rank(value) for value in node.inputs])


def _supports(node: NodeView) -> str | None:
    if (reason := floats(node)) is not None:
        return reason
    if len(node.inputs) > 2:
        return "only sums over two operands are generated"
    try:
        terms, output = _terms(node)
    except ValueError as error:
        return str(error)
    if any(len(set(term)) < len(term) for term in (*terms, output)):
        return "diagonals are not generated"
    if any(set(term).difference(output, *(other for other in terms if other is not term)) for term in terms):
        return "sums over a dimension of one operand are not generated"
    return None


@lowering("Einsum", supports=_supports)
def einsum(b: Lowering, node: NodeView) -> None:
    """Dimensions of both operands and the output are batches, those of both operands alone are summed over."""
    x, (y,) = node.inputs[0], node.outputs
    assert x is not None and y is not None
    (left, *others), output = _terms(node)
    first = b.read(x)
    if not others:
        b.define(y, first.transposed([left.index(label) for label in output]))
        return
    w, (right,) = node.inputs[1], others
    assert w is not None
    second = b.read(w)
    sizes = dict(zip(left, first.shape, strict=True))
    if any(sizes.setdefault(label, n) != n for label, n in zip(right, second.shape, strict=True)):
        raise Unsupported("dimensions of one name differ")
    if 0 in sizes.values():
        raise Unsupported("an operand is empty")
    batch = [label for label in output if label in left and label in right]
    rows, columns = ([label for label in output if label not in other] for other in (right, left))
    summed = [label for label in left if label not in output]
    lead = tuple(sizes[label] for label in batch)
    m, n, k = (math.prod(sizes[label] for label in labels) for labels in (rows, columns, summed))
    a = _ordered(b, first, [left.index(label) for label in (*batch, *rows, *summed)], (*lead, m, k))
    c = _ordered(b, second, [right.index(label) for label in (*batch, *summed, *columns)], (*lead, k, n))
    made = [*batch, *rows, *columns]
    product = b.write(product_of_tensors(b, (*lead, m, n), a, c)).reshaped(tuple(sizes[label] for label in made))
    assert product is not None, "what is written has no gaps"
    b.define(y, product.transposed([made.index(label) for label in output]))


def _ordered(b: Lowering, tensor: Tensor, order: list[int], shape: Ints) -> Tensor:
    """The tensor with its dimensions in another order, and merged: a view, or a copy where there is none."""
    turned = tensor.transposed(order)
    view = turned.reshaped(shape)
    if view is None:
        view = b.copied(turned, range(len(order))).reshaped(shape)
    assert view is not None
    return view

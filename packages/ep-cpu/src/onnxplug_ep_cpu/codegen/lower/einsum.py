"""Einsum, two operands at a time: as a batched matrix product, a reduction, or a product element by element."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from onnxplug.contract import NodeView, ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.matrices import product_of_tensors
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.reduce import reduced
from onnxplug_ep_cpu.codegen.lower.support import NUMBERS, floats, of, rank
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Tensor
from onnxplug_kernels.einsum import Label, Term, parse

_PRODUCT: ex.Expr = (("leaf", 0), ("leaf", 1), ("mul", 0, 1))


@record(frozen=True, slots=True)
class Part:
    """A tensor and the labels of its dimensions, all different."""

    tensor: Tensor
    labels: list[Label]

    @property
    def sizes(self) -> dict[Label, int]:
        return dict(zip(self.labels, self.tensor.shape, strict=True))

    def ordered(self, labels: Sequence[Label]) -> Tensor:
        """A view with a dimension for each of these labels, of size 1 where it has none such."""
        at = [self.labels.index(label) if label in self.labels else -1 for label in labels]
        shape, strides = (*self.tensor.shape, 1), (*self.tensor.strides, 0)
        return self.tensor.viewed(tuple(shape[i] for i in at), tuple(strides[i] for i in at))


def _terms(node: NodeView) -> tuple[list[Term], Term]:
    return parse(node.attributes["equation"], [rank(value) for value in node.inputs])


def _supports(node: NodeView) -> str | None:
    if (reason := of(NUMBERS)(node)) is not None:
        return reason
    try:
        terms, output = _terms(node)
    except ValueError as error:
        return str(error)
    if len(set(output)) < len(output):
        return "a diagonal of the result is not generated"
    return floats(node) if any(not {*term} <= {*output} for term in terms) else None  # sums are those of float32


@lowering("Einsum", supports=_supports)
def einsum(b: Lowering, node: NodeView) -> None:
    """Operands are joined from left to right; a dimension that neither the output nor a later operand has is summed over."""
    terms, output = _terms(node)
    (y,) = node.outputs
    assert y is not None
    parts = [_part(b.read(value), term) for value, term in zip(node.inputs, terms, strict=True) if value is not None]
    sizes: dict[Label, int] = {}
    for part in parts:
        if any(sizes.setdefault(label, n) != n for label, n in part.sizes.items()):
            raise Unsupported("dimensions of one name differ")
    if 0 in sizes.values():
        raise Unsupported("an operand is empty")
    held, *others = parts
    for at, other in enumerate(others[:-1]):
        later = {label for part in others[at + 1 :] for label in part.labels}.union(output)
        wanted = [label for label in dict.fromkeys((*held.labels, *other.labels)) if label in later]
        made = _joined(b, held, other, wanted, None)
        held = Part(b.write(made) if isinstance(made, Pending) else made, wanted)
    if not others:
        b.define(y, _summed(b, held, output).ordered(output))
        return
    result = _joined(b, held, others[-1], list(output), y)
    if isinstance(result, Pending):
        b.pend(y, result)
    else:
        b.define(y, result)


def _part(tensor: Tensor, term: Term) -> Part:
    """An operand; dimensions of one label are its diagonal."""
    labels = list(dict.fromkeys(term))
    places = [[at for at, label in enumerate(term) if label == wanted] for wanted in labels]
    if any(tensor.shape[at] != tensor.shape[first] for first, *others in places for at in others):
        raise Unsupported("dimensions of one name differ")
    shape = tuple(tensor.shape[same[0]] for same in places)
    return Part(tensor.viewed(shape, tuple(sum(tensor.strides[at] for at in same) for same in places)), labels)


def _summed(b: Lowering, part: Part, kept: Collection[Label]) -> Part:
    """The sum over the dimensions of other labels."""
    axes = [at for at, label in enumerate(part.labels) if label not in kept]
    if not axes:
        return part
    total = reduced(b, "add", ex.IDENTITY, [part.tensor], part.tensor.shape, axes, "float32")
    return Part(Part(total, part.labels).ordered(left := [n for n in part.labels if n in kept]), left)


def _joined(b: Lowering, left: Part, right: Part, output: list[Label], y: ValueView | None) -> Tensor | Pending:
    """The product of two, summed over what is not in ``output``, the order of the result; ``y`` is what it may be written to."""
    left, right = _summed(b, left, {*output, *right.labels}), _summed(b, right, {*output, *left.labels})
    sizes = {**left.sizes, **right.sizes}
    shape = tuple(sizes[label] for label in output)
    summed = [label for label in left.labels if label in right.labels and label not in output]
    rows, columns = ([n for n in output if n not in part.labels] for part in (right, left))
    m, n, k = (math.prod(sizes[label] for label in labels) for labels in (rows, columns, summed))
    if k == 1:
        return Pending(shape, _PRODUCT, [left.ordered(output), right.ordered(output)], element=left.tensor.element)
    if m == 1 or n == 1:
        leaves = [part.ordered([*output, *summed]) for part in (left, right)]
        whole = (*shape, *(sizes[label] for label in summed))
        total = reduced(b, "add", _PRODUCT, leaves, whole, range(len(shape), len(whole)), "float32")
        return total.viewed(shape, total.strides[: len(shape)])
    batch = [label for label in output if label in left.labels and label in right.labels]
    lead = tuple(sizes[label] for label in batch)
    a = b.reshaped(left.ordered([*batch, *rows, *summed]), (*lead, m, k))
    c = b.reshaped(right.ordered([*batch, *summed, *columns]), (*lead, k, n))
    made = [*batch, *rows, *columns]
    product = product_of_tensors(b, (*lead, m, n), a, c)
    place = b.output(y) if y is not None and made == output else b.scratch(tuple(sizes[label] for label in made))
    flat = place.reshaped(product.shape)
    if flat is None:  # a part of a concatenation
        apart = b.write(product).reshaped(place.shape)
        assert apart is not None, "what is written has no gaps"
        copy(b.program, b.target, apart, place)
    else:
        b.write_to(product, flat)
    return Part(place, made).ordered(output)

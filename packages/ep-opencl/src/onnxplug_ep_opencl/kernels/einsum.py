"""Einsum of one operand, which moves elements, and of two, which is a batch of products."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxplug.contract import NodeView
from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.elementwise import copy, launch
from onnxplug_ep_opencl.kernels.product import Product, Side, joined, multiply
from onnxplug_ep_opencl.kernels.tiles import Work, usual
from onnxplug_ep_opencl.launch import Job, Launch, Ref
from onnxplug_ep_opencl.memory import ALIGNMENT
from onnxplug_kernel_text.layout import dense, space
from onnxplug_kernels.einsum import Label, Term, parse
from onnxplug_kernels.refusals import Refusal

Labels = Sequence[Label]


def beyond_products(node: NodeView) -> str | None:
    """Equations of more operands, and those that sum an operand up before it meets the other."""
    if len(node.inputs) > 2:
        return f"{len(node.inputs)} operands"
    if any(value is None or value.shape is None for value in node.inputs):
        return "the ranks of the operands must be known"
    terms, out = parse(
        node.attributes["equation"], [len(value.shape or ()) for value in node.inputs if value is not None]
    )
    alone = [
        label for n, term in enumerate(terms) for label in term if label not in out and label not in _other(terms, n)
    ]
    return f"{alone[0]} of one operand is summed up" if alone else None


def einsum(call: Call) -> Job:
    """Einsum."""
    shapes = [call.input(n).shape for n in range(len(call.inputs))]
    terms, out = parse(call.attributes["equation"], [len(shape) for shape in shapes])
    sizes: dict[Label, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, size in zip(term, shape, strict=True):
            known = sizes.get(label, 1)
            if 1 not in (known, size) and known != size:
                raise Refusal(f"{label} is {known} and {size} in {shapes}")
            sizes[label] = max(known, size) if size and known else 0
    whole, walks = [sizes[label] for label in out], [_strides(t, s, sizes) for t, s in zip(terms, shapes, strict=True)]
    summed = [label for label in terms[0] if label not in out]
    if not summed:
        type_ = text_type(call.output().dtype)
        operands = [(call.read(n), type_) for n in range(len(shapes))]
        walked = space(whole, [*(tuple(walk.get(label, 0) for label in out) for walk in walks), dense(whole)])
        body = "y0 = x0;" if len(shapes) == 1 else "y0 = x0 * x1;"
        return Job(launch(call.target, call.op_type, operands, [(call.write(), type_)], walked, body))
    return _Contraction(call, sizes, terms, out, walks).job(list(dict.fromkeys(summed)))


class _Contraction:
    """Two operands that are multiplied and summed up. Those whose labels do not make rows and columns are laid out anew."""

    def __init__(
        self, call: Call, sizes: dict[Label, int], terms: Sequence[Term], out: Term, walks: Sequence[dict[Label, int]]
    ) -> None:
        self.call, self.sizes, self.terms, self.out, self.walks = call, sizes, terms, out, walks
        self.type, self.used = text_type(call.output().dtype), 0
        self.before: list[Launch] = []

    def job(self, summed: Labels) -> Job:
        call, out = self.call, self.out
        batch = [label for label in out if label in self.terms[0] and label in self.terms[1]]
        rows, columns = ([label for label in out if label in term and label not in batch] for term in self.terms)
        left = self._factor(0, batch, rows, summed)
        right = self._factor(1, batch, summed, columns)
        whole = [*batch, *rows, *columns]
        own = dict(zip(out, dense(self._shape(out)), strict=True))
        made = self._side(call.write(), own, batch, rows, columns)
        target = made or self._dense(self._room(whole), batch, rows, columns)
        high, wide, deep = (math.prod(self._shape(labels)) for labels in (rows, columns, summed))
        work = Work(self.type, "as it is", "as it is", math.prod(self._shape(batch)), high, wide, deep)
        product = Product(left, right, target, tuple(self._shape(batch)), high, wide, deep, usual(call.target, work))
        first = -(-self.used // ALIGNMENT) * ALIGNMENT
        job = multiply(call.target, call.op_type, product, call.scratch(1, first))
        after: list[Launch] = []
        if made is None:
            places = dict(zip(whole, dense(self._shape(whole)), strict=True))
            walk = tuple(places[label] for label in out)
            shape = self._shape(out)
            after = copy(call.target, "ordered", target.ref, call.write(), shape, (walk, dense(shape)))
        return Job([*self.before, *job.launches, *after], first + job.workspace)

    def _factor(self, number: int, batch: Labels, first: Labels, second: Labels) -> Side:
        """An operand as (batch, first, second), laid out anew where it does not lie so."""
        walk = self.walks[number]
        lies = self._side(self.call.read(number), walk, batch, first, second)
        if lies is not None:
            return lies
        whole = [*batch, *first, *second]
        made = self._dense(self._room(whole), batch, first, second)
        shape = self._shape(whole)
        strides = tuple(walk[label] for label in whole)
        self.before += copy(
            self.call.target, f"laid{number}_", self.call.read(number), made.ref, shape, (strides, dense(shape))
        )
        return made

    def _side(self, ref: Ref, walk: dict[Label, int], batch: Labels, first: Labels, second: Labels) -> Side | None:
        """A tensor whose labels have these strides; None where rows or columns are not walked by one."""
        row, column = (
            joined(self._shape(labels), tuple(walk[label] for label in labels)) for labels in (first, second)
        )
        if row is None or column is None:
            return None
        return Side(ref, self.type, tuple(walk[label] for label in batch), row, column)

    def _dense(self, ref: Ref, batch: Labels, first: Labels, second: Labels) -> Side:
        whole = [*batch, *first, *second]
        made = self._side(ref, dict(zip(whole, dense(self._shape(whole)), strict=True)), batch, first, second)
        assert made is not None
        return made

    def _room(self, labels: Labels) -> Ref:
        """Scratch memory for so many elements."""
        size = self.call.output().dtype.itemsize
        first = -(-self.used // ALIGNMENT) * ALIGNMENT
        self.used = first + size * math.prod(self._shape(labels))
        return self.call.scratch(size, first // size)

    def _shape(self, labels: Labels) -> list[int]:
        return [self.sizes[label] for label in labels]


def _strides(term: Term, shape: Sequence[int], sizes: dict[Label, int]) -> dict[Label, int]:
    """Strides by label: a label that is there twice walks the diagonal, an extent of 1 is stretched."""
    found: dict[Label, int] = {}
    for label, extent, stride in zip(term, shape, dense(shape), strict=True):
        found[label] = found.get(label, 0) + (stride if extent == sizes[label] else 0)
    return found


def _other(terms: Sequence[Term], number: int) -> Term:
    return [label for n, term in enumerate(terms) if n != number for label in term]

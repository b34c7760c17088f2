"""Einstein summation from permutations and matrix products, so that it needs nothing beyond the Array API standard."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

Label = str | int
Term = list[Label]


def einsum(xp: Any, equation: str, operands: Sequence[Any]) -> Any:
    """The sum of products that an equation such as ``"bij,bjk->bik"`` states, contracted from left to right."""
    terms, output = parse(equation, [x.ndim for x in operands])
    reduced = []
    for index, (x, term) in enumerate(zip(operands, terms, strict=True)):
        wanted = set(output).union(*(terms[:index] + terms[index + 1 :]))
        reduced.append(_reduce(xp, *_diagonals(xp, x, term), wanted))
    result, labels = reduced[0]
    for index in range(1, len(reduced)):
        wanted = set(output).union(*(term for _, term in reduced[index + 1 :]))
        result, labels = _contract(xp, result, labels, *reduced[index], wanted)
    result = xp.permute_dims(result, tuple(labels.index(label) for label in output))
    return xp.asarray(result, copy=True) if len(operands) == 1 else result


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[Term], Term]:
    """The labels of each operand and of the output; axes under an ellipsis are numbered from the right."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(ranks):
        raise ValueError(f"Einsum equation {equation!r} has {len(texts)} terms for {len(ranks)} inputs")
    terms = [_labels(text, rank - len(text.replace("...", ""))) for text, rank in zip(texts, ranks, strict=True)]
    for text, term, rank in zip(texts, terms, ranks, strict=True):
        if len(term) != rank:
            raise ValueError(f"Einsum term {text!r} of {equation!r} does not fit an input of rank {rank}")
    hidden = max((label for term in terms for label in term if isinstance(label, int)), default=0)
    if arrow:
        return terms, _labels(right, hidden)
    counts = Counter(left.replace(",", "").replace(".", ""))
    once = sorted(label for label, count in counts.items() if count == 1)
    return terms, [*range(hidden, 0, -1), *once]


def _labels(text: str, hidden: int) -> Term:
    before, ellipsis, after = text.partition("...")
    return [*before, *(range(hidden, 0, -1) if ellipsis else ()), *after]


def _diagonals(xp: Any, x: Any, term: Term) -> tuple[Any, Term]:
    for label in [label for label, count in Counter(term).items() for _ in range(count - 1)]:
        first = term.index(label)
        second = term.index(label, first + 1)
        if x.shape[first] != x.shape[second]:
            sizes = f"{x.shape[first]} and {x.shape[second]}"
            raise ValueError(f"Einsum label {label!r} stands for dimensions of {sizes} of one input")
        rest = [axis for axis in range(x.ndim) if axis not in (first, second)]
        x = xp.linalg.diagonal(xp.permute_dims(x, (*rest, first, second)))
        term = [*(term[axis] for axis in rest), label]
    return x, term


def _reduce(xp: Any, x: Any, term: Term, wanted: Collection[Label]) -> tuple[Any, Term]:
    axes = tuple(axis for axis, label in enumerate(term) if label not in wanted)
    if axes:
        x = xp.asarray(xp.sum(x, axis=axes, dtype=x.dtype))
    return x, [label for label in term if label in wanted]


def _contract(xp: Any, a: Any, a_term: Term, b: Any, b_term: Term, wanted: Collection[Label]) -> tuple[Any, Term]:
    """The product of two operands, summed over the labels that are not wanted any more."""
    shared = [label for label in a_term if label in b_term]
    a, b = _matched(xp, a, a_term, b, b_term, shared), _matched(xp, b, b_term, a, a_term, shared)
    batch = [label for label in shared if label in wanted]
    summed = [label for label in shared if label not in wanted]
    a_free = [label for label in a_term if label not in shared]
    b_free = [label for label in b_term if label not in shared]
    a = xp.permute_dims(a, tuple(map(a_term.index, batch + a_free + summed)))
    b = xp.permute_dims(b, tuple(map(b_term.index, batch + summed + b_free)))
    outer, rows = a.shape[: len(batch)], a.shape[len(batch) : len(batch) + len(a_free)]
    columns = b.shape[len(batch) + len(summed) :]
    inner = math.prod(b.shape[len(batch) : len(batch) + len(summed)])
    left = xp.reshape(a, (*outer, math.prod(rows), inner))
    right = xp.reshape(b, (*outer, inner, math.prod(columns)))
    product = xp.matmul(left, right) if summed else left * right
    return xp.reshape(product, (*outer, *rows, *columns)), batch + a_free + b_free


def _matched(xp: Any, x: Any, term: Term, other: Any, other_term: Term, shared: Sequence[Label]) -> Any:
    """``x`` with axes of size 1 stretched where the other operand has more under the same label."""
    sizes = {label: other.shape[other_term.index(label)] for label in shared}
    shape = tuple(sizes.get(label, size) if size == 1 else size for label, size in zip(term, x.shape, strict=True))
    return x if shape == tuple(x.shape) else xp.broadcast_to(x, shape)

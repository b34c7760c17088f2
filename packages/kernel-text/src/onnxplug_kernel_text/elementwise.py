"""Kernels that compute each element of their outputs from one element of each input: arithmetic, and every movement of elements along
strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxplug_kernel_text.types import arithmetic


@dataclass(frozen=True)
class Operand:
    """A tensor of an element-wise kernel: its element type, and for each dimension of the iteration space its stride in elements, None
    where the stride is an argument of the kernel."""

    type: str
    strides: tuple[int | None, ...]


def elementwise(
    name: str,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    body: str,
    *,
    index: str = "i32",
    rows: bool = False,
    span: int = 0,
    held: Sequence[str] | None = None,
) -> str:
    """A kernel that runs ``body`` once for each point of an iteration space.

    ``body`` reads ``x0``, ``x1``, ... and assigns ``y0``, ``y1``, ..., of the operands' arithmetic types (of ``held`` for the outputs,
    where given); it may declare more. The space has as many dimensions as the operands have strides. ``index`` is the type of offsets:
    i64 where a tensor has 2**31 elements or more.

    Arguments after the tensors, all of type ``index``: the number of points; the extents of all dimensions but the first; then, operand
    after operand, the strides that are None. One work-item a point in dimension 0; with ``rows``, dimension 0 runs over the last
    dimension of the space and dimension 1 over the rest. With ``span``, too, but a work-item does that many points of the last dimension
    in a loop, which compilers for processors turn into vectors; of lines shorter than that, ``lines_of`` are done by one work-item.
    Work-items beyond the space do nothing."""
    operands = [(f"in{n}", o) for n, o in enumerate(inputs)] + [(f"out{n}", o) for n, o in enumerate(outputs)]
    rank = len(outputs[0].strides)
    tensors = [f"TENSOR({o.type}, {tensor})" for tensor, o in operands]
    extents = [f"const {index} d{k}" for k in range(1, rank)]
    strides = [
        f"const {index} {tensor}_s{k}" for tensor, o in operands for k, stride in enumerate(o.strides) if stride is None
    ]
    lines = [f"KERNEL void {name}({', '.join([*tensors, f'const {index} points', *extents, *strides])}) {{"]
    lines += [f"  OPEN({o.type}, {tensor})" for tensor, o in operands]
    lines += _spans(rank, index, span) if span else _coordinates(rank, index, rows)
    lines += [
        f"  {arithmetic(o.type)} x{n} = LOAD_{o.type}(in{n}, {_offset(f'in{n}', o)});" for n, o in enumerate(inputs)
    ]
    types = held or [arithmetic(o.type) for o in outputs]
    lines += [f"  {type_} y{n};" for n, type_ in enumerate(types)]
    lines.append(f"  {body}")
    lines += [f"  STORE_{o.type}(out{n}, {_offset(f'out{n}', o)}, y{n});" for n, o in enumerate(outputs)]
    return "\n".join([*lines, "  } }" if span else "", "}\n"])


def lines_of(extent: int, span: int) -> int:
    """Lines of ``extent`` points that a work-item does."""
    return max(1, span // extent)


def _spans(rank: int, index: str, span: int) -> list[str]:
    """Coordinates, of which the last is a loop's."""
    wide, last = "64" if index == "i64" else "", rank - 1
    end = f"d{last}" if last else "points"
    each = f"({end} < {span} ? {span} / {end} : 1)"
    lines = [
        f"  const {index} lines_ = points / {end}, at_ = GLOBAL_ID{wide}(1) * {each};",
        f"  const {index} past_ = at_ + {each} < lines_ ? at_ + {each} : lines_;",
        f"  const {index} from_ = GLOBAL_ID{wide}(0) * {span}, to_ = {end} - from_ < {span} ? {end} : from_ + {span};",
        f"  for ({index} line_ = at_; line_ < past_; line_++) {{",
        f"  {index} rest = line_;",
    ]
    lines += [f"  const {index} c{k} = rest % d{k}; rest /= d{k};" for k in range(last - 1, 0, -1)]
    lines += [f"  const {index} c0 = rest;"] if last else []
    return [*lines, f"  for ({index} c{last} = from_; c{last} < to_; c{last}++) {{"]


def _coordinates(rank: int, index: str, rows: bool) -> list[str]:
    wide = "64" if index == "i64" else ""
    last = rank - 1
    lines = []
    if rows:
        lines.append(f"  const {index} c{last} = GLOBAL_ID{wide}(0);")
        lines.append(f"  if (c{last} >= d{last}) return;")
        lines.append(f"  {index} rest = GLOBAL_ID{wide}(1);")
        left = last - 1
    else:
        lines.append(f"  {index} rest = GLOBAL_ID{wide}(0);")
        lines.append("  if (rest >= points) return;")
        left = last
    for k in range(left, 0, -1):
        lines.append(f"  const {index} c{k} = rest % d{k}; rest /= d{k};")
    if left >= 0:
        lines.append(f"  const {index} c0 = rest;")
    return lines


def _offset(tensor: str, operand: Operand) -> str:
    terms = []
    for k, stride in enumerate(operand.strides):
        if stride is None:
            terms.append(f"c{k} * {tensor}_s{k}")
        elif stride:
            terms.append(f"c{k}" if stride == 1 else f"c{k} * {stride}")
    return " + ".join(terms) or "0"

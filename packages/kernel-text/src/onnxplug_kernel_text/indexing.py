"""Kernels that read or write where an index tensor says, and interpolation and running sums. All scalars are i64; one work-item an element
unless said otherwise.

An index may be negative, counted from the end. One that is out of bounds reads zero and writes nothing; gathers and scatters then put their
``mark``, the second scalar, into ``fault``, their last tensor, of one i32.
"""

from __future__ import annotations

from onnxplug_kernel_text.types import arithmetic

_MARK = "fault[0] = (i32)mark;"


def _marked(name: str, tensors: str, scalars: str, opened: str) -> str:
    return _flat(name, f"{tensors}, TENSOR(i32, fault)", f"mark {scalars}", f"{opened} OPEN(i32, fault)")


def _flat(name: str, tensors: str, scalars: str, opened: str) -> str:
    return (
        f"KERNEL void {name}({tensors}, {', '.join(f'const i64 {s}' for s in ('points', *scalars.split()))}) {{\n"
        f"  const i64 at = GLOBAL_ID64(0);\n  if (at >= points) return;\n  {opened}\n"
    )


def gather(name: str, type_: str, index: str) -> str:
    """ONNX Gather of raw elements: tensors data, indices, out; scalars: elements of out, indices, elements behind the axis, its extent."""
    tensors = f"TENSOR({type_}, in0), TENSOR({index}, in1), TENSOR({type_}, out0)"
    opened = f"OPEN({type_}, in0) OPEN({index}, in1) OPEN({type_}, out0)"
    return (
        _marked(name, tensors, "n inner extent", opened)
        + f"""  const i64 i = at % inner, j = at / inner % n, o = at / inner / n;
  i64 k = in1[j]; k += k < 0 ? extent : 0;
  if (k < 0 || k >= extent) {{ out0[at] = 0; {_MARK} }} else out0[at] = in0[(o * extent + k) * inner + i];
}}
"""
    )


def gather_elements(name: str, type_: str, index: str, rank: int) -> str:
    """ONNX GatherElements of raw elements: tensors data, indices, out; scalars: elements of out; extents of the indices but the first;
    strides of data, 0 for the axis; the axis's extent; its stride."""
    dims = " ".join([*(f"d{k}" for k in range(1, rank)), *(f"s{k}" for k in range(rank)), "extent", "stride"])
    tensors = f"TENSOR({type_}, in0), TENSOR({index}, in1), TENSOR({type_}, out0)"
    opened = f"OPEN({type_}, in0) OPEN({index}, in1) OPEN({type_}, out0)"
    walk = _walk(rank, {"from": "s"})
    return (
        _marked(name, tensors, dims, opened)
        + f"""  i64 rest = at, from = 0;
{walk}  i64 k = in1[at]; k += k < 0 ? extent : 0;
  if (k < 0 || k >= extent) {{ out0[at] = 0; {_MARK} }} else out0[at] = in0[from + k * stride];
}}
"""
    )


def bounds(name: str, index: str) -> str:
    """Nothing but the mark of an index that is not in a range. Tensors: indices; scalars: indices; the least and one more than the
    largest that is in it."""
    return (
        _marked(name, f"TENSOR({index}, in0)", "low high", f"OPEN({index}, in0)")
        + f"  if ((i64)in0[at] < low || (i64)in0[at] >= high) {_MARK}\n}}\n"
    )


def scatter_elements(name: str, type_: str, index: str, join: str, rank: int) -> str:
    """ONNX ScatterElements into a copy of the data that ``out0`` holds already. One work-item a line along the axis, so that elements
    that meet are joined in order. Tensors indices, updates, out; scalars: lines; extents of the lines' dimensions but the first
    (``rank`` of them, the axis left out); strides of the indices there; strides of out there; elements of the indices along the axis, their
    stride; out's extent along it, its stride. ``join``: "none", "add", "mul", "max" or "min"."""
    dims = " ".join(
        [
            *(f"d{k}" for k in range(1, rank)),
            *(f"s{k}" for k in range(rank)),
            *(f"t{k}" for k in range(rank)),
            "n step extent stride",
        ]
    )
    tensors = f"TENSOR({index}, in0), TENSOR({type_}, in1), TENSOR({type_}, out0)"
    opened = f"OPEN({index}, in0) OPEN({type_}, in1) OPEN({type_}, out0)"
    return (
        _marked(name, tensors, dims, opened)
        + f"""  i64 rest = at, from = 0, to = 0;
{_walk(rank, {"from": "s", "to": "t"})}  for (i64 q = 0; q < n; q++) {{
    i64 k = in0[from + q * step]; k += k < 0 ? extent : 0;
    if (k < 0 || k >= extent) {{ {_MARK} continue; }}
    {_joined(type_, join, "to + k * stride", "from + q * step")}
  }}
}}
"""
    )


def gather_nd(name: str, type_: str, index: str, depth: int) -> str:
    """ONNX GatherND of raw elements: tensors data, indices, out; scalars: elements of out; elements of a slice; tuples in a batch; elements
    of data in a batch; then ``depth`` extents and ``depth`` strides of the indexed dimensions."""
    dims = " ".join(["slice tuples batch", *(f"e{k}" for k in range(depth)), *(f"t{k}" for k in range(depth))])
    tensors = f"TENSOR({type_}, in0), TENSOR({index}, in1), TENSOR({type_}, out0)"
    opened = f"OPEN({type_}, in0) OPEN({index}, in1) OPEN({type_}, out0)"
    return (
        _marked(name, tensors, dims, opened)
        + f"""  const i64 t = at / slice;
  i64 from = t / tuples * batch + at % slice; int inside = 1;
{_tuple(depth, "in1", "from")}  if (inside) out0[at] = in0[from]; else {{ out0[at] = 0; {_MARK} }}
}}
"""
    )


def scatter_nd(name: str, type_: str, index: str, join: str, depth: int, apart: bool = False) -> str:
    """ONNX ScatterND into a copy of the data that ``out0`` holds already. Tensors indices, updates, out; scalars: work-items; elements of
    a slice; tuples; then ``depth`` extents and ``depth`` strides of the indexed dimensions. One work-item an element of a slice, which
    walks all tuples in order, or ``apart`` one for each tuple's: which of those that meet remains is then left open."""
    dims = " ".join(["slice tuples", *(f"e{k}" for k in range(depth)), *(f"t{k}" for k in range(depth))])
    tensors = f"TENSOR({index}, in0), TENSOR({type_}, in1), TENSOR({type_}, out0)"
    opened = f"OPEN({index}, in0) OPEN({type_}, in1) OPEN({type_}, out0)"
    return (
        _marked(name, tensors, dims, opened)
        + f"""  for (i64 t = {"at / slice" if apart else "0"}; t < {"at / slice + 1" if apart else "tuples"}; t++) {{
  i64 to = {"at % slice" if apart else "at"}; int inside = 1;
{_tuple(depth, "in0", "to")}  if (!inside) {{ {_MARK} continue; }}
  {_joined(type_, join, "to", "at" if apart else "t * slice + at")}
  }}
}}
"""
    )


def tensor_scatter(name: str, type_: str, circular: bool) -> str:
    """ONNX TensorScatter into a copy of the cache that ``out0`` holds already, of raw elements: each sample's update from its own index on,
    which ``circular`` takes modulo the cache's extent. Tensors update, indices (i64), out; scalars: elements of the update; those of a
    sample's along all dimensions before the axis, along the axis, behind it; the cache's extent along the axis."""
    tensors = f"TENSOR({type_}, in0), TENSOR(i64, in1), TENSOR({type_}, out0)"
    first = "begin % extent + (begin % extent < 0 ? extent : 0)" if circular else "begin"
    beyond = "0" if circular else "first < 0 || first > extent - length"
    return (
        _marked(name, tensors, "outer length inner extent", f"OPEN({type_}, in0) OPEN(i64, in1) OPEN({type_}, out0)")
        + f"""  const i64 i = at % inner, t = at / inner % length, line = at / inner / length;
  const i64 begin = in1[line / outer], first = {first};
  if ({beyond}) {{ {_MARK} return; }}
  out0[(line * extent + (first + t) % extent) * inner + i] = in0[at];
}}
"""
    )


def max_unpool(name: str, type_: str, rank: int) -> str:
    """ONNX MaxUnpool of raw elements into zeros that ``out0`` holds already: each to its index, which counts in a shape within out's. Which
    of those that meet remains is left open: MaxPool gives one index to equal elements only. Tensors in, indices (i64), out; scalars:
    elements; those of the shape; its extents but the first; strides of out."""
    dims = " ".join(["count", *(f"d{k}" for k in range(1, rank)), *(f"t{k}" for k in range(rank))])
    tensors = f"TENSOR({type_}, in0), TENSOR(i64, in1), TENSOR({type_}, out0)"
    return (
        _marked(name, tensors, dims, f"OPEN({type_}, in0) OPEN(i64, in1) OPEN({type_}, out0)")
        + f"""  i64 rest = in1[at], to = 0;
  if (rest < 0 || rest >= count) {{ {_MARK} return; }}
{_walk(rank, {"to": "t"})}  out0[to] = in0[at];
}}
"""
    )


def one_hot(name: str, index: str, type_: str) -> str:
    """ONNX OneHot: tensors indices, values (off, on), out; scalars: elements of out, depth, elements of the indices behind the new axis."""
    tensors = f"TENSOR({index}, in0), TENSOR({type_}, in1), TENSOR({type_}, out0)"
    opened = f"OPEN({index}, in0) OPEN({type_}, in1) OPEN({type_}, out0)"
    return (
        _flat(name, tensors, "depth inner", opened)
        + f"""  const i64 i = at % inner, d = at / inner % depth, o = at / inner / depth;
  i64 k = (i64)LOAD_{index}(in0, o * inner + i); k += k < 0 ? depth : 0;
  out0[at] = in1[k == d ? 1 : 0];
}}
"""
    )


def running(name: str, type_: str, exclusive: bool, backwards: bool, multiplied: bool = False) -> str:
    """ONNX CumSum, ``multiplied`` CumProd: tensors in, out; scalars: lines, elements of a line, their stride. One work-item a line."""
    held = arithmetic(type_)
    tensors = f"TENSOR({type_}, in0), TENSOR({type_}, out0)"
    place = "base + (n - 1 - k) * stride" if backwards else "base + k * stride"
    store = f"STORE_{type_}(out0, p, a);"
    take = f"{held} x = LOAD_{type_}(in0, p);"
    join = "a *= x;" if multiplied else "a += x;"
    step = f"{take} {store} {join}" if exclusive else f"{take} {join} {store}"
    return (
        _flat(name, tensors, "n stride", f"OPEN({type_}, in0) OPEN({type_}, out0)")
        + f"""  const i64 base = at / stride * n * stride + at % stride;
  {held} a = {int(multiplied)};
  for (i64 k = 0; k < n; k++) {{ const i64 p = {place}; {step} }}
}}
"""
    )


def reverse_sequence(name: str, type_: str, length: str) -> str:
    """ONNX ReverseSequence of raw elements: tensors data, lengths, out; scalars: elements, extent and stride of the time axis, extent and
    stride of the batch axis. A length that is not within the time axis puts ``mark`` into ``fault``, as above."""
    tensors = f"TENSOR({type_}, in0), TENSOR({length}, in1), TENSOR({type_}, out0)"
    opened = f"OPEN({type_}, in0) OPEN({length}, in1) OPEN({type_}, out0)"
    return (
        _marked(name, tensors, "n step batch stride", opened)
        + f"""  const i64 t = at / step % n, given = in1[at / stride % batch], stop = given < 0 ? 0 : given > n ? n : given;
  if (stop != given) {_MARK}
  out0[at] = in0[t < stop ? at + (stop - 1 - 2 * t) * step : at];
}}
"""
    )


def resampled(name: str, from_type: str, to_type: str, taps: int, weighted: bool, *, lines: bool = False) -> str:
    """Each element along one axis as a weighted sum of others, the same for all lines: interpolation. Tensors in, positions (i32) and, if
    ``weighted``, weights (of the output's arithmetic type), ``taps`` for each element of the axis, out; scalars: elements of out; the
    axis's extent in out; elements behind it; its extent in in. ``lines``: a work-item has ``each`` elements of the axis with all that is
    behind them, which is one more scalar; the first one is the number of work-items."""
    held = arithmetic(to_type)
    weights = f", TENSOR({held}, in2)" if weighted else ""
    tensors = f"TENSOR({from_type}, in0), TENSOR(i32, in1){weights}, TENSOR({to_type}, out0)"
    opened = f"OPEN({from_type}, in0) OPEN(i32, in1) {f'OPEN({held}, in2)' if weighted else ''} OPEN({to_type}, out0)"
    product = f"in2[j * {taps} + k] * " if weighted else ""
    if not lines:
        load = f"LOAD_{from_type}(in0, (o * extent + in1[j * {taps} + k]) * inner + i)"
        return (
            _flat(name, tensors, "n inner extent", opened)
            + f"""  const i64 i = at % inner, j = at / inner % n, o = at / inner / n;
  {held} a = 0;
  for (int k = 0; k < {taps}; k++) a += {product}{load};
  STORE_{to_type}(out0, at, a);
}}
"""
        )
    own = (
        f" {held} factor[{taps}]; for (int k = 0; k < {taps}; k++) factor[k] = in2[j * {taps} + k];" if weighted else ""
    )
    product = "factor[k] * " if weighted else ""
    return (
        _flat(name, tensors, "n inner extent each", opened)
        + f"""  const i64 blocks = (n + each - 1) / each, o = at / blocks, first = at % blocks * each;
  const i64 last = first + each < n ? first + each : n;
  for (i64 j = first; j < last; j++) {{
    i64 place[{taps}]; for (int k = 0; k < {taps}; k++) place[k] = (o * extent + in1[j * {taps} + k]) * inner;{own}
    GLOBAL {to_type} *to = out0 + (o * n + j) * inner;
    for (i64 i = 0; i < inner; i++) {{ {held} a = 0;
      for (int k = 0; k < {taps}; k++) a += {product}LOAD_{from_type}(in0, place[k] + i);
      STORE_{to_type}(to, i, a); }}
  }}
}}
"""
    )


def _walk(rank: int, walks: dict[str, str]) -> str:
    lines = []
    for k in range(rank - 1, 0, -1):
        moves = " ".join(f"{name} += rest % d{k} * {stride}{k};" for name, stride in walks.items())
        lines.append(f"  {moves} rest /= d{k};")
    lines.append("  " + " ".join(f"{name} += rest * {stride}0;" for name, stride in walks.items()))
    return "\n".join(lines) + "\n"


def _tuple(depth: int, tensor: str, place: str) -> str:
    return "".join(
        f"  {{ i64 k = {tensor}[t * {depth} + {q}]; k += k < 0 ? e{q} : 0; inside = inside && k >= 0 && k < e{q}; {place} += k * t{q}; }}\n"
        for q in range(depth)
    )


def _joined(type_: str, join: str, to: str, source: str) -> str:
    if join == "none":
        return f"out0[{to}] = in1[{source}];"
    held = arithmetic(type_)
    value = {
        "add": "a + b", "mul": "a * b", "max": "(a != a || a > b) ? a : b", "min": "(a != a || a < b) ? a : b",
    }[join]  # fmt: skip
    return f"{{ const {held} a = LOAD_{type_}(out0, {to}), b = LOAD_{type_}(in1, {source}); STORE_{type_}(out0, {to}, {value}); }}"

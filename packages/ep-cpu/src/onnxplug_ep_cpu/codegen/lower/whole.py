"""Products of matrices of integers, which wrap: a vector of results at a time, summed over the depth."""

from __future__ import annotations

from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.reduce import Reduce
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.lines import split
from onnxplug_ep_cpu.codegen.lower.loops import write_map
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor

_PRODUCT: ex.Expr = (("leaf", 0), ("leaf", 1), ("mul", 0, 1))


def product_of_integers(b: Lowering, shape: Ints, left: Tensor, right: Tensor) -> Tensor:
    """(..., M, N) of (..., M, K) and (..., K, N), batches broadcast."""
    *batch, m, n = shape
    k = left.shape[-1]
    result = b.scratch(shape, element=left.element)
    if 0 in shape or k == 0:
        write_map(b.program, b.target, ((left.element, 0),), [], result)
        return result
    single = n == 1  # vectors then run along the depth
    x = b.copied(left, range(len(left.shape))) if single and left.strides[-1] != 1 else left
    w = b.copied(right, range(len(right.shape))) if right.strides[-2 if single else -1] != 1 else right
    # Of (..., M, K, N), over K.
    x, w = x.broadcast((*batch, m, k)), w.broadcast((*batch, k, n))
    whole = (*batch, m, k, n)
    made = result.viewed(whole, (*result.strides[:-1], 0, result.strides[-1]))
    rows = x.viewed(whole, (*x.strides, 0))
    columns = w.viewed(whole, (*w.strides[:-2], 0, *w.strides[-2:]))
    lines = split((made, rows, columns), [len(whole) - 2], main=1 if single else 0)
    assert lines is not None, "the depth, or a row of results, lies without gaps"
    kernel = Reduce(lines.along, len(lines.outer), "add", lines.operands((1, 2)), _PRODUCT, left.element)
    lines.call(b, kernel, 2.0)
    return result

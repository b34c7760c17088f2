"""A sparse matrix times a dense one, in domain ``com.microsoft``."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.refusals import FAIL, Refusal, braced

MS = "com.microsoft"


@op("SparseToDenseMatMul", 1, domain=MS, host_inputs=(0,), portable=False)
def sparse_times_dense(xp: Any, a: Any, b: Any, *, alpha: float = 1.0, transA: int = 0, transB: int = 0) -> Any:
    """alpha times the product of matrices, each of which may be transposed; of types, onnxruntime lets ``alpha`` count for float32 alone.

    ``a`` has the interface of onnxruntime's ``SparseTensor``: a shape, values, and their coordinates (values, 2) or their columns and
    where rows begin. What stands several times at a place is added up.
    """
    shape = tuple(a.dense_shape())
    if len(shape) != 2 or b.ndim != 2:
        raise Refusal("Currently supporting only 2-D matrices", FAIL)
    rows, columns = _places(a, shape)
    if transA:
        shape, rows, columns = shape[::-1], columns, rows
    b = b.T if transB else b
    if shape[1] != b.shape[0]:
        raise Refusal(
            f"Can not multiply A and B as inner dimension does not match. inner_A: {shape[1]} vs inner_B: {b.shape[0]}",
            FAIL,
        )
    y = np.zeros((shape[0], b.shape[1]), b.dtype)
    values = a.values()
    if b.dtype == np.float32:
        values = values * b.dtype.type(alpha)
    with np.errstate(over="ignore"):
        np.add.at(y, rows, values[:, None] * b[columns])
    return y


def _places(a: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each value."""
    kind = a.format().name
    if kind == "ORT_SPARSE_COO":
        indices = a.as_coo_view().indices()
        if indices.ndim != 2:
            raise Refusal("Expecting COO 2-D indices shape", FAIL)
        rows, columns = indices[:, 0], indices[:, 1]
    elif kind == "ORT_SPARSE_CSRC":
        view = a.as_csrc_view()
        columns, starts = view.inner(), view.outer()
        if len(starts) != shape[0] + 1 or starts[0] or starts[-1] != len(columns) or (np.diff(starts) < 0).any():
            raise Refusal(f"the rows of A do not begin in order among its {len(columns)} values", FAIL)
        rows = np.repeat(np.arange(shape[0]), np.diff(starts))
    else:
        raise Refusal(f"A is of format {kind}, expected is COO or CSR", FAIL)
    for name, places, size in (("row", rows, shape[0]), ("column", columns, shape[1])):
        if places.size and not 0 <= places.min() <= places.max() < size:
            raise Refusal(f"a {name} of A lies outside its shape {braced(shape)}", FAIL)
    return rows, columns

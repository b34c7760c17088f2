"""Sparse tensors as operands of a trial: onnxplug's own, by the coordinates of their values or by rows."""

from __future__ import annotations

import numpy as np

from onnxplug import OrtDevice, OrtSparseFormat, SparseTensor

FORMATS = ("coordinates", "rows")


def sparse(
    shape: tuple[int, int], rows: np.ndarray, columns: np.ndarray, values: np.ndarray, form: str
) -> SparseTensor:
    """A matrix of values at places in the order of rows, in one of ``FORMATS``."""
    host = OrtDevice.make("cpu", 0)
    if form == "coordinates":
        places = np.ascontiguousarray(np.stack([rows, columns], 1))
        return SparseTensor.sparse_coo_from_numpy(list(shape), values, places, host)
    begins = np.searchsorted(rows, np.arange(shape[0] + 1)).astype(np.int64)
    return SparseTensor.sparse_csr_from_numpy(list(shape), values, np.ascontiguousarray(columns), begins, host)


def refilled(tensor: SparseTensor, values: np.ndarray) -> SparseTensor:
    """The tensor with other values, of any type."""
    form = FORMATS[tensor.format() == OrtSparseFormat.ORT_SPARSE_CSRC]
    rows, columns = places(tensor)
    first, second = tensor.dense_shape()
    return sparse((first, second), rows, columns, values, form)


def dense(tensor: SparseTensor) -> np.ndarray:
    """The matrix with its zeros."""
    made = np.zeros(tensor.dense_shape(), tensor.values().dtype)
    np.add.at(made, places(tensor), tensor.values())
    return made


def places(tensor: SparseTensor) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each value."""
    if tensor.format() == OrtSparseFormat.ORT_SPARSE_COO:
        rows, columns = tensor.as_coo_view().indices().T
        return rows, columns
    view = tensor.as_csrc_view()
    return np.repeat(np.arange(tensor.dense_shape()[0]), np.diff(view.outer())), view.inner()

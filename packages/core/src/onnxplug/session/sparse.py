"""``SparseTensor``: COO, CSR or block-sparse arrays in host memory (ONNX's SparseTensorProto is COO)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from onnxplug.contract.types import SparseTensorType, element_of
from onnxplug.session.device import OrtDevice
from onnxplug.session.enums import OrtSparseFormat

_COO, _CSR = OrtSparseFormat.ORT_SPARSE_COO, OrtSparseFormat.ORT_SPARSE_CSRC


class SparseCooView:
    """Indices of a COO tensor: int64 [values], linear, or [values, 2]."""

    def __init__(self, indices: np.ndarray) -> None:
        self._indices = indices

    def indices(self) -> np.ndarray:
        """The indices, read-only."""
        return self._indices


class SparseCsrView:
    """Indices of a CSR tensor: columns int64 [values], row starts int64 [rows + 1]."""

    def __init__(self, inner: np.ndarray, outer: np.ndarray) -> None:
        self._inner, self._outer = inner, outer

    def inner(self) -> np.ndarray:
        """Column of each value, read-only."""
        return self._inner

    def outer(self) -> np.ndarray:
        """Where each row starts in the values, read-only."""
        return self._outer


class SparseTensor:
    """A sparse tensor; made by ``sparse_coo_from_numpy`` and ``sparse_csr_from_numpy``, which alias the arrays given to
    them.
    """

    def __init__(self, sparse_tensor: SparseTensor) -> None:
        if not isinstance(sparse_tensor, SparseTensor):
            raise ValueError("`Provided object` needs to be of type `SparseTensor`")
        self._adopt(sparse_tensor._shape, sparse_tensor._values, sparse_tensor._indices, sparse_tensor._format)

    def _adopt(
        self, shape: Sequence[int], values: np.ndarray, indices: tuple[np.ndarray, ...], format_: OrtSparseFormat
    ) -> None:
        self._shape, self._values, self._indices, self._format = [int(dim) for dim in shape], values, indices, format_
        self._element = element_of(values.dtype)

    @classmethod
    def sparse_coo_from_numpy(
        cls, dense_shape: Sequence[int], values: np.ndarray, coo_indices: np.ndarray, ort_device: OrtDevice
    ) -> Self:
        """COO form. ``coo_indices`` is int64, [values] for linear indices or [values, 2] for coordinates."""
        values, indices = _values(values, "COO"), np.ascontiguousarray(coo_indices, dtype=np.int64)
        if indices.size not in (values.size, 2 * values.size):
            raise RuntimeError(f"Index size: {indices.size} must be equal to or twice the values size: {values.size}")
        return cls._make(dense_shape, values, (indices,), _COO)

    @classmethod
    def sparse_csr_from_numpy(
        cls,
        dense_shape: Sequence[int],
        values: np.ndarray,
        inner_indices: np.ndarray,
        outer_indices: np.ndarray,
        ort_device: OrtDevice,
    ) -> Self:
        """CSR form: ``inner_indices`` the column of each value, ``outer_indices`` [rows + 1] where each row starts."""
        values = _values(values, "CSR(C)")
        inner, outer = (np.ascontiguousarray(each, dtype=np.int64) for each in (inner_indices, outer_indices))
        if inner.size != values.size or outer.size != int(dense_shape[0]) + 1:
            raise RuntimeError(
                f"CSR needs one inner index a value ({values.size}, got {inner.size}) and rows + 1 outer indices"
                f" ({int(dense_shape[0]) + 1}, got {outer.size})"
            )
        return cls._make(dense_shape, values, (inner, outer), _CSR)

    @classmethod
    def _make(
        cls, shape: Sequence[int], values: np.ndarray, indices: tuple[np.ndarray, ...], format_: OrtSparseFormat
    ) -> Self:
        made = cls.__new__(cls)
        made._adopt(shape, values, indices, format_)
        return made

    def values(self) -> np.ndarray:
        """The non-zero values, a read-only view (strings: a copy)."""
        return self._values.copy() if self._values.dtype == object else _read_only(self._values)

    def as_coo_view(self) -> SparseCooView:
        """The indices of a COO tensor; RuntimeError for another format."""
        if self._format is not _COO:
            raise RuntimeError("This sparse tensor does not contain COO format")
        return SparseCooView(_read_only(self._indices[0]))

    def as_csrc_view(self) -> SparseCsrView:
        """The indices of a CSR tensor; RuntimeError for another format."""
        if self._format is not _CSR:
            raise RuntimeError("This sparse tensor does not contain CSR(C) format")
        return SparseCsrView(_read_only(self._indices[0]), _read_only(self._indices[1]))

    def as_blocksparse_view(self) -> Any:
        """Always RuntimeError: block-sparse tensors cannot be made here."""
        raise RuntimeError("This sparse tensor does not contain BlockSparse format")

    def to_cuda(self, ort_device: OrtDevice) -> Self:
        """Always RuntimeError: sparse tensors stay in host memory."""
        raise RuntimeError("Cuda is not available in this build: sparse tensors stay in host memory")

    def format(self) -> OrtSparseFormat:
        """The storage format."""
        return self._format

    def dense_shape(self) -> list[int]:
        """The shape of the tensor written out."""
        return list(self._shape)

    def data_type(self) -> str:
        """``sparse_tensor(float)``"""
        return f"sparse_tensor({self._element})"

    def device_name(self) -> str:
        """``cpu``"""
        return "cpu"

    @property
    def value_type(self) -> SparseTensorType:
        """The ONNX type."""
        return SparseTensorType(self._element, tuple(self._shape))

    def _get_c_tensor(self) -> Self:
        return self


def _values(values: np.ndarray, format_: str) -> np.ndarray:
    if not isinstance(values, np.ndarray) or values.ndim != 1:
        dims = getattr(values, "ndim", "none")
        raise RuntimeError(f"Expecting values 1-D numpy values array for {format_} format. Got dims: {dims}")
    if values.dtype.kind in "US":
        return values.astype(np.str_).astype(object)
    return np.ascontiguousarray(values)


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view

"""``SparseTensor``: COO, CSR or block-sparse arrays in host memory (ONNX's SparseTensorProto is COO)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from onnxplug.contract.types import SparseTensorType, element_of
from onnxplug.session.device import OrtDevice
from onnxplug.session.device_enums import OrtSparseFormat
from onnxplug.session.settings import as_int

_COO, _CSR = OrtSparseFormat.ORT_SPARSE_COO, OrtSparseFormat.ORT_SPARSE_CSRC
_BLOCKS = OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE


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


class SparseBlockSparseView:
    """Indices of a block-sparse tensor: int32 [2, blocks], row and column of each block among the blocks."""

    def __init__(self, indices: np.ndarray) -> None:
        self._indices = indices

    def indices(self) -> np.ndarray:
        """The indices, read-only."""
        return self._indices


class SparseData:
    """The class that onnxruntime's extension module calls SparseTensor: values, indices, and where they stand."""

    def __init__(
        self, shape: Sequence[int], values: np.ndarray, indices: tuple[np.ndarray, ...], format_: OrtSparseFormat
    ) -> None:
        self._shape, self._values, self._indices, self._format = shape, values, indices, format_
        self._element = element_of(values.dtype)

    @classmethod
    def sparse_coo_from_numpy(
        cls, dense_shape: Sequence[int], values: np.ndarray, coo_indices: np.ndarray, ort_device: OrtDevice
    ) -> Self:
        """See ``SparseTensor``."""
        shape, values = _made_of(dense_shape, values, ort_device)
        _one_dimensional(values, "COO")
        indices = np.ascontiguousarray(coo_indices, dtype=np.int64)
        if indices.size not in (values.size, 2 * values.size):
            raise RuntimeError(f"Index size: {indices.size} must be equal to or twice the values size: {values.size}")
        return cls(shape, values, (indices,), _COO)

    @classmethod
    def sparse_csr_from_numpy(
        cls,
        dense_shape: Sequence[int],
        values: np.ndarray,
        inner_indices: np.ndarray,
        outer_indices: np.ndarray,
        ort_device: OrtDevice,
    ) -> Self:
        """See ``SparseTensor``."""
        shape, values = _made_of(dense_shape, values, ort_device)
        _one_dimensional(values, "CSR(C)")
        inner, outer = (np.ascontiguousarray(each, dtype=np.int64) for each in (inner_indices, outer_indices))
        if inner.size != values.size or outer.size != shape[0] + 1:
            raise RuntimeError(
                f"CSR needs one inner index a value ({values.size}, got {inner.size}) and rows + 1 outer indices"
                f" ({shape[0] + 1}, got {outer.size})"
            )
        return cls(shape, values, (inner, outer), _CSR)

    @classmethod
    def blocksparse_from_numpy(
        cls, dense_shape: Sequence[int], values: np.ndarray, indices: np.ndarray, ort_device: OrtDevice
    ) -> Self:
        """Block-sparse form: ``values`` is [rows of a block, columns of a block, blocks] or has more dimensions in front
        of the last, ``indices`` int32 [2, blocks] the row and column of each block.
        """
        shape, values = _made_of(dense_shape, values, ort_device)
        places = np.ascontiguousarray(indices, dtype=np.int32)
        if values.ndim < 3:
            raise RuntimeError(f"Expecting to have at lest 3-D shape. Got:{values.ndim}")
        if places.ndim != 2:
            raise RuntimeError(f"Expecting indices to have 2-D shape . Got: {places.ndim}")
        if places.shape[0] != 2:
            raise RuntimeError("Indices shape must have dim[0] == 2")
        if places.shape[1] != values.shape[-1]:
            raise RuntimeError(
                f"Expecting index blocks: {places.shape[1]} to be equal to values blocks: {values.shape[-1]}"
            )
        return cls(shape, values, (places,), _BLOCKS)

    def values(self) -> np.ndarray:
        """The values that are kept, a read-only view (strings: a copy)."""
        return self._values.copy() if self._values.dtype == object else _read_only(self._values)

    def get_coo_data(self) -> SparseCooView:
        """The indices of a COO tensor; RuntimeError for another format."""
        return SparseCooView(*self._indices_as(_COO, "COO"))

    def get_csrc_data(self) -> SparseCsrView:
        """The indices of a CSR tensor; RuntimeError for another format."""
        return SparseCsrView(*self._indices_as(_CSR, "CSR(C)"))

    def get_blocksparse_data(self) -> SparseBlockSparseView:
        """The indices of a block-sparse tensor; RuntimeError for another format."""
        return SparseBlockSparseView(*self._indices_as(_BLOCKS, "BlockSparse"))

    def to_cuda(self, ort_device: OrtDevice) -> Self:
        """Always RuntimeError: sparse tensors stay in host memory."""
        raise RuntimeError("Cuda is not available in this build: sparse tensors stay in host memory")

    @property
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

    def _indices_as(self, format_: OrtSparseFormat, name: str) -> tuple[np.ndarray, ...]:
        if self._format is not format_:
            raise RuntimeError(f"This sparse tensor does not contain {name} format")
        return tuple(map(_read_only, self._indices))


SparseData.__name__ = SparseData.__qualname__ = "SparseTensor"  # the name that programs print


class SparseTensor:
    """A sparse tensor; made by ``sparse_coo_from_numpy`` and ``sparse_csr_from_numpy``, which alias the arrays given to
    them, or over what ``capi.onnxruntime_pybind11_state.SparseTensor`` makes.
    """

    def __init__(self, sparse_tensor: SparseData | SparseTensor) -> None:
        if not isinstance(sparse_tensor, SparseData | SparseTensor):
            raise ValueError("`Provided object` needs to be of type `SparseTensor`")
        self._tensor: SparseData = sparse_tensor if isinstance(sparse_tensor, SparseData) else sparse_tensor._tensor

    @classmethod
    def sparse_coo_from_numpy(
        cls, dense_shape: Sequence[int], values: np.ndarray, coo_indices: np.ndarray, ort_device: OrtDevice
    ) -> Self:
        """COO form. ``coo_indices`` is int64, [values] for linear indices or [values, 2] for coordinates."""
        return cls(SparseData.sparse_coo_from_numpy(dense_shape, values, coo_indices, ort_device))

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
        return cls(SparseData.sparse_csr_from_numpy(dense_shape, values, inner_indices, outer_indices, ort_device))

    def values(self) -> np.ndarray:
        """The values that are kept, a read-only view (strings: a copy)."""
        return self._tensor.values()

    def as_coo_view(self) -> SparseCooView:
        """The indices of a COO tensor; RuntimeError for another format."""
        return self._tensor.get_coo_data()

    def as_csrc_view(self) -> SparseCsrView:
        """The indices of a CSR tensor; RuntimeError for another format."""
        return self._tensor.get_csrc_data()

    def as_blocksparse_view(self) -> SparseBlockSparseView:
        """The indices of a block-sparse tensor; RuntimeError for another format."""
        return self._tensor.get_blocksparse_data()

    def to_cuda(self, ort_device: OrtDevice) -> Self:
        """Always RuntimeError: sparse tensors stay in host memory."""
        return type(self)(self._tensor.to_cuda(ort_device))

    def format(self) -> OrtSparseFormat:
        """The storage format."""
        return self._tensor.format

    def dense_shape(self) -> list[int]:
        """The shape of the tensor written out."""
        return self._tensor.dense_shape()

    def data_type(self) -> str:
        """``sparse_tensor(float)``"""
        return self._tensor.data_type()

    def device_name(self) -> str:
        """``cpu``"""
        return self._tensor.device_name()

    @classmethod
    def of_array(cls, array: np.ndarray) -> Self:
        """The COO form of an array, by linear indices of what is not zero."""
        places = np.flatnonzero(array).astype(np.int64, copy=False)
        return cls(SparseData(array.shape, array.ravel()[places], (places,), _COO))

    @property
    def value_type(self) -> SparseTensorType:
        """The ONNX type."""
        return SparseTensorType(self._tensor._element, tuple(self._tensor._shape))

    def _get_c_tensor(self) -> SparseData:
        return self._tensor


def _made_of(shape: Sequence[int], values: Any, device: Any) -> tuple[list[int], np.ndarray]:
    """What every form is made of, checked: the dense shape, and values that can be shared."""
    if not isinstance(values, np.ndarray):
        raise TypeError(f"incompatible function arguments: expected a numpy.ndarray of values, got {values!r}")
    if not isinstance(device, OrtDevice):
        raise TypeError(f"incompatible function arguments: expected an OrtDevice, got {device!r}")
    if device.kind != "cpu":
        raise RuntimeError(f"Unsupported OrtDevice type: sparse tensors stay in host memory, not on {device.kind}")
    dims = [as_int(dim) for dim in shape]
    if values.dtype.kind in "US":
        return dims, values.astype(np.str_).astype(object)
    return dims, np.ascontiguousarray(values)


def _one_dimensional(values: np.ndarray, format_: str) -> None:
    if values.ndim != 1:
        raise RuntimeError(f"Expecting values 1-D numpy values array for {format_} format. Got dims: {values.ndim}")


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view

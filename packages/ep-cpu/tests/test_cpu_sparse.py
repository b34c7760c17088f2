"""SparseToDenseMatMul, the one operator of onnxruntime's that is given a sparse tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxplug
from onnxplug.contract.errors import Fail, InvalidArgument

CPU = ["CPUExecutionProvider"]
TYPES = {
    np.float32: TensorProto.FLOAT,
    np.float64: TensorProto.DOUBLE,
    np.int32: TensorProto.INT32,
    np.int64: TensorProto.INT64,
    np.uint32: TensorProto.UINT32,
    np.uint64: TensorProto.UINT64,
}


def model(element: int, **attributes: Any) -> bytes:
    node = helper.make_node("SparseToDenseMatMul", ["a", "b"], ["y"], "product", domain="com.microsoft", **attributes)
    a = helper.make_value_info("a", helper.make_sparse_tensor_type_proto(element, [None, None]))
    b, y = (helper.make_tensor_value_info(name, element, [None, None]) for name in "by")
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(helper.make_graph([node], "g", [a, b], [y]), opset_imports=imports, ir_version=9)
    return bytes(made.SerializeToString())


def coordinates(runtime: Any, shape: tuple[int, ...], values: np.ndarray, indices: np.ndarray) -> Any:
    device = onnxplug.OrtDevice.make("cpu", 0)
    if runtime is not onnxplug:
        device = runtime.capi.onnxruntime_inference_collection.OrtDevice.make("cpu", 0)
    return runtime.SparseTensor.sparse_coo_from_numpy(list(shape), values, np.ascontiguousarray(indices), device)


def compressed(runtime: Any, a: np.ndarray) -> Any:
    device = onnxplug.OrtDevice.make("cpu", 0)
    if runtime is not onnxplug:
        device = runtime.capi.onnxruntime_inference_collection.OrtDevice.make("cpu", 0)
    starts = np.concatenate([[0], np.cumsum((a != 0).sum(1))])
    columns = np.ascontiguousarray(np.nonzero(a)[1])
    return runtime.SparseTensor.sparse_csr_from_numpy(list(a.shape), a[a != 0], columns, starts, device)


def product(runtime: Any, source: bytes, a: Any, b: np.ndarray) -> np.ndarray:
    session = runtime.InferenceSession(source, providers=CPU)
    feeds = {"a": runtime.OrtValue.ort_value_from_sparse_tensor(a), "b": runtime.OrtValue.ortvalue_from_numpy(b)}
    found: np.ndarray = session.run_with_ort_values(["y"], feeds)[0].numpy()
    return found


@pytest.mark.parametrize("alpha", [1.0, -0.5])
@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("form", ["coordinates", "compressed"])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.__name__)
def test_as_onnxruntime(dtype: Any, form: str, turned: tuple[int, int], alpha: float) -> None:
    theirs, rng = pytest.importorskip("onnxruntime"), np.random.default_rng(3)
    a = (rng.integers(0, 6, (4, 3)) * (rng.random((4, 3)) < 0.4)).astype(dtype)
    b = rng.integers(0, 6, (3, 5)).astype(dtype)
    a, b = (np.ascontiguousarray(x.T) if turn else x for x, turn in zip((a, b), turned, strict=True))
    source = model(TYPES[dtype], transA=turned[0], transB=turned[1], alpha=alpha)
    found = []
    for runtime in (onnxplug, theirs):
        sparse = (
            coordinates(runtime, a.shape, a[a != 0], np.argwhere(a))
            if form == "coordinates"
            else compressed(runtime, a)
        )
        found.append(product(runtime, source, sparse, b))
    np.testing.assert_array_equal(*found)
    assert found[0].dtype == dtype


def test_values_at_one_place_are_added_up() -> None:
    a = coordinates(onnxplug, (2, 3), np.array([1, 2, 5], np.float32), np.array([[0, 0], [0, 0], [1, 2]]))
    made = product(onnxplug, model(TensorProto.FLOAT), a, np.ones((3, 2), np.float32))
    np.testing.assert_array_equal(made, [[3, 3], [5, 5]])


@pytest.mark.parametrize(
    ("shape", "indices", "b", "text"),
    [
        ((2, 3), [[0, 0]], (4, 2), "inner dimension does not match. inner_A: 3 vs inner_B: 4"),
        ((2, 3), [[0, 3]], (3, 2), r"a column of A lies outside its shape \{2,3\}"),
        ((2, 3), [[-1, 0]], (3, 2), r"a row of A lies outside its shape \{2,3\}"),
        ((2, 3), [1], (3, 2), "Expecting COO 2-D indices shape"),
    ],
)
def test_what_does_not_fit(shape: tuple[int, ...], indices: list[Any], b: tuple[int, ...], text: str) -> None:
    a = coordinates(onnxplug, shape, np.ones(1, np.float32), np.array(indices))
    with pytest.raises(Fail, match=f"running SparseToDenseMatMul node. Name:'product' Status Message: .*{text}"):
        product(onnxplug, model(TensorProto.FLOAT), a, np.ones(b, np.float32))


def test_another_type_is_refused() -> None:
    a = compressed(onnxplug, np.eye(2))
    with pytest.raises(InvalidArgument, match="sparse_tensor"):
        product(onnxplug, model(TensorProto.FLOAT), a, np.ones((2, 2), np.float32))

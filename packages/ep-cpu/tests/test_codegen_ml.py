"""Linear models, support vector machines, features and labels of ``ai.onnx.ml`` in generated code, against the NumPy kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_models import session
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_models import ML, check, model, run
from onnx import TensorProto, helper

from onnxplug.contract.errors import Fail

DTYPES = (np.float32, np.int64, np.int32)
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
SIZES = st.sampled_from([1, 2, 5, 8, 17, 40])


def samples(rows: int, columns: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return (3 * np.random.default_rng(seed).normal(size=(rows, columns))).astype(dtype)


def labels(count: int, words: bool, shuffled: bool = False, ints: str = "classlabels_ints") -> dict[str, Any]:
    if words:
        return {"classlabels_strings": [f"w{i}" for i in range(count)]}
    return {ints: [7 * i - 3 for i in range(count)] if shuffled else list(range(count))}


@given(SIZES, SIZES, st.integers(1, 9), st.sampled_from(DTYPES), st.sampled_from(TRANSFORMS), st.booleans())
@settings(max_examples=25)
def test_linear_regressor(rows: int, columns: int, targets: int, dtype: type, transform: str, offset: bool) -> None:
    weights = np.random.default_rng(1).normal(size=targets * columns) / 20
    given: dict[str, Any] = {"coefficients": weights.tolist(), "targets": targets, "post_transform": transform}
    if offset:
        given["intercepts"] = np.full(targets, 0.5).tolist()
    # a quantile grows without bound near 0 and 1, and an argument's rounding error with it
    check("LinearRegressor", [samples(rows, columns, dtype)], rtol=1e-3 if transform == "PROBIT" else 1e-4, **given)


@given(SIZES, SIZES, st.sampled_from([1, 2, 3, 9]), st.booleans(), st.booleans(), st.sampled_from(TRANSFORMS[:4]))
@settings(max_examples=25)
def test_linear_classifier(rows: int, columns: int, machines: int, words: bool, shuffled: bool, transform: str) -> None:
    rng = np.random.default_rng(2)
    check(
        "LinearClassifier", [samples(rows, columns)], 2, rtol=1e-4, coefficients=rng.normal(size=machines * columns).tolist(),
        intercepts=rng.normal(size=machines).tolist(), post_transform=transform,
        **labels(2 if machines == 1 else machines, words, shuffled),
    )  # fmt: skip


@given(
    SIZES, st.sampled_from([1, 3, 8, 19]), st.sampled_from([2, 3, 6]), st.sampled_from(["LINEAR", "POLY", "RBF", "SIGMOID"]),
    st.booleans(), st.booleans(), st.sampled_from([1.0, 3.0, 2.5]),
)  # fmt: skip
@settings(max_examples=30)
def test_svm_classifier(
    rows: int, columns: int, count: int, kernel: str, probability: bool, words: bool, degree: float
) -> None:
    rng = np.random.default_rng(3)
    per_class = rng.integers(1, 12, count).tolist()
    total, pairs = sum(per_class), count * (count - 1) // 2
    given: dict[str, Any] = {
        "coefficients": rng.normal(size=(count - 1) * total).tolist(), "rho": rng.normal(size=pairs).tolist(),
        "support_vectors": rng.normal(size=total * columns).tolist(), "vectors_per_class": per_class, "kernel_type": kernel,
        "kernel_params": [0.1, 5.0, degree] if kernel == "POLY" else [0.1, 0.5, degree],
    }  # fmt: skip
    if probability:
        given |= {"prob_a": (-rng.random(pairs)).tolist(), "prob_b": rng.normal(size=pairs).tolist()}
    x = np.abs(samples(rows, columns)) / 5 if kernel == "POLY" else samples(rows, columns) / 3
    # sums of terms of either sign lose what their largest ones round away
    check("SVMClassifier", [x], 2, rtol=1e-3, atol=2e-4, **given, **labels(count, words))


@pytest.mark.parametrize(
    ("op_type", "given"),
    [
        ("LinearClassifier", {"coefficients": [1.0, -2.0, 0.5, 1.5, 0.25, -1.0], "intercepts": [0.1, 0.2, -0.1]}),
        (
            "SVMClassifier",
            {
                "coefficients": [1.0, -1.0, 0.5, 0.5, -2.0, 1.0], "rho": [0.1, -0.2, 0.3], "vectors_per_class": [1, 1, 1],
                "support_vectors": [0.5, 1.0, -1.0, 2.0, 0.0, -0.5], "kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0],
            },
        ),
    ],
)  # fmt: skip
def test_classifiers_take_doubles_as_singles(op_type: str, given: dict[str, Any]) -> None:
    x = samples(20, 2)
    wide = run(model(op_type, [x.astype(np.float64)], 2, **given, **labels(3, True)), [x.astype(np.float64)])
    narrow = run(model(op_type, [x], 2, **given, **labels(3, True)), [x])
    for one, other in zip(wide, narrow, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


@given(SIZES, SIZES, st.sampled_from([0, 1, 21]), st.sampled_from(["LINEAR", "POLY", "RBF", "SIGMOID"]), st.booleans())
@settings(max_examples=25)
def test_svm_regressor(rows: int, columns: int, vectors: int, kernel: str, one_class: bool) -> None:
    rng = np.random.default_rng(4)
    given: dict[str, Any] = {
        "coefficients": rng.normal(size=vectors or columns).tolist(), "rho": [0.3], "n_supports": vectors, "kernel_type": kernel,
        "kernel_params": [0.1, 0.5, 2.0], "one_class": int(one_class),
    }  # fmt: skip
    if vectors:
        given["support_vectors"] = rng.normal(size=vectors * columns).tolist()
    check("SVMRegressor", [samples(rows, columns) / 3], rtol=1e-3, atol=2e-4, **given)


def test_linear_machine_of_each_class() -> None:
    given: dict[str, Any] = {"kernel_params": [0.0] * 3, "rho": [0.5], "post_transform": "SOFTMAX"}
    given["coefficients"] = samples(3, 4).ravel().tolist()
    check("SVMClassifier", [samples(5, 4)], 2, **given, **labels(3, False))
    given["coefficients"] = given["coefficients"][:4]
    check("SVMClassifier", [samples(5, 4)], 2, **given, **labels(1, True))


@given(SIZES, SIZES, st.sampled_from(DTYPES), st.sampled_from(["MAX", "L1", "L2"]))
@settings(max_examples=25)
def test_normalizer(rows: int, columns: int, dtype: type, norm: str) -> None:
    x = samples(rows, columns, dtype)
    x[0] = 0
    check("Normalizer", [x], norm=norm)


@given(SIZES, SIZES, st.sampled_from(DTYPES), st.booleans())
@settings(max_examples=15)
def test_scaler(rows: int, columns: int, dtype: type, single: bool) -> None:
    offset, scale = (np.random.default_rng(n).normal(size=1 if single else columns).tolist() for n in (5, 6))
    check("Scaler", [samples(rows, columns, dtype)], offset=offset, scale=scale)


@pytest.mark.parametrize("single", [True, False])
def test_imputer(single: bool) -> None:
    x = samples(9, 3)
    x[x > 2] = np.nan
    values = [1.5] if single else [1.5, -2.0, 0.0]
    check("Imputer", [x], imputed_value_floats=values, replaced_value_float=float("nan"))
    check("Imputer", [np.round(x)], imputed_value_floats=values, replaced_value_float=1.0)
    numbers = [2**40] if single else [2**40, 5, -1]
    check("Imputer", [samples(9, 3, np.int64)], imputed_value_int64s=numbers, replaced_value_int64=-2)


def test_binarizer_and_categories() -> None:
    check("Binarizer", [samples(4, 5)], threshold=0.5)
    for dtype in DTYPES:
        x = np.array([[1, 7, -2], [3, 1, 2**24]]).astype(dtype)
        check("OneHotEncoder", [x], cats_int64s=[1, -2, 2**24, 5])
        check("OneHotEncoder", [x], cats_int64s=[1, 3, 7, -2, 2**24, 5], zeros=0)


@pytest.mark.parametrize("rows", [1, 5, 1000])
def test_a_category_that_there_has_to_be(rows: int) -> None:
    x = np.arange(2 * rows).reshape(rows, 2) % 7
    (got,) = check("OneHotEncoder", [x], cats_int64s=list(range(7)), zeros=0)
    assert got.sum() == x.size
    x[rows // 2, 1] = 7
    with pytest.raises(Fail, match=r"running OneHotEncoder node.*Unknown Category"):
        run(model("OneHotEncoder", [x], cats_int64s=list(range(7)), zeros=0), [x])


@given(
    SIZES, st.lists(st.sampled_from([1, 2, 5]), min_size=1, max_size=4), st.lists(st.integers(0, 6), min_size=4, max_size=4),
    st.booleans(), st.sampled_from(DTYPES),
)  # fmt: skip
@settings(max_examples=15)
def test_feature_vectorizer(rows: int, widths: list[int], wanted: list[int], given: bool, dtype: type) -> None:
    inputs = [samples(rows, width, dtype, i) for i, width in enumerate(widths)]
    check("FeatureVectorizer", inputs, **({"inputdimensions": wanted[: len(widths)]} if given else {}))


@pytest.mark.parametrize("x", [samples(4, 6), samples(4, 6).astype(np.float64), samples(1, 6, np.int64)[0]])
@pytest.mark.parametrize("index", [[2], [0, 2, 4], [5, 0, 0], [1, 2, 3]])
def test_array_feature_extractor(x: np.ndarray, index: list[int]) -> None:
    check("ArrayFeatureExtractor", [x, np.array(index)])


@pytest.mark.parametrize("index", [-1, 6])
def test_indices_out_of_range_are_refused(index: int) -> None:
    inputs = [samples(4, 6), np.array([0, index])]
    with pytest.raises(Exception, match=rf"Y\[1\] \({index}\) must be in \[0, 6\)"):
        run(model("ArrayFeatureExtractor", inputs), inputs)


@given(st.data())
@settings(max_examples=30)
def test_label_encoder(data: st.DataObject) -> None:
    draw = data.draw
    floats, to_floats, spread = draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from([1, 10**12]))
    keys = draw(st.lists(st.integers(-9, 9), min_size=1, max_size=12))
    given: dict[str, Any] = (
        {"keys_floats": [k / 2 for k in keys] + [float("nan")] * draw(st.integers(0, 1))} if floats
        else {"keys_int64s": [k * spread for k in keys]}
    )  # fmt: skip
    size = len(next(iter(given.values())))
    given["values_floats" if to_floats else "values_int64s"] = [i + 0.5 if to_floats else i * 10 for i in range(size)]
    x = draw(st.lists(st.integers(-12, 12), min_size=1, max_size=40))
    values = np.array(x, np.float32) / 2 if floats else np.array(x) * spread
    if floats:
        values[:: draw(st.integers(1, 9))] = np.nan
    check(
        "LabelEncoder", [values], version=draw(st.sampled_from([2, 4])), default_int64=-7, default_float=0.25, **given
    )


@given(
    st.lists(st.sampled_from([1, 3, 8, 21, 150]), min_size=1, max_size=3), st.integers(0, 2), st.sampled_from([0, 0.1, 0.5, 1]),
    st.booleans(), st.sampled_from(["float32", "whole", "int32", "float16", "int64", "float64"]),
)  # fmt: skip
@settings(max_examples=60)
def test_top_k(shape: list[int], axis: int, part: float, largest: bool, kind: str) -> None:
    axis %= len(shape)
    wanted = round(part * shape[axis])
    rng = np.random.default_rng(7)
    x = rng.normal(size=shape).astype(kind if kind in ("float16", "float64") else "float32")
    if kind == "whole":
        x = np.round(x)
    x[rng.random(shape) < 0.1] = np.nan
    x[rng.random(shape) < 0.1] = -0.0
    x[rng.random(shape) < 0.05] = -np.inf
    if kind in ("int32", "int64"):
        bits = 8 * np.dtype(kind).itemsize - 1
        x = rng.integers(-(2**bits), 2**bits - 1, shape, kind, endpoint=True)
    assert_top_k(x, wanted, axis, largest)


def assert_top_k(x: np.ndarray, wanted: int, axis: int, largest: bool) -> None:
    """How many are wanted comes from a shape."""
    type_ = helper.np_dtype_to_tensor_dtype(x.dtype)
    nodes = [
        helper.make_node("Shape", ["as_many"], ["k"]),
        helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=axis, largest=int(largest)),
    ]
    given = [
        helper.make_tensor_value_info("x", type_, x.shape),
        helper.make_tensor_value_info("as_many", TensorProto.FLOAT, ["many"]),
    ]
    made = [helper.make_tensor_value_info(n, t, None) for n, t in (("v", type_), ("i", TensorProto.INT64))]
    proto = helper.make_model(helper.make_graph(nodes, "g", given, made), ir_version=10, opset_imports=OPSETS)
    native, plain = (session(proto, codegen=codegen) for codegen in (True, False))
    assert native.explain().regions
    feeds = {"x": x, "as_many": np.zeros(wanted, np.float32)}
    for mine, theirs in zip(native.run(None, feeds), plain.run(None, feeds), strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert mine.dtype == theirs.dtype


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_many_of_64_bits(kind: type) -> None:
    """Some are held in order, more are left to NumPy."""
    x = np.random.default_rng(4).integers(0, 500, (2, 3000)).astype(kind)
    assert_top_k(x, 200, 1, False)
    assert_top_k(x, 900, 1, True)


@pytest.mark.parametrize(("size", "wanted"), [(8400, 300), (3000, 20), (1000, 1000), (5000, 128)])
@pytest.mark.parametrize("order", ["random", "ascending", "equal"])
def test_top_k_of_long_lines(size: int, wanted: int, order: str) -> None:
    x = np.random.default_rng(3).random((3, size), np.float32)
    if order == "ascending":
        x.sort()
    if order == "equal":
        x[:] = 1
    assert_top_k(x, wanted, 1, True)


OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid(ML, 3), helper.make_opsetid("com.microsoft", 1)]


@given(SIZES, SIZES, st.sampled_from([1, 3, 16]), st.booleans())
@settings(max_examples=20)
def test_distances(rows: int, others: int, columns: int, root: bool) -> None:
    a, b = samples(rows, columns, seed=8), samples(others, columns, seed=9)
    b[0] = a[0]
    metric = "euclidean" if root else "sqeuclidean"
    check("CDist", [a, b], domain="com.microsoft", metric=metric)


def scanned(turned: bool, keepdims: int = 0) -> Any:
    """Distances as skl2onnx writes them."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["m"], ["m2"]),
            helper.make_node("Sub", ["v", "m"] if turned else ["m", "v"], ["d"]),
            helper.make_node("ReduceSumSquare", ["d", "axes"], ["s"], keepdims=keepdims),
            helper.make_node("Identity", ["s"], ["out"]),
        ],
        "body",
        [value("m", TensorProto.FLOAT, [None, 3]), value("v", TensorProto.FLOAT, [3])],
        [value("m2", TensorProto.FLOAT, None), value("out", TensorProto.FLOAT, None)],
        [helper.make_tensor("axes", TensorProto.INT64, [1], [1])],
    )
    node = helper.make_node("Scan", ["a", "b"], ["kept", "y"], body=body, num_scan_inputs=1)
    given = [value("a", TensorProto.FLOAT, ["n", 3]), value("b", TensorProto.FLOAT, ["m", 3])]
    made = [value(name, TensorProto.FLOAT, None) for name in ("kept", "y")]
    return helper.make_model(helper.make_graph([node], "g", given, made), ir_version=10, opset_imports=OPSETS)


@pytest.mark.parametrize("turned", [False, True])
def test_distances_written_as_a_scan(turned: bool) -> None:
    a, b = samples(5, 3), samples(19, 3, seed=1)
    made = session(scanned(turned))
    assert made.explain().regions
    kept, y = made.run(None, {"a": a, "b": b})
    np.testing.assert_array_equal(kept, a)
    np.testing.assert_allclose(y, ((b[:, None] - a[None]) ** 2).sum(2), rtol=1e-5)
    other = session(scanned(turned, keepdims=1))  # another body: the core's loop runs it
    assert not any(n["op_type"] == "Scan" and n["region"] for n in other.explain().nodes)
    np.testing.assert_allclose(other.run(["y"], {"a": a, "b": b})[0][..., 0], y, rtol=1e-5)


def test_rows_of_another_length_are_left_to_numpy() -> None:
    proto = scanned(False)
    proto.graph.input[1].type.tensor_type.shape.dim[1].ClearField("dim_value")
    a, b = samples(5, 3), samples(4, 1)
    y = session(proto).run(["y"], {"a": a, "b": b})[0]
    np.testing.assert_allclose(y, ((b[:, None] - a[None]) ** 2).sum(2), rtol=1e-5)


FEATURED: dict[str, dict[str, Any]] = {
    "Scaler": {"offset": [1.0, 2.0, 3.0], "scale": [0.5, 1.0, 2.0]},
    "Imputer": {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": 0.0},
    "LinearRegressor": {"coefficients": [1.0, 2.0, 3.0]},
    "LinearClassifier": {"coefficients": [1.0] * 3 + [2.0] * 3, "intercepts": [0.0, 1.0], **labels(2, False)},
    "SVMRegressor": {
        "support_vectors": [0.5] * 6, "coefficients": [1.0] * 2, "n_supports": 2, "rho": [0.0], "kernel_type": "RBF",
        "kernel_params": [0.1, 0.0, 2.0],
    },
}  # fmt: skip


@pytest.mark.parametrize("op_type", FEATURED)
def test_the_number_of_features_may_be_known_late(op_type: str) -> None:
    """Converters that leave it open, and shapes that are not inferred, were left to NumPy."""
    x = samples(4, 3)
    x[0] = 0
    outputs = 2 if op_type.endswith("Classifier") else 1
    proto = model(op_type, [x], outputs, **FEATURED[op_type])
    closed = run(proto, [x])
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "features"
    for open_, known in zip(run(proto, [x]), closed, strict=True):
        np.testing.assert_array_equal(open_, known)
    with pytest.raises(Exception, match=op_type):
        run(proto, [samples(4, 7)])


def test_rows_may_have_fewer_features_than_there_are_coefficients() -> None:
    """In one session, which knew others before: where a target's coefficients begin follows from the number."""
    given: dict[str, Any] = {"coefficients": [float(n) for n in range(1, 13)], "intercepts": [0.5, 1.0], "targets": 2}
    proto = model("LinearRegressor", [samples(5, 4)], **given)
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "features"
    made = session(proto)
    for features in (4, 3, 5, 3):
        x = samples(5, features)
        rows = np.arange(1.0, 2 * features + 1).reshape(2, features)
        np.testing.assert_allclose(made.run(None, {"x0": x})[0], x @ rows.T + [0.5, 1.0], rtol=1e-4, atol=1e-4)


def test_no_rows() -> None:
    none = np.zeros((0, 4), np.float32)
    check("Scaler", [none], offset=[1.0], scale=[1.0])
    check("Normalizer", [none], norm="L2")
    check("LinearRegressor", [none], coefficients=[1.0] * 4)
    check("LinearClassifier", [none], 2, coefficients=[1.0] * 8, intercepts=[0.0, 1.0], **labels(2, True))
    given = {"support_vectors": [0.0] * 8, "coefficients": [1.0] * 2, "n_supports": 2, "rho": [0.0]}
    for kernel in ("RBF", "POLY"):
        check("SVMRegressor", [none], kernel_type=kernel, kernel_params=[0.1, 0.0, 2.0], **given)


@pytest.mark.parametrize(
    "x", [np.array([0.5]), np.array([1e-7, 1e-3, 0.4999999, 0.5000001, 0.6, 0.999999, 1.0, 0.0, 2.0])]
)
def test_quantiles_of_the_normal_distribution(x: np.ndarray) -> None:
    """Against the kernel on doubles: the same formula without float32's cancellations. Near 1 the argument itself is that coarse."""
    column = x.astype(np.float32).reshape(-1, 1)
    proto = model("LinearRegressor", [column], coefficients=[1.0], post_transform="PROBIT")
    (got,) = run(proto, [column])
    from onnxplug_kernels.ops.ml_scores import probit

    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got, probit(np, column.astype(np.float64)), rtol=1e-4, atol=1e-7)


def test_labels_of_words_and_what_follows_them() -> None:
    """A list of words, read at the places of the best scores, as skl2onnx ends its classifiers."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("ArgMax", ["x"], ["best"], axis=1),
        helper.make_node("ArrayFeatureExtractor", ["words", "best"], ["label"], domain=ML),
        helper.make_node("Softmax", ["x"], ["p"]),
    ]
    held = [helper.make_tensor("words", TensorProto.STRING, [3], [b"a", b"b", b"c"])]
    made = [value("label", TensorProto.STRING, None), value("p", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, ["n", 3])], made, held)
    x = samples(7, 3)
    running = session(helper.make_model(graph, ir_version=10, opset_imports=OPSETS))
    assert all(str(node["region"]).startswith("native") for node in running.explain().nodes)
    found, p = running.run(None, {"x": x})
    assert found.tolist() == [["abc"[i] for i in x.argmax(axis=1)]]
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("rows", [1, 9])
def test_labels_of_words_are_the_callers(rows: int) -> None:
    """Strings are written into arrays made for the run, whether the region is all there is or others read them too."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node(
            "LinearClassifier", ["x"], ["label", "p"], domain=ML, coefficients=[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
            intercepts=[0.0] * 3, classlabels_strings=["a", "b", "c"],
        ),
        helper.make_node("StringConcat", ["label", "label"], ["twice"]),
    ]  # fmt: skip
    made = [value("label", TensorProto.STRING, ["n"]), value("p", TensorProto.FLOAT, None)]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(ML, 3)]
    for more in (0, 1):
        outputs = [*made, value("twice", TensorProto.STRING, None)][: 2 + more]
        graph = helper.make_graph(nodes[: 1 + more], "g", [value("x", TensorProto.FLOAT, ["n", 3])], outputs)
        running = session(helper.make_model(graph, ir_version=10, opset_imports=opsets))
        given = [samples(rows, 3, seed=seed) for seed in range(4)]
        found = [running.run(None, {"x": x}) for x in given]
        for x, (label, _, *rest) in zip(given, found, strict=True):
            expected = ["abc"[i] for i in x.argmax(axis=1)]
            assert label.dtype == object and label.tolist() == expected
            assert [r.tolist() for r in rest] == [[2 * word for word in expected]] * more

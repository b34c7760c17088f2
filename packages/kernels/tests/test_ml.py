"""Operators of ``ai.onnx.ml`` but ensembles of trees: against onnxruntime, and small cases worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from one_node import ML, Case, assert_equal, assert_portable, by_kernel, by_onnxruntime, is_portable, ml_case
from onnx import defs

from onnxplug_kernels import find
from onnxplug_kernels.ops.ml_linear import linear_regressor, svm_regressor
from onnxplug_kernels.refusals import FAIL, Refusal

WORDS = np.array([["a", "b"], ["zz", "c"]], dtype=object)


def features() -> Iterator[Case]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(5, 3)).astype(np.float32)
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        values = (3 * x).astype(dtype)
        name = np.dtype(dtype).name
        yield ml_case("ArrayFeatureExtractor", [values, np.array([[0, 2]])], label=name)
        yield ml_case("Scaler", [values], offset=[1.0, 2.0, 3.0], scale=[0.5, 2.0, 1.0], label=name)
        yield ml_case("FeatureVectorizer", [values, values[:, :2]], inputdimensions=[2, 4], label=name)
        for norm in ("MAX", "L1", "L2"):
            yield ml_case("Normalizer", [values], norm=norm, label=f"{name}-{norm}")
    yield ml_case("ArrayFeatureExtractor", [x[0], np.array([0, 2])], label="vector")
    yield ml_case("ArrayFeatureExtractor", [WORDS, np.array([1])], label="strings")
    yield ml_case("Binarizer", [x], threshold=0.5)
    hole = np.where(x > 1, np.float32(np.nan), x)
    yield ml_case("Imputer", [hole], imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=float("nan"))
    yield ml_case(
        "Imputer", [np.array([[0, 1], [1, 2]])], imputed_value_int64s=[7], replaced_value_int64=1, label="int64"
    )
    yield ml_case("OneHotEncoder", [np.array([[1.2, 3.9], [0.0, 8.0]], np.float32)], cats_int64s=[0, 1, 2, 3])
    yield ml_case("OneHotEncoder", [WORDS], cats_strings=["a", "c", "q"], label="strings")


def maps() -> Iterator[Case]:
    pairs: dict[str, Any] = {"cats_strings": ["a", "c", "q"], "cats_int64s": [5, 6, 7]}
    yield ml_case("CategoryMapper", [WORDS], label="strings", **pairs)
    yield ml_case("CategoryMapper", [np.array([5, 8, 7])], label="int64", **pairs)
    yield ml_case("LabelEncoder", [WORDS], classes_strings=["a", "c", "q"], label="1-strings")
    yield ml_case("LabelEncoder", [np.array([2, 8, -7])], classes_strings=["a", "c", "q"], label="1-int64")
    floats = np.array([1.0, 4.0, 3.0], np.float32)
    for version in (2, 4):
        for keys, x in (("strings", WORDS), ("floats", floats), ("int64s", np.array([[1, 9, 3]]))):
            table = {"strings": ["a", "c", "zz"], "floats": [1.0, 3.0, 2.0], "int64s": [3, 1, 2]}
            for values in table:
                lists = {f"keys_{keys}": table[keys], f"values_{values}": table[values]}
                yield ml_case("LabelEncoder", [x], version=version, label=f"{version}-{keys}-{values}", **lists)
    shorts = {"values_tensor": np.array([1, 2, 3], np.int16), "default_tensor": np.array([42], np.int16)}
    yield ml_case("LabelEncoder", [WORDS], version=4, keys_strings=["a", "c", "q"], label="tensors", **shorts)
    doubles = {"keys_tensor": np.array([1.0, np.nan]), "values_tensor": np.array([0.1, 0.2])}
    yield ml_case(
        "LabelEncoder",
        [np.array([1.0, np.nan, 3.0])],
        version=4,
        label="nan",
        default_tensor=np.array([0.5]),
        **doubles,
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    yield ml_case("ZipMap", [x], classlabels_strings=["a", "b", "c"], label="strings")
    yield ml_case("ZipMap", [x], classlabels_int64s=[4, 5, 6], label="int64")


def linear() -> Iterator[Case]:
    rng = np.random.default_rng(2)

    def weights(*shape: int) -> list[float]:
        return (rng.normal(size=shape) * 0.2).ravel().tolist()

    x = rng.uniform(size=(6, 4)).astype(np.float32)
    kernel = {"kernel_params": [0.5, 0.1, 3.0]}
    for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        after = {"post_transform": transform}
        for dtype in (np.float32, np.float64, np.int64):
            yield ml_case(
                "LinearClassifier",
                [(3 * x).astype(dtype)],
                2,
                coefficients=weights(3, 4),
                intercepts=weights(3),
                classlabels_strings=["a", "b", "c"],
                label=f"{transform}-{np.dtype(dtype).name}",
                **after,
            )
        yield ml_case(
            "LinearRegressor",
            [x],
            coefficients=weights(3, 4),
            intercepts=weights(3),
            targets=3,
            label=transform,
            **after,
        )
        for kind in ("LINEAR", "POLY", "RBF", "SIGMOID"):
            for counts in ([3, 4], [2, 1, 3, 2]):
                n, total = len(counts), sum(counts)
                pairs = n * (n - 1) // 2
                machine = {
                    "coefficients": weights(n - 1, total),
                    "support_vectors": rng.normal(size=total * 4).tolist(),
                    "vectors_per_class": counts,
                    "rho": weights(pairs),
                    "kernel_type": kind,
                    "classlabels_ints": list(range(10, 10 + n)),
                    **kernel,
                    **after,
                }
                # onnxruntime leaves two scores from one machine untransformed by softmax.
                if n > 2 or transform in ("NONE", "LOGISTIC"):
                    yield ml_case("SVMClassifier", [x], 2, label=f"{kind}-{n}-{transform}", **machine)
                odds = {"prob_a": (-rng.uniform(0.5, 2, size=pairs)).tolist(), "prob_b": weights(pairs)}
                yield ml_case("SVMClassifier", [x], 2, label=f"{kind}-{n}-{transform}-odds", **machine, **odds)
        yield ml_case(
            "SVMClassifier",
            [x],
            2,
            coefficients=weights(3, 4),
            rho=[0.1],
            classlabels_ints=[1, 2, 3],
            label=f"liblinear-{transform}",
            **kernel,
            **after,
        )
    for kind in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        for one_class in (0, 1):
            yield ml_case(
                "SVMRegressor",
                [x],
                coefficients=weights(5),
                support_vectors=rng.normal(size=20).tolist(),
                n_supports=5,
                rho=[-0.1],
                kernel_type=kind,
                one_class=one_class,
                label=f"{kind}-{one_class}",
                **kernel,
            )
    yield ml_case(
        "LinearClassifier",
        [x],
        2,
        coefficients=weights(4),
        intercepts=[0.1],
        classlabels_ints=[5, 6],
        label="one score for two labels",
    )
    yield ml_case(
        "LinearRegressor", [x], coefficients=weights(5, 4), intercepts=weights(3), targets=3, label="more than it needs"
    )


def single_scores() -> Iterator[Case]:
    """One score with a transform."""
    x = np.array([[0], [1]], np.float32)
    for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        after, label = {"post_transform": transform}, f"one-{transform}"
        line = {"coefficients": [0.5], "kernel_params": [0.0, 0.0, 0.0]}
        yield ml_case("SVMRegressor", [x], label=label, rho=[0.1], kernel_type="LINEAR", **line, **after)
        yield ml_case("LinearRegressor", [x], label=label, intercepts=[0.1], coefficients=[0.5], targets=1, **after)
        two = {"classlabels_ints": [4, 5], **after}
        yield ml_case("LinearClassifier", [x], 2, label=label, intercepts=[0.1], coefficients=[0.5], **two)
        vectors = {"support_vectors": [1.0, -1.0], "vectors_per_class": [1, 1], "kernel_params": [0.0, 0.0, 0.0]}
        machine = {"coefficients": [1.0, -0.5], "rho": [0.1], "kernel_type": "LINEAR", **vectors}
        yield ml_case("SVMClassifier", [x], 2, label=label, **machine, **two)


CASES = [*features(), *maps(), *linear(), *single_scores()]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_like_onnxruntime(case: Case) -> None:
    assert_equal(case, by_kernel(case), by_onnxruntime(case))


@pytest.mark.parametrize("case", [c for c in CASES if is_portable(c)], ids=str)
def test_with_the_standard_alone(case: Case) -> None:
    assert_portable(case)


def test_features_of_other_samples() -> None:
    join = find(ML, "FeatureVectorizer", 1).function  # type: ignore[union-attr]
    with pytest.raises(Refusal, match="Input 0 batch size: 3, input 1 batch size: 2") as raised:
        join(np, np.ones((3, 1)), np.ones((2, 2)), inputdimensions=[1, 2])
    assert raised.value.status == FAIL


def test_too_few_coefficients() -> None:
    with pytest.raises(ValueError, match="3 coefficients are too few for 2 targets of 2 features"):
        linear_regressor(np, np.ones((1, 2), np.float32), coefficients=[1.0, 2.0, 3.0], targets=2)


def test_every_version_is_in_the_catalogue() -> None:
    missing = [
        f"{s.name}-{s.since_version}"
        for s in defs.get_all_schemas_with_history()
        if s.domain == ML and find(ML, s.name, s.since_version) is None
    ]
    assert not missing


def test_maps_are_dicts() -> None:
    def run(op_type: str, x: Any, **attributes: Any) -> Any:
        entry = find(ML, op_type, 1)
        assert entry is not None
        return entry.function(np, x, **attributes)

    numbers = {3: 0.5, 1: 2.0}
    assert run("CastMap", numbers).tolist() == [[2.0, 0.5]]
    assert run("CastMap", numbers, map_form="SPARSE", max_map=5).tolist() == [[0, 2.0, 0, 0.5, 0]]
    assert run("CastMap", numbers, cast_to="TO_INT64").tolist() == [[2, 0]]
    assert run("CastMap", {1: "7"}, cast_to="TO_FLOAT").tolist() == [[7.0]]
    vector = run("DictVectorizer", {"a": 4, "c": 8}, string_vocabulary=["a", "c", "b", "z"])
    assert (vector.tolist(), vector.dtype) == ([[4, 8, 0, 0]], np.int64)
    assert run("DictVectorizer", {1: "x"}, int64_vocabulary=[2, 1]).tolist() == [["", "x"]]


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 100])
@pytest.mark.parametrize("names", [["a"], [3, 1, 2], list(range(40))])
def test_maps_of_any_number_of_rows(rows: int, names: list[Any]) -> None:
    entry = find(ML, "ZipMap", 1)
    assert entry is not None
    x = np.random.default_rng(0).normal(size=(rows, len(names))).astype(np.float32)
    given = {"classlabels_strings" if names == ["a"] else "classlabels_int64s": names}
    maps = entry.function(np, x, **given)
    assert [list(m.items()) for m in maps] == [list(zip(names, row, strict=True)) for row in x.tolist()]


def test_repeated_and_nan_keys() -> None:
    """As onnxruntime: the first of equal keys wins (the specification of version 4 says the last), and NaN is found from version 4 on."""
    encode = find(ML, "LabelEncoder", 4).function  # type: ignore[union-attr]
    assert encode(np, np.array([3, 1, 9]), keys_int64s=[3, 1, 3], values_int64s=[4, 5, 6]).tolist() == [4, 5, -1]
    assert encode(np, WORDS, keys_strings=["a", "a"], values_int64s=[4, 5]).tolist() == [[4, -1], [-1, -1]]
    x = np.array([np.nan, 2.0], np.float32)
    nans = {"keys_floats": [float("nan")] * 2}
    assert encode(np, x, **nans, values_strings=["none", "no"]).tolist() == ["none", "_Unused"]
    assert encode(np, x, **nans, values_floats=[1.5, 2.5], default_float=0.5).tolist() == [1.5, 0.5]
    older = find(ML, "LabelEncoder", 2).function  # type: ignore[union-attr]
    assert older(np, x, **nans, values_strings=["none", "no"]).tolist() == ["_Unused", "_Unused"]
    assert older(np, x, **nans, values_floats=[1.5, 2.5], default_float=0.5).tolist() == [0.5, 0.5]


def test_one_hot_without_zeros() -> None:
    encode = find(ML, "OneHotEncoder", 1).function  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="Unknown Category and zeros = 0"):
        encode(np, WORDS, cats_strings=["a"], zeros=0)


def prepared(op_type: str, version: int, **attributes: Any) -> Any:
    entry = find(ML, op_type, version)
    assert entry is not None and entry.prepare is not None
    return entry.prepare(np, **attributes)


@pytest.mark.parametrize("version", [2, 4])
def test_floats_that_become_words(version: int) -> None:
    """NaN is a key of one version only; of equal keys the first is taken."""
    keys, values = [1.0, float("nan"), 1.0, 0.1], ["a", "n", "b", "c"]
    run = prepared("LabelEncoder", version, keys_floats=keys, values_strings=values, default_string="-")
    x = np.array([[1, np.nan], [0.1, -0.0]], np.float32)
    assert run(x).tolist() == [["a", "-" if version == 2 else "n"], ["c", "-"]]


def test_elements_in_several_categories() -> None:
    run = prepared("OneHotEncoder", 1, cats_strings=["a", "b", "a"])
    wanted = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]], np.float32)
    np.testing.assert_array_equal(run(np.array(["a", "b", "c"], object)), wanted, strict=True)
    assert run(np.zeros((2, 0), object)).shape == (2, 0, 3)
    with pytest.raises(ValueError, match="Unknown Category and zeros = 0"):
        prepared("OneHotEncoder", 1, cats_int64s=[1, 2], zeros=0)(np.array([1.9, 3.0]))


def test_maps_as_rows() -> None:
    assert prepared("DictVectorizer", 1, string_vocabulary=["a", "b"])({"b": "x", "z": "y"}).tolist() == [["", "x"]]
    row = prepared("DictVectorizer", 1, int64_vocabulary=[3, 1])({1: np.float64(0.5)})
    np.testing.assert_array_equal(row, np.array([[0, 0.5]]), strict=True)
    assert prepared("CastMap", 1, cast_to="TO_STRING")({3: 1.5, 1: 2.0}).tolist() == [["2.000000", "1.500000"]]
    sparse = prepared("CastMap", 1, cast_to="TO_INT64", map_form="SPARSE", max_map=4)
    np.testing.assert_array_equal(sparse({3: 1.5, 1: 2.0}), np.array([[0, 2, 0, 1]]), strict=True)
    with pytest.raises(ValueError, match=r"outside 0\.\.3"):
        sparse({4: 1.0})


@pytest.mark.parametrize("kind", ["RBF", "LINEAR"])
@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 2)])
def test_samples_that_are_no_support_vectors(kind: str, shape: tuple[int, ...]) -> None:
    told = {
        "coefficients": [1.0, 1.0],
        "support_vectors": [1.0, 2.0],
        "n_supports": 2,
        "rho": [0.0],
        "kernel_type": kind,
    }
    with pytest.raises(Refusal, match=r"features|dimensions"):
        svm_regressor(np, np.ones(shape, np.float32), **told)

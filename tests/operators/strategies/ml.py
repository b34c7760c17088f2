"""Features, labels, maps and linear models of ``ai.onnx.ml``."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract.types import numpy_dtype
from operators.case import Case, Draw, strategy
from operators.values import element_name

ML = "ai.onnx.ml"
WORDS = ["cat", "dog", "bird", "fish"]
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def features(d: Draw, parameter: str, columns: int) -> np.ndarray:
    """(N, columns) of any type."""
    return d.tensor((d.integer(1, 4), columns), d.element(parameter), -3, 3)


def floats(d: Draw, count: int, low: float = -1, high: float = 1) -> list[float]:
    return [float(v) for v in d.rng.uniform(low, high, count).astype(np.float32)]


def chosen(d: Draw, options: list[Any], shape: tuple[int, ...], element: str) -> np.ndarray:
    """Random members of a list."""
    data = [options[i] for i in d.rng.integers(0, len(options), int(np.prod(shape)))]
    return np.array(data, numpy_dtype(element)).reshape(shape)


@strategy("ArrayFeatureExtractor", domain=ML)
def extractor(d: Draw) -> Case:
    shape = d.shape(1, 3, sizes=(3, 2, 4))
    count = d.integer(1, 3)
    indices = d.rng.integers(0, shape[-1], count).astype(np.int64)
    return Case([d.tensor(shape), indices.reshape(1, -1) if d.flag() else indices])


@strategy("Binarizer", domain=ML)
def binarizer(d: Draw) -> Case:
    return Case([features(d, "T", 3)], d.maybe(threshold=d.pick(0.5, 1.0)))


@strategy("FeatureVectorizer", domain=ML)
def feature_vectorizer(d: Draw) -> Case:
    rows, widths = d.integer(1, 3), [d.integer(1, 3) for _ in range(d.pick(2, 1, 3))]
    return Case(
        [d.tensor((rows, width), d.element("T1")) for width in widths],
        {"inputdimensions": [w + d.pick(0, 1, -1) or 1 for w in widths]},
    )


@strategy("Imputer", domain=ML)
def imputer(d: Draw) -> Case:
    element = d.element()
    x = d.tensor((d.integer(1, 4), 3), element, -2, 2)
    many = d.pick(1, 3)
    if element in ("float", "double"):
        missing = d.pick(float("nan"), 1.0)
        x[d.rng.random(x.shape) < 0.4] = missing
        return Case([x], {"imputed_value_floats": floats(d, many), "replaced_value_float": missing})
    return Case([x], {"imputed_value_int64s": list(range(7, 7 + many)), "replaced_value_int64": 1})


@strategy("Normalizer", domain=ML)
def normalizer(d: Draw) -> Case:
    return Case([d.tensor((d.integer(1, 4), 3), None, 1, 5)], d.maybe(norm=d.pick("MAX", "L1", "L2")))


@strategy("OneHotEncoder", domain=ML)
def one_hot_encoder(d: Draw) -> Case:
    element, zeros = d.element(), d.pick(1, 0)
    shape = d.shape(1, 2, sizes=(3, 2, 4))
    attributes = d.maybe(zeros=1) if zeros else {"zeros": 0}
    if element == "string":
        return Case(
            [chosen(d, WORDS[: 3 if zeros == 0 else 4], shape, element)], {**attributes, "cats_strings": WORDS[:3]}
        )
    return Case(
        [chosen(d, [1, 2, 5] if zeros == 0 else [1, 2, 5, 9], shape, element)], {**attributes, "cats_int64s": [1, 2, 5]}
    )


@strategy("Scaler", domain=ML)
def scaler(d: Draw) -> Case:
    many = d.pick(3, 1)
    return Case([features(d, "T", 3)], {"offset": floats(d, many), "scale": floats(d, many)})


@strategy("CategoryMapper", domain=ML)
def category_mapper(d: Draw) -> Case:
    if d.cell.parameter == "T2":
        d.bind("T1", "string" if d.element("T2") == "int64" else "int64")
    text = d.element("T1") == "string"
    d.bind("T2", "int64" if text else "string")
    attributes = {
        "cats_int64s": [1, 2, 5],
        "cats_strings": WORDS[:3],
        **(d.maybe(default_int64=9) if text else d.maybe(default_string="none")),
    }
    return Case([chosen(d, WORDS if text else [1, 2, 5, 7], d.shape(1, 2), d.element("T1"))], attributes)


@strategy("LabelEncoder", domain=ML)
def label_encoder(d: Draw) -> Case:
    if d.version == 1:
        if d.cell.parameter == "T2":
            d.bind("T1", "string" if d.element("T2") == "int64" else "int64")
        text = d.element("T1") == "string"
        d.bind("T2", "int64" if text else "string")
        data = chosen(d, WORDS if text else [0, 1, 2, 7], d.shape(1, 2), d.element("T1"))
        return Case(
            [data],
            {"classes_strings": WORDS[:3], **(d.maybe(default_int64=9) if text else d.maybe(default_string="none"))},
        )
    names = {"float": "floats", "int64": "int64s", "string": "strings"}
    pools: dict[str, list[Any]] = {"string": WORDS, "float": [0.5, 1.5, 2.5, -1.0], "double": [0.5, 1.5, 2.5, -1.0]}
    source, target = d.element("T1"), d.element("T2")
    keys, values = pools.get(source, [1, 2, 5, 9]), pools.get(target, [10, 20, 30, 40])
    attributes: dict[str, Any] = {}
    for side, element, data in (("keys", source, keys[:3]), ("values", target, values[:3])):
        if element in names and (d.version == 2 or d.pick(True, False)):
            attributes[f"{side}_{names[element]}"] = data
        else:
            attributes[f"{side}_tensor"] = np.array(data, numpy_dtype(element))
    if "values_tensor" in attributes:
        attributes["default_tensor"] = np.array(values[3:], numpy_dtype(target))
    elif d.flag():
        attributes[f"default_{names[target][:-1]}"] = values[3]
    return Case([chosen(d, keys, d.shape(1, 2), source)], attributes)


@strategy("CastMap", domain=ML)
def cast_map(d: Draw) -> Case:
    target = d.element("T2")
    numeric = "string" not in d.type("T1")
    pool: list[Any] = [1.5, -2.0, 3.25, 0.0] if numeric else ["1", "-2", "3"]
    keys = sorted(d.rng.permutation(6)[: d.integer(1, 4)].tolist())
    x = {key: pool[i % len(pool)] for i, key in enumerate(keys)}
    sparse = {"map_form": "SPARSE", "max_map": 7} if d.flag() else {}
    return Case([x], {"cast_to": {"float": "TO_FLOAT", "int64": "TO_INT64", "string": "TO_STRING"}[target], **sparse})


@strategy("DictVectorizer", domain=ML)
def dict_vectorizer(d: Draw) -> Case:
    if d.cell.parameter == "T2":
        target = d.element("T2")
        d.types["T1"] = d.pick(*(t for t in d.allowed("T1") if _map_value(t) == target))
    type_ = d.type("T1")
    value = _map_value(type_)
    d.bind("T2", value)
    text_keys = type_.startswith("map(string")
    keys: list[Any] = list(WORDS) if text_keys else [1, 2, 5, 9]
    pool: list[Any] = {"string": ["p", "q", "r", "s"], "int64": [4, 5, 6, 7]}.get(value, [0.5, 1.5, 2.5, 3.5])
    if value == "double":
        pool = [np.float64(v) for v in pool]
    found = {key: pool[i] for i, key in enumerate(keys[:3]) if i == 0 or d.pick(True, False)}
    return Case([found], {"string_vocabulary" if text_keys else "int64_vocabulary": [keys[2], keys[0], keys[1]]})


def _map_value(type_: str) -> str:
    """The element of a map's values: "float" of map(int64, float)."""
    return element_name(type_[type_.index(",") + 1 : -1].strip())


@strategy("ZipMap", domain=ML)
def zip_map(d: Draw) -> Case:
    x = d.tensor((d.integer(1, 3), 3), "float")
    return Case([x], {"classlabels_strings": WORDS[:3]} if "string" in d.type() else {"classlabels_int64s": [1, 5, 9]})


def labels(d: Draw, parameter: str, count: int, integers: str) -> dict[str, Any]:
    """Class labels of the type that the output has."""
    text = d.element(parameter) == "string"
    return {"classlabels_strings": WORDS[:count]} if text else {integers: list(range(10, 10 + count))}


@strategy("LinearClassifier", domain=ML)
def linear_classifier(d: Draw) -> Case:
    classes = d.pick(3, 4)
    attributes = {
        "coefficients": floats(d, 3 * classes),
        **labels(d, "T2", classes, "classlabels_ints"),
        **d.maybe(multi_class=d.pick(0, 1)),
    }
    attributes |= {"intercepts": floats(d, classes)} if d.pick(True, False) else {}
    attributes |= d.maybe(post_transform=d.pick(*TRANSFORMS[:4]))
    return Case([features(d, "T1", 3)], attributes, 2)


@strategy("LinearRegressor", domain=ML)
def linear_regressor(d: Draw) -> Case:
    targets = d.pick(2, 1)
    attributes = {
        "coefficients": floats(d, 3 * targets),
        "targets": targets,
        **d.maybe(post_transform=d.pick(*TRANSFORMS[:4]) if targets > 1 else "NONE"),
    }
    attributes |= {"intercepts": floats(d, targets)} if d.pick(True, False) else {}
    return Case([features(d, "T", 3)], attributes)


def machine(d: Draw) -> dict[str, Any]:
    """A kernel function and its parameters."""
    kind = d.pick("LINEAR", "RBF", "POLY", "SIGMOID")
    return {"kernel_type": kind, "kernel_params": [0.5, 0.25, 2.0]}


@strategy("SVMRegressor", domain=ML)
def svm_regressor(d: Draw) -> Case:
    count = d.integer(1, 3)
    attributes = {
        **machine(d),
        "n_supports": count,
        "support_vectors": floats(d, 3 * count),
        "coefficients": floats(d, count),
        "rho": floats(d, 1),
    }
    return Case([features(d, "T", 3)], {**attributes, **({"one_class": 1} if d.flag() else {})})


@strategy("SVMClassifier", domain=ML)
def svm_classifier(d: Draw) -> Case:
    classes = d.pick(3, 2)
    per_class = [d.integer(1, 2) for _ in range(classes)]
    total, pairs = sum(per_class), classes * (classes - 1) // 2
    attributes: dict[str, Any] = {
        **machine(d), **labels(d, "T2", classes, "classlabels_ints"), "vectors_per_class": per_class, "support_vectors": floats(d, 3 * total),
        "coefficients": floats(d, total * (classes - 1)), "rho": floats(d, pairs),
    }  # fmt: skip
    if d.flag():
        attributes |= {"prob_a": floats(d, pairs, -2, -1), "prob_b": floats(d, pairs)}
    return Case([features(d, "T1", 3)], attributes, 2)

"""The kit's own structures with integers that floats of as many bits do not tell apart, of operators that would overflow on most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxplug_testkit.kernels.own.node import I32, ML, N, OwnNode, S, bytes_of, ints, node, scalar

Attributes = dict[str, Any]
_SHORT, _LONG = 2**25 + 1, 2**55 + 1
"""No float, no double."""


def large_nodes() -> Iterator[OwnNode]:
    """Structures of ai.onnx and ai.onnx.ml."""
    for dtype, text, most, element in ((np.int32, I32, _SHORT, "int32"), (np.int64, N, _LONG, "int64")):
        factors = (np.array([[1, most], [-1, 3]], dtype), text)
        yield node("ReduceProd", 18, [factors], [text], label=f"large_{element}", elements=element)
        rows = (np.array([1, -1, most, 3, 1], dtype), text)
        yield node("CumProd", 26, [rows, (scalar(0, np.int64), N)], [text], label=f"large_{element}", elements=element)
        wanted = [(bytes_of(dtype, *shape), text) for shape in ((3, 4), (4, 2))]
        yield node("Einsum", 12, wanted, [text], label=f"large_{element}", elements=element, equation="ij,jk->ik")
    steps = [(scalar(v, np.int64), N) for v in (_LONG, _LONG + 6, 2)]
    yield node("Range", 11, steps, [N], label="large", elements="int64")
    yield node("ConstantOfShape", 9, [(ints(2, 3), N)], [N], label="large", value=np.array([_LONG]))
    numbers = ints(_LONG, _LONG - 1, 5, _LONG, 6)
    keys, keys32 = [_LONG - 1, _LONG, 5], [_SHORT - 1, _SHORT, 5]
    told: Attributes = {"keys_int64s": keys, "values_int64s": [_LONG, _LONG - 2, 7], "default_int64": _LONG + 2}
    yield node("LabelEncoder", 2, [(numbers, N)], [N], ML, "large", elements="int64", **told)
    short: Attributes = {
        f"{what}_tensor": np.array(v, np.int32)
        for what, v in (("keys", keys32), ("values", [7, 8, 9]), ("default", [1]))
    }
    words = np.array([_SHORT, _SHORT - 1, 5, _SHORT, 6], np.int32)
    yield node("LabelEncoder", 4, [(words, I32)], [I32], ML, "large_int32", elements="int32", **short)
    named: Attributes = {"cats_int64s": keys, "cats_strings": ["one", "two", "five"]}
    yield node("CategoryMapper", 1, [(numbers, N)], [S], ML, "large", elements="int64", **named)

"""LabelEncoder from numbers, or from strings that the region numbers, to numbers, or from numbers to strings, of which it makes places."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.kernels.lookup import Lookup
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.ml_scores import ML
from onnxplug_ep_cpu.codegen.lower.numbered import read_as_numbers, spell, word_numbers
from onnxplug_ep_cpu.codegen.lower.support import attributes, typed
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import element_of
from onnxplug_ep_cpu.codegen.words import numbered
from onnxplug_kernels.distinct import distinct

GAPS = 4
"""Keys make a direct table if it has at most so many places for each."""
BLOCK = 1024
_VALUES = frozenset({"float32", "int32", "int64"})


def _lists(node: NodeView, numbers: dict[str, int] | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Keys and values as numbers, keys that are strings by ``numbers``, values that are strings by their places; None where either are
    other strings or missing."""
    found = []
    for name in ("keys", "values"):
        given: Any = node.attributes.get(f"{name}_tensor")
        for kind, dtype in (("floats", np.float32), ("int64s", np.int64)):
            listed = node.attributes.get(f"{name}_{kind}")
            if given is None and listed:
                given = np.asarray(listed, dtype)
        words = _texts(node, name, given)
        if name == "keys" and numbers is not None and words:
            given = numbered(words, numbers)
        elif name == "values" and numbers is None and words:
            given = np.arange(len(words))
        if given is None or np.asarray(given).dtype.kind not in "if":
            return None
        found.append(np.asarray(given).reshape(-1))
    keys, values = found
    return (keys, values) if keys.shape == values.shape and keys.size else None


def _texts(node: NodeView, name: str, given: Any = None) -> list[str]:
    """The keys or values that are strings, of a list or of a tensor."""
    words = node.attributes.get(f"{name}_strings") if given is None else np.ravel(given).tolist()
    return list(words) if words and isinstance(words[0], str) else []


def _supports(node: NodeView) -> str | None:
    x, y = node.inputs[0], node.outputs[0]
    reads_words = x is not None and x.dtype == object
    makes_words = y is not None and y.dtype == object and not reads_words
    reason = typed(None if reads_words else x, {"float32", "int64"}) or typed(None if makes_words else y, _VALUES)
    if reason is not None:
        return reason
    if makes_words and y is not None and read_as_numbers(y):
        return "its strings are numbered again"
    lists = _lists(node, {} if reads_words else None)
    if lists is None:
        return "its table is of strings, or has not as many keys as values"
    assert x is not None and y is not None
    fits = (reads_words or lists[0].dtype == x.dtype) and (makes_words or lists[1].dtype == y.dtype)
    return None if fits else "its table is of other types than its operand and result"


@lowering("LabelEncoder", supports=_supports, domain=ML)
def label_encoder(b: Lowering, node: NodeView) -> None:
    """As ``onnxplug_kernels.ops.ml_maps.label_encoder``."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    numbers = word_numbers(b, x) if x.dtype == object else None
    table = b.prepared.made(node, lambda: _Table(node, numbers))
    tensor = b.dense(x)
    element = element_of(table.values.dtype)
    out = b.scratch(tensor.shape, element=element) if table.words else b.output(y, element=element)
    made = out if out.is_dense else b.scratch(out.shape, element=out.element)
    args: list[int | Ref] = [
        made.ref, tensor.ref, *(b.tensor_of(t).ref for t in (table.keys, table.values, table.default)), made.size, BLOCK,
        len(table.values), table.smallest, max(1, (len(table.values) - 1).bit_length() + 1),
    ]  # fmt: skip
    kernel = Lookup(tensor.element == "float32", table.direct, made.itemsize)
    b.program.call(kernel, args, -(-made.size // BLOCK), 6.0 * made.size)
    b.values[y.name] = made
    if table.words:
        spell(b, y, made, table.words)


class _Table:
    """Sorted keys with their values, or values by number; the default and what NaN becomes."""

    def __init__(self, node: NodeView, numbers: dict[str, int] | None) -> None:
        lists = _lists(node, numbers)
        assert lists is not None
        keys, values = lists
        self.words = _texts(node, "values", node.attributes.get("values_tensor")) if numbers is None else []
        """The strings that values are places of, and the default behind them."""
        if self.words:
            self.words.append(self._default_text(node))
        default = len(self.words) - 1 if self.words else self._default(node, values.dtype)
        broken = (
            np.flatnonzero(keys != keys) if node.since_version >= 4 else np.empty(0, np.int64)
        )  # never found before
        self.default = np.array([default, values[broken[0]] if broken.size else default], values.dtype)
        real = keys == keys
        self.keys, first = distinct(keys[real])
        self.values = values[real][first]
        self.smallest, self.direct = 0, False
        if keys.dtype == np.int64 and int(self.keys[-1]) - int(self.keys[0]) < GAPS * len(self.keys) + 64:
            self.direct, self.smallest = True, int(self.keys[0])
            by_number = np.full(int(self.keys[-1]) - self.smallest + 1, default, values.dtype)
            by_number[self.keys - self.smallest] = self.values
            self.values = by_number
        if not self.keys.size:  # nothing but NaN: a key that none equals, for there to be a table
            self.keys, self.values = np.full(1, np.nan, keys.dtype), self.default[:1]

    @staticmethod
    def _default_text(node: NodeView) -> str:
        given = attributes(node, default_string="_Unused", default_tensor=None)
        tensor = given["default_tensor"]
        return str(given["default_string"] if tensor is None else tensor.reshape(-1)[0])

    @staticmethod
    def _default(node: NodeView, dtype: np.dtype) -> Any:
        given = attributes(node, default_float=-0.0, default_int64=-1, default_tensor=None)
        if given["default_tensor"] is not None:
            return given["default_tensor"].reshape(-1)[0]
        return given["default_float" if dtype.kind == "f" else "default_int64"]

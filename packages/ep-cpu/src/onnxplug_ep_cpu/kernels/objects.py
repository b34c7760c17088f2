"""Kernels of operators on strings and sequences in generated code, in the place of those of the catalogue, which take what these do not.

A rule imports what it needs: a model has one or two of these operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen import text
from onnxplug_ep_cpu.codegen.objects import MOST_RANK, Written, make

Kernel = Callable[..., Any]


def native(node: NodeView, kernel: Kernel) -> Kernel:
    """What computes the node in generated code and has ``kernel`` take what it cannot; ``kernel`` where there is no such code."""
    rule = RULES.get((node.domain, node.op_type))
    made = None if rule is None else rule(node, kernel)
    return kernel if made is None else made


def _is_text(node: NodeView, number: int = 0) -> bool:
    value = node.inputs[number] if number < len(node.inputs) else None
    return value is not None and value.dtype == text.OBJECT


def _made(written: Written, kernel: Kernel, *objects: Any) -> Kernel:
    """With the dtype of strings first of its own words, then the addresses of these objects."""
    held = (text.OBJECT, *objects)
    return make(written, kernel, *map(id, held), held=held)


def _concat(node: NodeView, kernel: Kernel) -> Kernel | None:
    return _made(text.Concat(), kernel)


def _equal(node: NodeView, kernel: Kernel) -> Kernel | None:
    return _made(text.Equal(), kernel) if _is_text(node) else None


def _normalizer(node: NodeView, kernel: Kernel) -> Kernel | None:
    from onnxplug_kernels.ops.text import case_changes

    action = str(node.attributes.get("case_change_action"))
    if action not in ("LOWER", "UPPER") or node.attributes.get("stopwords"):
        return None
    return _made(text.Change(), kernel, case_changes(str(node.attributes.get("locale", "")))[action])


def _full_match(node: NodeView, kernel: Kernel) -> Kernel | None:
    from onnxplug_kernels import re2

    return _made(text.Matches(), kernel, re2.compile(str(node.attributes.get("pattern", ""))).fullmatch, None)


def _split(node: NodeView, kernel: Kernel) -> Kernel | None:
    separator, limit = str(node.attributes.get("delimiter", "")), node.attributes.get("maxsplit")
    if limit is not None and (limit < 0 or not separator):
        return None
    at = -1 if limit is None else int(limit)
    held = (text.OBJECT, separator, "")
    return make(text.Split(), kernel, id(text.OBJECT), id(separator) if separator else 0, at, id(held[2]), held=held)


def _mapped(node: NodeView, kernel: Kernel) -> Kernel | None:
    from onnxplug_ep_cpu.codegen import words
    from onnxplug_kernels.ops.ml_maps import ByType, Mapped

    table = kernel.of(_is_text(node)) if isinstance(kernel, ByType) else kernel
    given, made = node.inputs[0], node.outputs[0]
    if not isinstance(table, Mapped) or given is None or made is None or given.dtype not in (text.OBJECT, text.INT64):
        return None
    if table.dtype not in (text.OBJECT, text.INT64, words.FLOAT):
        return None
    held = (given.dtype, table.table, table.default)
    return make(words.Lookup(given.dtype == text.OBJECT, table.dtype.name), kernel, *map(id, held), held=held)


def _one_hot(node: NodeView, kernel: Kernel) -> Kernel | None:
    from onnxplug_ep_cpu.codegen import words

    known = list(node.attributes.get("cats_strings", ()))
    if not _is_text(node) or len(set(known)) < len(known) or not node.attributes.get("zeros", 1):
        return None
    held = (text.OBJECT, {word: at for at, word in enumerate(known)})
    return make(words.OneHot(), kernel, *map(id, held), len(known), held=held)


def _cast(node: NodeView, kernel: Kernel) -> Kernel | None:
    from onnxplug_ep_cpu.codegen import words
    from onnxplug_kernels.dtypes import numpy_dtype

    given = node.inputs[0]
    if given is None or node.since_version < 6:  # which names its type with a string
        return None
    to = numpy_dtype(int(node.attributes["to"]))
    if given.dtype == text.OBJECT and to in (words.FLOAT, words.DOUBLE, text.INT64):
        return _made(words.Numbers(to.name), kernel)
    if to == text.OBJECT and given.dtype in (words.FLOAT, words.DOUBLE, text.INT64):
        held = (given.dtype, "NaN", "INF", "-INF")
        return make(words.Texts(given.dtype.name), kernel, *map(id, held), held=held)
    return None


def _gather(node: NodeView, kernel: Kernel) -> Kernel | None:
    from onnxplug_ep_cpu.codegen import rearranged

    at = node.inputs[1]
    if not _is_text(node) or at is None or at.dtype != text.INT64:
        return None
    if node.domain:
        return _made(rearranged.Take(-1, flat=True), kernel, text.INT64)
    return _made(rearranged.Take(int(node.attributes.get("axis", 0))), kernel, text.INT64)


def _shown(node: NodeView, kernel: Kernel) -> Kernel | None:
    from onnxplug_ep_cpu.codegen import rearranged

    if not _is_text(node):
        return None
    given = node.inputs[1] if len(node.inputs) > 1 else None
    if node.op_type == "Flatten":
        numbers = (int(node.attributes.get("axis", 1)),)
    elif given is None or given.constant is None or not 0 < given.constant.size <= MOST_RANK:
        return None
    else:
        numbers = tuple(given.constant.ravel().tolist())
    reshaped = node.op_type == "Reshape" and 0 not in numbers and min(numbers) >= -1 and numbers.count(-1) <= 1
    put_in = node.op_type == "Unsqueeze" and min(numbers) >= 0 and len(set(numbers)) == len(numbers)
    if not (reshaped or put_in or node.op_type == "Flatten"):
        return None
    return _made(rearranged.Shown(node.op_type, numbers, len(node.inputs)), kernel)


def _where(node: NodeView, kernel: Kernel) -> Kernel | None:
    from onnxplug_ep_cpu.codegen import rearranged

    return _made(rearranged.Where(), kernel, text.BOOL) if _is_text(node, 1) else None


def _strided(node: NodeView, kernel: Kernel) -> Kernel | None:
    from onnxplug_ep_cpu.kernels.strided import described

    written = described(node) if _is_text(node) else None
    return None if written is None else _made(written, kernel)


def _tokenizer(node: NodeView, kernel: Kernel) -> Kernel | None:
    from onnxplug_kernels.ops.contrib_text import END, START, Tokenizer

    if not isinstance(kernel, Tokenizer):
        return None
    split = kernel.split if kernel.least == 1 else partial(_long_tokens, kernel.split, kernel.least)
    held = (split, list, kernel.pad, START, END)
    return _made(text.Tokens(kernel.marked), kernel, *held)


def _long_tokens(split: Callable[[str], list[str]], least: int, word: str) -> list[str]:
    return [token for token in split(word) if len(token) >= least]


def _murmur(node: NodeView, kernel: Kernel) -> Kernel | None:
    from onnxplug_ep_cpu.codegen import hashes

    if not _is_text(node):
        return None
    written = hashes.Murmur(bool(node.attributes.get("positive", 1)))
    return make(written, kernel, id(text.OBJECT), int(node.attributes.get("seed", 0)), held=text.OBJECT)


_ONE = np.array(1, np.int64)


def _split_to_sequence(node: NodeView, kernel: Kernel) -> Kernel | None:
    from onnxplug_ep_cpu.codegen import sequences

    given = len(node.inputs) == 2 and node.inputs[1] is not None
    if not given and (len(node.inputs) > 1 or not node.attributes.get("keepdims", 1)):
        return None
    held = (text.INT64, _ONE)
    return make(sequences.Split(int(node.attributes.get("axis", 0)), 1 + given), kernel, *map(id, held), held=held)


def _concat_from_sequence(node: NodeView, kernel: Kernel) -> Kernel | None:
    from onnxplug_ep_cpu.codegen import sequences

    strings = node.inputs[0] is not None and str(node.inputs[0].type) == "seq(tensor(string))"
    written = sequences.Concat(int(node.attributes["axis"]), bool(node.attributes.get("new_axis", 0)), strings)
    return make(written, kernel, id(list), id(text.OBJECT), held=text.OBJECT)


RULES: Mapping[tuple[str, str], Callable[[NodeView, Kernel], Kernel | None]] = {
    ("", "Cast"): _cast,
    ("", "ConcatFromSequence"): _concat_from_sequence,
    ("", "Equal"): _equal,
    ("", "Expand"): _strided,
    ("", "Flatten"): _shown,
    ("", "Gather"): _gather,
    ("", "RegexFullMatch"): _full_match,
    ("", "Reshape"): _shown,
    ("", "Slice"): _strided,
    ("", "Split"): _strided,
    ("", "SplitToSequence"): _split_to_sequence,
    ("", "StringConcat"): _concat,
    ("", "StringNormalizer"): _normalizer,
    ("", "StringSplit"): _split,
    ("", "Tile"): _strided,
    ("", "Transpose"): _strided,
    ("", "Unsqueeze"): _shown,
    ("", "Where"): _where,
    ("ai.onnx.ml", "ArrayFeatureExtractor"): _gather,
    ("ai.onnx.ml", "CategoryMapper"): _mapped,
    ("ai.onnx.ml", "LabelEncoder"): _mapped,
    ("ai.onnx.ml", "OneHotEncoder"): _one_hot,
    ("com.microsoft", "MurmurHash3"): _murmur,
    ("com.microsoft", "Tokenizer"): _tokenizer,
}
"""(domain, operator) -> what makes its kernel, or None for nodes that are not for generated code."""

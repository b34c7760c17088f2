"""Regions that make counts of n-grams of texts: StringNormalizer, Tokenizer and TfIdfVectorizer with the views between them.

What is between the texts and the counts depends on the data, in its shape too; taken together the nodes give a row for each text,
so that a plan knows the shapes of what follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import CompiledRegion, NodeView, Region, RunContext, ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.gram_table import Table, unfit
from onnxplug_ep_cpu.codegen.interpret import InterpretedRegion
from onnxplug_ep_cpu.codegen.objects import make
from onnxplug_ep_cpu.codegen.vocabulary import OUTSIDE, Counts, Words
from onnxplug_kernels import re2
from onnxplug_kernels.ops.contrib_text import END, START
from onnxplug_kernels.ops.text import case_changes

MS = "com.microsoft"
VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
_TYPES = tuple(np.dtype(t) for t in (np.uint8, object, np.float32))
_ASCII, _BYTES = 0x80, 0x100


@record(frozen=True, slots=True, eq=False)
class Chain:
    """The nodes in topological order: views of texts, a normalizer or none, a tokenizer, a view or none, a vectorizer."""

    views: tuple[NodeView, ...]
    normalizer: NodeView | None
    tokenizer: NodeView
    behind: NodeView | None
    vectorizer: NodeView

    @property
    def nodes(self) -> list[NodeView]:
        found = (*self.views, self.normalizer, self.tokenizer, self.behind, self.vectorizer)
        return [node for node in found if node is not None]

    def rows(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """The rows that texts of a shape become: the result's shape but for its columns; None for what the nodes' own kernels
        must answer to."""
        for node in self.views:
            found = _viewed(node, shape)
            if found is None:
                return None
            shape = found
        if not math.prod(shape) or len(shape) not in (1, 2):
            return None
        if self.normalizer is not None and len(shape) == 2 and shape[0] != 1:
            return None
        if len(shape) == 1:  # [C, tokens]
            kept = self.behind is None or _joins(self.behind)
        else:  # [N, C, tokens], in whose rows the tokens of several texts would stand
            kept = shape[1] == 1 and self.behind is not None and (_joins(self.behind) or _lets_go(self.behind))
        return shape[:1] if kept else None


def chains(nodes: Sequence[NodeView], results: Collection[str]) -> Iterable[Chain]:
    """Those of a graph's nodes. ``results``: names of what the graph gives."""
    for node in nodes:
        if node.op_type == "TfIdfVectorizer" and node.domain == "":
            found = _chain(node, results)
            if found is not None and _is_countable(found):
                yield found


def _chain(vectorizer: NodeView, results: Collection[str]) -> Chain | None:
    """What leads to a vectorizer, no value of which anything else reads."""

    def maker(node: NodeView | None, *operators: str, domain: str = "") -> NodeView | None:
        value = None if node is None else node.inputs[0]
        if value is None or value.dtype != object or value.name in results or len(value.consumers) != 1:
            return None
        made = value.producer
        return made if made is not None and made.op_type in operators and made.domain == domain else None

    behind = maker(vectorizer, *VIEWS)
    tokenizer = maker(behind or vectorizer, "Tokenizer", domain=MS)
    if tokenizer is None:
        return None
    normalizer = maker(tokenizer, "StringNormalizer")
    views: list[NodeView] = []
    while (view := maker(views[0] if views else normalizer or tokenizer, *VIEWS)) is not None:
        if view.op_type != "Flatten" and _constant(view) is None:
            break
        views.insert(0, view)
    texts = (*views, normalizer or tokenizer)[0].inputs[0]
    if texts is None or texts.constant is not None:  # a region is given what is counted
        return None
    return Chain(tuple(views), normalizer, tokenizer, behind, vectorizer)


def _is_countable(chain: Chain) -> bool:
    """Whether texts can be counted where they lie, whatever their shape."""
    attributes = chain.vectorizer.attributes
    y = chain.vectorizer.outputs[0]
    if y is None or y.shape is None or unfit(chain.vectorizer) is not None or not attributes.get("pool_strings"):
        return False
    if attributes["max_skip_count"] > 0 and attributes["max_gram_length"] > 1:
        return False
    if chain.behind is not None and not (_joins(chain.behind) or _lets_go(chain.behind)):
        return False
    unknown = {chain.tokenizer.attributes["pad_value"], *((START, END) if chain.tokenizer.attributes["mark"] else ())}
    return not unknown & set(attributes["pool_strings"]) and _change(chain) is not Ellipsis and _cut(chain) is not None


def _constant(node: NodeView, number: int = 1) -> list[int] | None:
    value: ValueView | None = node.inputs[number] if len(node.inputs) > number else None
    return None if value is None or value.constant is None else [int(n) for n in value.constant.ravel()]


def _viewed(view: NodeView, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """What a view makes of a shape."""
    size = math.prod(shape)
    if view.op_type == "Flatten":
        axis = view.attributes.get("axis", 1)
        axis += len(shape) if axis < 0 else 0
        return (math.prod(shape[:axis]), math.prod(shape[axis:])) if 0 <= axis <= len(shape) else None
    given = _constant(view)
    if given is None or not size:
        return None
    if view.op_type == "Reshape":
        if 0 in given or min(given, default=0) < -1 or given.count(-1) > 1:
            return None
        rest = math.prod(n for n in given if n != -1)
        found = tuple(size // rest if n == -1 else n for n in given)
        return found if math.prod(found) == size else None
    rank = len(shape) + (len(given) if view.op_type == "Unsqueeze" else 0)
    axes = sorted(n + rank if n < 0 else n for n in given)
    if len(set(axes)) < len(axes) or not all(0 <= axis < rank for axis in axes):
        return None
    if view.op_type == "Squeeze":
        return None if any(shape[a] != 1 for a in axes) else tuple(n for a, n in enumerate(shape) if a not in axes)
    left = iter(shape)
    return tuple(1 if axis in axes else next(left) for axis in range(rank))


def _joins(view: NodeView) -> bool:
    """Whether a view makes rows of all that stands behind the first axis."""
    if view.op_type == "Flatten":
        return bool(view.attributes.get("axis", 1) == 1)
    return view.op_type == "Reshape" and not view.attributes.get("allowzero", 0) and _constant(view) == [0, -1]


def _lets_go(view: NodeView) -> bool:
    """Whether a view leaves out the axis of the texts of a row."""
    return view.op_type == "Squeeze" and _constant(view) == [1]


def _change(chain: Chain) -> Any:
    """What a normalizer makes of each text; None for nothing, Ellipsis for what it does beyond that."""
    if chain.normalizer is None:
        return None
    attributes = chain.normalizer.attributes
    action = attributes.get("case_change_action", "NONE")
    if action == "NONE" or attributes.get("stopwords"):
        return Ellipsis if attributes.get("stopwords") else None
    return case_changes(attributes.get("locale", "")).get(action, Ellipsis)


@record(frozen=True, slots=True)
class Cut:
    """Tokens are runs of characters of a set, of ``least`` at least, or single characters. ``ascii``: its characters; ``others``:
    whether it has all behind them."""

    ascii: frozenset[int]
    others: bool
    least: int
    single: bool = False

    @classmethod
    def of(cls, ranges: re2.Ranges, least: int) -> Cut | None:
        """Of a set; None for one that has some of the characters behind ASCII."""
        inside = frozenset(code for low, high in ranges for code in range(low, min(high, _ASCII - 1) + 1))
        wide = sorted((max(low, _ASCII), high) for low, high in ranges if high >= _ASCII)
        reached = _ASCII
        for low, high in wide:
            reached = max(reached, high + 1) if low <= reached else reached
        if wide and reached <= re2.LAST:
            return None
        return cls(inside, bool(wide), least)


def _cut(chain: Chain) -> Cut | None:
    """How a tokenizer cuts texts; None where it takes more than a look at each character."""
    attributes = chain.tokenizer.attributes
    expression, separators = attributes.get("tokenexp", ""), list(attributes.get("separators", ()))
    least = attributes["mincharnum"]
    if bool(expression) == bool(separators):
        return None
    if expression == "." or separators == [""]:
        return Cut(frozenset(range(_ASCII)), True, 1, single=True) if least == 1 else None
    runs = [_run(pattern) for pattern in ([expression] if expression else separators)]
    if expression:
        run = runs[0]
        return Cut.of(run.characters, max(least, run.least)) if run is not None and run.endless else None
    if any(run is None or run.least > 1 for run in runs):
        return None
    return Cut.of(re2.complement([span for run in runs if run is not None for span in run.characters]), least)


def _run(pattern: str) -> re2.Run | None:
    try:
        branches = re2.alternatives(pattern)
    except ValueError:
        return None  # the node's own kernel says so
    return branches[0].run if len(branches) == 1 else None


class DocumentRegion(CompiledRegion):
    """A region that is one chain."""

    def __init__(self, region: Region) -> None:
        (chain,) = chains(region.graph.nodes, ())
        self._region, self._chain = region, chain
        cut, change = _cut(chain), _change(chain)
        assert cut is not None
        numbers: dict[str, int] = {}
        table = Table(chain.vectorizer, numbers)
        words, kinds, mode = Words.of(numbers), _kinds(cut, change), str(chain.vectorizer.attributes["mode"])
        self._width, self._room = table.width, 8 * table.longest
        held = (_TYPES, change, kinds, words, table)
        own = (
            *map(id, _TYPES), id(True), id(change),
            _at(kinds), _at(words.table), len(words.table) - 1, _at(words.text), _at(table.entries),
            len(table.entries) - 1, table.probes, _at(table.weights), table.width, table.longest, cut.least,
        )  # fmt: skip
        self._counts = make(Counts(mode, change is not None, cut.single), _not_here, *own, held=held)

    def output_shapes(self, inputs: Any) -> Any:
        rows = None if inputs[0] is None else self._chain.rows(tuple(inputs[0]))
        return [None if rows is None else (*rows, self._width)]

    def workspace(self, inputs: Any) -> int:
        return self._room

    def function(self) -> Callable[..., bool]:
        return self._counts

    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        if context.watch() is not None or not self._counts(context.workspace, *inputs, *outputs):
            outputs[0][...] = self._by_node(context, inputs)[0]
        return True

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        rows = self._chain.rows(inputs[0].shape)
        if rows is not None and context.watch() is None:
            made = np.empty((*rows, self._width), np.float32)
            if self._counts(context.workspace, *inputs, made):
                return [made]
        return self._by_node(context, inputs)

    def _by_node(self, context: RunContext, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run with the nodes' own kernels, which raise what is wrong with the data, and tell the time of each."""
        return InterpretedRegion(self._region, {}, "its data")(context, *inputs)


def _not_here(*operands: Any) -> bool:
    """What takes the operands that ``Counts`` does not."""
    return False


def _kinds(cut: Cut, change: Callable[[str], str] | None) -> np.ndarray:
    """What each byte becomes in a token, or ``OUTSIDE``. What is behind ASCII has been changed already."""
    found = np.full(_BYTES, OUTSIDE, np.int16)
    for byte in range(_ASCII):
        changed = byte if change is None else ord(change(chr(byte)))
        if changed in cut.ascii:
            found[byte] = changed
    if cut.others:
        found[_ASCII:] = np.arange(_ASCII, _BYTES)
    return found


def _at(array: np.ndarray) -> int:
    return int(array.ctypes.data)

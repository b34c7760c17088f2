"""Tokenizer of domain ``com.microsoft``. It takes and gives NumPy object arrays of ``str``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np

from onnxplug_kernels import re2
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.text import filled

MS = "com.microsoft"
START, END = "\x02", "\x03"
Split = Callable[[str], list[str]]


def prepare_tokenizer(
    xp: Any,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] = (),
    tokenexp: str = "",
) -> Tokenizer:
    """Tokenizer-1."""
    if bool(separators) == bool(tokenexp):
        raise ValueError("Tokenizer needs either separators or tokenexp")
    by_character = list(separators) == [""] or tokenexp == "."
    if by_character and mincharnum > 1:
        raise ValueError(f"mincharnum is {mincharnum}, but single characters are asked for")
    if by_character:
        split: Split = list
    else:
        split = _finder(tokenexp) if tokenexp else _splitter(separators)
    return Tokenizer(split, mincharnum, bool(mark), pad_value)


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Strings -> their tokens of ``least`` characters and more, which ``split`` finds."""

    split: Split
    least: int
    marked: bool
    pad: str

    def __call__(self, x: np.ndarray) -> np.ndarray:
        if x.ndim not in (1, 2):
            raise ValueError(f"Tokenizer takes shape [C] or [N, C], got {list(x.shape)}")
        if x.size == 0:
            return np.empty(x.shape, dtype=object)
        found = list(map(self.split, x.ravel().tolist()))
        if self.least > 1:
            found = [[t for t in tokens if len(t) >= self.least] for tokens in found]
        if self.marked and any(found):
            found = [[START, *tokens, END] for tokens in found]
        return filled(found, self.pad, x.shape)


@op("Tokenizer", 1, domain=MS, portable=False, prepare=prepare_tokenizer)
def tokenizer(xp: Any, x: np.ndarray, **attributes: Any) -> np.ndarray:
    """(..., most tokens of a string): each string between matches of ``separators``, or the matches of ``tokenexp``, in
    it.

    Both are RE2 expressions, of which the longest match counts; a separator "" or an expression "." gives single
    characters. Tokens shorter than ``mincharnum`` are left out. With ``mark`` the characters START and END enclose the
    tokens, before padding.
    """
    return prepare_tokenizer(xp, **attributes)(x)


def _finder(tokenexp: str) -> Split:
    """What finds the tokens of a word, from left to right without overlap, the longest match at each place; empty ones are passed
    over."""
    expression, branches = re2.compile(tokenexp), re2.alternatives(tokenexp)
    starts = [branch.first for branch in branches]
    if any(branch.branches for branch in branches) or (len(branches) > 1 and not _are_disjoint(starts)):
        return partial(_longest, expression, branches)
    if None not in starts:
        return expression.findall  # the longest ones already, since only one branch can match; there are no groups
    return lambda word: list(filter(None, expression.findall(word)))


def _are_disjoint(sets: Sequence[re2.Ranges | None]) -> bool:
    """Whether no character is in two of the sets."""
    ranges = sorted(span for found in sets if found is not None for span in found)
    return None not in sets and all(a[1] < b[0] for a, b in pairwise(ranges))


def _longest(expression: re.Pattern[str], branches: Sequence[re2.Branch], word: str) -> list[str]:
    return [word[a:b] for a, b in _matches(expression, branches, word)]


def _splitter(separators: Sequence[str]) -> Split:
    """What takes a word apart, at one separator after the other."""
    steps = list(map(_cut, separators))
    literals = list(map(_literal, separators))
    first, *others = literals
    if first and all(literal is not None and len(literal) == 1 for literal in literals):
        table = str.maketrans(dict.fromkeys(filter(None, others), first))
        if not table:
            return lambda word: list(filter(None, word.split(first)))
        return lambda word: list(filter(None, word.translate(table).split(first)))

    def split(word: str) -> list[str]:
        tokens: Iterable[str] = [word]
        for step in steps:
            tokens = chain.from_iterable(map(step, tokens))
        return list(filter(None, tokens))

    return split


def _literal(separator: str) -> str | None:
    """The one text that a separator is, if it is no other."""
    branches = re2.alternatives(separator)
    return branches[0].literal if len(branches) == 1 else None


def _cut(separator: str) -> Split:
    """What takes a word apart at one separator."""
    expression, branches = re2.compile(separator), re2.alternatives(separator)
    literal = _literal(separator)
    if literal:
        return lambda word: word.split(literal)
    if len(branches) == 1 and not branches[0].branches and branches[0].first is not None:
        return expression.split

    def cut(word: str) -> list[str]:
        parts, start = [], 0
        for a, b in _matches(expression, branches, word):
            parts.append(word[start:a])
            start = b
        return [*parts, word[start:]]

    return cut


def _matches(expression: re.Pattern[str], branches: Sequence[re2.Branch], word: str) -> Iterator[tuple[int, int]]:
    """Where the expression matches, from left to right without overlap, the longest match at each place; empty ones are
    passed over.
    """
    nested = any(branch.branches for branch in branches)
    start = 0
    while start < len(word) and (match := expression.search(word, start)):
        begin, end = match.span()
        if nested:
            # re takes the first alternative that matches, not the longest.
            end = next((e for e in range(len(word), end, -1) if expression.fullmatch(word, begin, e)), end)
        elif len(branches) > 1:
            end = max(found.end() for b in branches if (found := b.expression.match(word, begin)))
        if end > begin:
            yield begin, end
        start = max(end, begin + 1)

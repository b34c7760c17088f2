"""Tokenizer of domain ``com.microsoft``. It takes and gives NumPy object arrays of ``str``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from onnxplug_kernels import re2
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.text import filled

MS = "com.microsoft"
START, END = "\x02", "\x03"


def prepare_tokenizer(
    xp: Any,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] = (),
    tokenexp: str = "",
) -> Callable[[np.ndarray], np.ndarray]:
    """Tokenizer-1."""
    if bool(separators) == bool(tokenexp):
        raise ValueError("Tokenizer needs either separators or tokenexp")
    by_character = list(separators) == [""] or tokenexp == "."
    if by_character and mincharnum > 1:
        raise ValueError(f"mincharnum is {mincharnum}, but single characters are asked for")
    expressions = [] if by_character else [re2.compile(text) for text in ([tokenexp] if tokenexp else separators)]

    split: Callable[[str], list[str]]
    if by_character:
        split = list
    elif not tokenexp:
        split = partial(_between, expressions)
    elif "|" in expressions[0].pattern:
        split = partial(_longest, expressions[0])
    else:
        split = expressions[0].findall  # the longest ones already, and there are no groups

    least = max(1, mincharnum)

    def tokenized(x: np.ndarray) -> np.ndarray:
        if x.ndim not in (1, 2):
            raise ValueError(f"Tokenizer takes shape [C] or [N, C], got {list(x.shape)}")
        if x.size == 0:
            return np.empty(x.shape, dtype=object)
        found = [split(word) for word in x.ravel().tolist()]
        if least > 1 or any("" in tokens for tokens in found):
            found = [[t for t in tokens if len(t) >= least] for tokens in found]
        if mark and any(found):
            found = [[START, *tokens, END] for tokens in found]
        return filled(found, pad_value, x.shape)

    return tokenized


@op("Tokenizer", 1, domain=MS, portable=False, prepare=prepare_tokenizer)
def tokenizer(xp: Any, x: np.ndarray, **attributes: Any) -> np.ndarray:
    """(..., most tokens of a string): each string between matches of ``separators``, or the matches of ``tokenexp``, in
    it.

    Both are RE2 expressions, of which the longest match counts; a separator "" or an expression "." gives single
    characters. Tokens shorter than ``mincharnum`` are left out. With ``mark`` the characters START and END enclose the
    tokens, before padding.
    """
    return prepare_tokenizer(xp, **attributes)(x)


def _between(separators: Sequence[re.Pattern[str]], word: str) -> list[str]:
    tokens = [word]
    for separator in separators:
        parts = []
        for token in tokens:
            start = 0
            for a, b in _matches(separator, token):
                parts.append(token[start:a])
                start = b
            parts.append(token[start:])
        tokens = parts
    return [token for token in tokens if token]


def _longest(expression: re.Pattern[str], word: str) -> list[str]:
    return [word[a:b] for a, b in _matches(expression, word)]


def _matches(expression: re.Pattern[str], word: str) -> Iterator[tuple[int, int]]:
    """Where the expression matches, from left to right without overlap, the longest match at each place; empty ones are
    passed over.
    """
    start = 0
    while start < len(word) and (match := expression.search(word, start)):
        begin, end = match.span()
        if "|" in expression.pattern:
            # re takes the first alternative that matches, not the longest.
            end = next((e for e in range(len(word), end, -1) if expression.fullmatch(word, begin, e)), end)
        if end > begin:
            yield begin, end
        start = max(end, begin + 1)

"""Tokenizer of domain ``com.microsoft``. It takes and gives NumPy object arrays of ``str``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from onnxplug_kernels import re2
from onnxplug_kernels.catalogue import op

MS = "com.microsoft"
START, END = "\x02", "\x03"


@op("Tokenizer", 1, domain=MS, portable=False)
def tokenizer(
    xp: Any,
    x: np.ndarray,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] = (),
    tokenexp: str = "",
) -> np.ndarray:
    """(..., most tokens of a string): each string between matches of ``separators``, or the matches of ``tokenexp``, in
    it.

    Both are RE2 expressions, of which the longest match counts; a separator "" or an expression "." gives single
    characters. Tokens shorter than ``mincharnum`` are left out. With ``mark`` the characters START and END enclose the
    tokens, before padding.
    """
    if x.ndim not in (1, 2):
        raise ValueError(f"Tokenizer takes shape [C] or [N, C], got {list(x.shape)}")
    if bool(separators) == bool(tokenexp):
        raise ValueError("Tokenizer needs either separators or tokenexp")
    by_character = list(separators) == [""] or tokenexp == "."
    if by_character and mincharnum > 1:
        raise ValueError(f"mincharnum is {mincharnum}, but single characters are asked for")
    if x.size == 0:
        return np.empty(x.shape, dtype=object)
    words = x.reshape(-1).tolist()
    if by_character:
        found = [list(word) for word in words]
    elif tokenexp:
        expression = re2.compile(tokenexp)
        found = [[word[a:b] for a, b in _matches(expression, word)] for word in words]
    else:
        found = [_between([re2.compile(s) for s in separators], word) for word in words]
    found = [[token for token in tokens if len(token) >= mincharnum] for tokens in found]
    width = max(map(len, found))
    if width == 0:
        return np.empty((*x.shape, 0), dtype=object)
    if mark:
        found, width = [[START, *tokens, END] for tokens in found], width + 2
    rows = [tokens + [pad_value] * (width - len(tokens)) for tokens in found]
    return np.asarray(rows, dtype=object).reshape(*x.shape, width)


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

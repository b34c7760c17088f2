"""Strings that a region takes, as numbers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def numbered(words: Iterable[str], numbers: dict[str, int]) -> np.ndarray:
    """The words' numbers, int64; new ones get the next, from 1 on."""
    return np.array([numbers.setdefault(word, len(numbers) + 1) for word in words], np.int64)

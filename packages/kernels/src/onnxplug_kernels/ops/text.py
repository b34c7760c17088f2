"""Operators on strings. They take and give NumPy object arrays of ``str``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op

Strings = Callable[[np.ndarray], np.ndarray]


_OBJECT, _INT64, _BOOL = np.dtype(object), np.dtype(np.int64), np.dtype(np.bool_)


def filled(rows: list[list[str]], pad: str, shape: tuple[int, ...]) -> np.ndarray:
    """(``*shape``, longest row): the rows, to which ``pad`` is added as often as they lack of it."""
    lengths = list(map(len, rows))
    width = max(lengths, default=0)
    if lengths.count(width) < len(lengths):
        for row, length in zip(rows, lengths, strict=True):
            if length < width:
                row += [pad] * (width - length)
    if not width or not rows:
        return np.empty((*shape, width), _OBJECT)
    made = np.array(rows, _OBJECT)
    return made if len(shape) == 1 else made.reshape(*shape, width)


def _lower(word: str) -> str:
    # Of these two str.lower makes two characters, and one that depends on the place.
    return (
        word.lower() if word.isascii() else word.replace("İ", "i").replace("Σ", "\N{GREEK SMALL LETTER SIGMA}").lower()
    )


def _upper(word: str) -> str:
    return word.upper() if word.isascii() else "".join(map(_upper_character, word))


@cache
def _upper_character(character: str) -> str:
    return next((made for made in (character.upper(), character.title()) if len(made) == 1), character)


def _lower_ascii(word: str) -> str:
    return word.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")


def _upper_ascii(word: str) -> str:
    return word.encode(errors="surrogatepass").upper().decode(errors="surrogatepass")


def case_changes(locale: str) -> Mapping[str, Callable[[str], str]]:
    """What StringNormalizer's actions do to a string, as in onnxruntime: each character becomes one ("ß" has no upper case), by Unicode's
    simple mappings; in the locales ``C`` and ``POSIX`` by those of ASCII alone. Other names are not looked up.
    """
    if locale in ("C", "POSIX"):
        return {"NONE": str, "LOWER": _lower_ascii, "UPPER": _upper_ascii}
    return {"NONE": str, "LOWER": _lower, "UPPER": _upper}


def prepare_normalizer(
    xp: Any,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "en_US",
    stopwords: Sequence[str] = (),
) -> Strings:
    """StringNormalizer-10. Case is what ``case_changes`` says; stop words are compared in lower case."""
    changes = case_changes(locale)
    if case_change_action not in changes:
        raise ValueError(f"StringNormalizer: unknown case_change_action {case_change_action!r}")
    change = changes[case_change_action]
    compared: Callable[[str], str] = str if is_case_sensitive else changes["LOWER"]
    dropped = {compared(w) for w in stopwords}

    def normalized(x: np.ndarray) -> np.ndarray:
        if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
            raise ValueError(f"StringNormalizer takes shape [C] or [1, C], got {list(x.shape)}")
        words = x.ravel().tolist()
        if dropped:
            words = [w for w in words if compared(w) not in dropped]
        kept = list(map(change, words or [""]))
        return np.array(kept if x.ndim == 1 else [kept], _OBJECT)

    return normalized


@op("StringNormalizer", 10, portable=False, prepare=prepare_normalizer)
def string_normalizer(xp: Any, x: np.ndarray, **attributes: Any) -> np.ndarray:
    """A row of strings without ``stopwords``, in lower or upper case; one empty string where none is left."""
    return prepare_normalizer(xp, **attributes)(x)


@op("StringConcat", 20, portable=False)
def string_concat(xp: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``x + y`` by element, broadcast."""
    joined = x + y
    return joined if joined.__class__ is np.ndarray else np.asarray(joined, dtype=_OBJECT)


@op("StringSplit", 20, portable=False)
def string_split(
    xp: Any, x: np.ndarray, *, delimiter: str = "", maxsplit: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The substrings between delimiters (by default runs of white space) along a new last axis, and how many there are.

    Shorter rows are filled up with empty strings. An empty string has no substrings, as in onnxruntime; the specification does not say.
    """
    limit = -1 if maxsplit is None else maxsplit
    words = x.tolist() if x.ndim == 1 else x.ravel().tolist()
    if delimiter:
        rows = [w.split(delimiter, limit) if w else [] for w in words]
    elif limit < 0:
        rows = list(map(str.split, words))
    else:
        rows = [w.strip().split(None, limit) for w in words]
    lengths = np.fromiter(map(len, rows), _INT64, len(rows))
    return filled(rows, "", x.shape), lengths if x.ndim == 1 else lengths.reshape(x.shape)


def prepare_full_match(xp: Any, *, pattern: str = "") -> Strings:
    """RegexFullMatch-20."""
    from onnxplug_kernels import re2  # other operators here need no patterns

    matches = re2.compile(pattern).fullmatch

    def matched(x: np.ndarray) -> np.ndarray:
        found = np.array([matches(word) is not None for word in x.ravel().tolist()], _BOOL)
        return found if x.ndim == 1 else found.reshape(x.shape)

    return matched


@op("RegexFullMatch", 20, portable=False, prepare=prepare_full_match)
def regex_full_match(xp: Any, x: np.ndarray, **attributes: Any) -> np.ndarray:
    """Whether all of each string matches ``pattern``, in RE2's syntax."""
    return prepare_full_match(xp, **attributes)(x)

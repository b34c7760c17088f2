"""RE2's regular expressions (https://github.com/google/re2/wiki/Syntax) in Python's ``re``, for full matches only.

Whether a whole string matches does not depend on captures or greediness, so groups are translated to plain ones and
lazy repeats to greedy ones. Character sets are written out as ranges, because RE2's are ASCII where Python's are
Unicode. Unicode categories (``\\p{Lu}``) are available, scripts (``\\p{Greek}``) are not. ``re`` backtracks: the linear
run time that RE2 promises is not kept.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

Ranges = list[tuple[int, int]]

LAST = sys.maxunicode
_MOST_REPEATS = 1000
_WORD: Ranges = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
_PERL: dict[str, Ranges] = {"d": [(0x30, 0x39)], "s": [(0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20)], "w": _WORD}
_POSIX: dict[str, Ranges] = {
    "alnum": [(0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)],
    "alpha": [(0x41, 0x5A), (0x61, 0x7A)],
    "ascii": [(0x00, 0x7F)],
    "blank": [(0x09, 0x09), (0x20, 0x20)],
    "cntrl": [(0x00, 0x1F), (0x7F, 0x7F)],
    "digit": [(0x30, 0x39)],
    "graph": [(0x21, 0x7E)],
    "lower": [(0x61, 0x7A)],
    "print": [(0x20, 0x7E)],
    "punct": [(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)],
    "space": [(0x09, 0x0D), (0x20, 0x20)],
    "upper": [(0x41, 0x5A)],
    "word": _WORD,
    "xdigit": [(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)],
}
_CONTROLS = {"a": 0x07, "f": 0x0C, "n": 0x0A, "r": 0x0D, "t": 0x09, "v": 0x0B}
# (flag m, character) -> assertion; Python's own "$" would also match before a final newline.
_ASSERTIONS = {(False, "^"): r"\A", (True, "^"): "(?m:^)", (False, "$"): r"\Z", (True, "$"): "(?m:$)"}

# Texts: the module is imported for patterns of which few need all of these, and ``re`` keeps what it compiled.
_CHARACTER = r"""(?sx)\\(?P<property>[pP])(?:\{(?P<category>\^?\w+)\}|(?P<initial>\w))
    |\\x(?:\{(?P<long>[0-9A-Fa-f]+)\}|(?P<hex>[0-9A-Fa-f]{2}))
    |\\(?P<octal>0[0-7]{0,2}|[1-7][0-7]{1,2})
    |\\(?P<escape>.)
    |(?P<plain>[^\\])"""
_POSIX_CLASS = r"\[:(?P<negated>\^?)(?P<name>\w+):\]"
_QUOTED = r"(?s)\\Q(.*?)(?:\\E|\Z)"
_FLAGS = r"\(\?(?P<on>[imsU]*)(?:-(?P<off>[imsU]+))?(?P<end>[:)])"
_GROUP = r"\((?:\?P?<\w+>|(?!\?))"
_SET = r"\[(?:\\U\w{8}-\\U\w{8})+\](?P<repeat>.*)"
"""A set as ``_written`` writes it, and how often."""
_RANGE = r"\\U(\w{8})-\\U(\w{8})"
_REPEAT = r"(?P<count>[*+?]|\{(?P<least>\d+)(?:,(?P<most>\d*))?\})\??"


@lru_cache(maxsize=256)
def compile(pattern: str) -> re.Pattern[str]:
    """An object whose ``fullmatch`` answers for an RE2 pattern; ValueError if the pattern is not RE2's."""
    try:
        return re.compile(_Translation(pattern).text())
    except re.error as error:
        raise ValueError(f"{pattern!r} is not an RE2 pattern: {error}") from error


class Branch(NamedTuple):
    """One of the alternatives that a pattern is at its outermost level.

    ``first``: the characters it begins with, None where that takes more than a look at its first piece (it may match nothing then);
    ``literal``: the one text it matches, None where there are several; ``branches``: whether there are alternatives within; ``run``:
    see there, None for what is no run.
    """

    expression: re.Pattern[str]
    first: Ranges | None
    literal: str | None
    branches: bool
    run: Run | None


class Run(NamedTuple):
    """``least`` characters of one set, or so many and more if ``endless``: the longest match is as far as the set goes."""

    characters: Ranges
    least: int
    endless: bool


def alternatives(pattern: str) -> list[Branch]:
    """The alternatives of an RE2 pattern; ValueError if it is not RE2's."""
    compile(pattern)
    found: list[list[str]] = [[]]
    depth = 0
    for piece in _Translation(pattern).pieces():
        depth += (piece == "(?:") - piece.startswith(")")
        if piece == "|" and not depth:
            found.append([])
        elif piece:  # flags leave none
            found[-1].append(piece)
    return list(map(_branch, found))


def _branch(pieces: list[str]) -> Branch:
    sets = [re.fullmatch(_SET, piece) for piece in pieces]
    ranges = [re.findall(_RANGE, piece) for piece in pieces]
    letters = [spans[0][0] for spans in ranges if len(spans) == 1 and spans[0][0] == spans[0][1]]
    plain = len(letters) == len(pieces) and all(found is not None and not found["repeat"] for found in sets)
    begins = bool(pieces) and sets[0] is not None and sets[0]["repeat"] in ("", "+")
    return Branch(
        re.compile("".join(pieces)),
        [(int(low, 16), int(high, 16)) for low, high in ranges[0]] if begins else None,
        "".join(chr(int(letter, 16)) for letter in letters) if plain else None,
        "|" in pieces,
        _run(pieces),
    )


def _run(pieces: list[str]) -> Run | None:
    """The run that pieces are: one set time after time. Edges of words around runs of their characters change nothing where the run
    goes as far as it can."""
    edges = len(pieces) > 2 and pieces[0] == pieces[-1] == _edge()
    inner = pieces[1:-1] if edges else pieces
    sets = [re.fullmatch(_SET, piece) for piece in inner]
    found = [piece[: match.start("repeat")] for piece, match in zip(inner, sets, strict=True) if match is not None]
    repeats = [match["repeat"] for match in sets if match is not None]
    if not inner or len(found) < len(inner) or len(set(found)) > 1 or any(repeats[:-1]) or repeats[-1] not in ("", "+"):
        return None
    endless = repeats[-1] == "+"
    if edges and (not endless or found[0] != _written(_WORD)):
        return None
    return Run([(int(low, 16), int(high, 16)) for low, high in re.findall(_RANGE, found[0])], len(inner), endless)


def _edge() -> str:
    """Where a word begins or ends."""
    word = _written(_WORD)
    return f"(?:(?<!{word})(?={word})|(?<={word})(?!{word}))"


class _Translation:
    """One pass over a pattern. Flags are resolved at each atom, since Python has none that begin inside a group."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.place = 0
        self.flags = frozenset[str]()
        self.outer: list[frozenset[str]] = []

    def text(self) -> str:
        return "".join(self.pieces())

    def pieces(self) -> Iterable[str]:
        while self.place < len(self.pattern):
            if self._peek("("):
                yield self._group()
            elif self._peek("|"):
                self.place += 1
                yield "|"
            elif self._peek(")"):
                self.place += 1
                self.flags = self.outer.pop() if self.outer else self.flags
                yield ")" + self._repeat()
            elif quoted := self._take(_QUOTED):
                yield "".join(self._set([(ord(c), ord(c))]) for c in quoted[1]) + self._repeat()
            else:
                yield self._atom() + self._repeat()

    def _group(self) -> str:
        if flags := self._take(_FLAGS):
            before = self.flags
            self.flags = (before | set(flags["on"])) - set(flags["off"] or "")
            if flags["end"] == ")":
                return ""
            self.outer.append(before)
        elif self._take(_GROUP):
            self.outer.append(self.flags)
        else:
            raise self._error("unknown kind of group")
        return "(?:"

    def _repeat(self) -> str:
        repeat = self._take(_REPEAT)
        if not repeat:
            return ""
        if max(int(repeat["least"] or 0), int(repeat["most"] or 0)) > _MOST_REPEATS:
            raise self._error("too many repeats")
        if re.compile(_REPEAT).match(self.pattern, self.place):
            raise self._error("repeat of a repeat")
        return repeat["count"]

    def _atom(self) -> str:
        for character in "^$":
            if self._peek(character):
                self.place += 1
                return f"(?:{_ASSERTIONS['m' in self.flags, character]})"
        if self._peek("."):
            self.place += 1
            return self._set([(0, LAST)] if "s" in self.flags else complement([(0x0A, 0x0A)]))
        if self._peek("["):
            return self._set(self._class())
        if self._peek("*", "+", "?"):
            raise self._error("nothing to repeat")
        escaped = self.pattern[self.place + 1 : self.place + 2] if self._peek("\\") else ""
        if escaped and escaped in "AzbB":
            self.place += 2
            return self._boundary(escaped)
        return self._set(self._character())

    def _boundary(self, escaped: str) -> str:
        if escaped in "Az":
            return r"(?:\A)" if escaped == "A" else r"(?:\Z)"
        return _edge() if escaped == "b" else f"(?!{_edge()})"

    def _class(self) -> Ranges:
        self.place += 1
        negated = self._peek("^")
        self.place += negated
        ranges: Ranges = []
        first = True
        while first or not self._peek("]"):
            first = False
            ranges += self._class_item()
        self.place += 1
        return complement(ranges) if negated else ranges

    def _class_item(self) -> Ranges:
        if posix := self._take(_POSIX_CLASS):
            if posix["name"] not in _POSIX:
                raise self._error(f"unknown class {posix['name']}")
            named = _POSIX[posix["name"]]
            return complement(named) if posix["negated"] else named
        low = self._character()
        if not self._peek("-") or self._peek("-]"):
            return low
        self.place += 1
        high = self._character()
        if not _single(low) or not _single(high) or low > high:
            raise self._error("bad range")
        return [(low[0][0], high[0][0])]

    def _character(self) -> Ranges:
        """The set that one character or escape stands for."""
        found = self._take(_CHARACTER)
        if not found:
            raise self._error("unfinished")
        if found["property"]:
            name = found["category"] or found["initial"]
            members = _category(name.removeprefix("^"))
            if not members:
                raise self._error(f"unknown Unicode category {name}")
            return complement(members) if (found["property"] == "P") != name.startswith("^") else members
        if found["plain"]:
            return [(ord(found["plain"]),) * 2]
        escape = found["escape"] or ""
        if escape.lower() in _PERL and escape:
            return _PERL[escape] if escape.islower() else complement(_PERL[escape.lower()])
        if escape in _CONTROLS:
            return [(_CONTROLS[escape],) * 2]
        if escape:
            if escape.isalnum() and escape.isascii():
                raise self._error(f"unknown escape \\{escape}")
            return [(ord(escape),) * 2]
        code = int(found["octal"], 8) if found["octal"] else int(found["long"] or found["hex"], 16)
        if code > LAST:
            raise self._error("no such code point")
        return [(code, code)]

    def _set(self, ranges: Ranges) -> str:
        return f"(?i:{_written(ranges)})" if "i" in self.flags else _written(ranges)

    def _peek(self, *texts: str) -> bool:
        return self.pattern.startswith(texts, self.place)

    def _take(self, token: str) -> re.Match[str] | None:
        found = re.compile(token).match(self.pattern, self.place)
        if found:
            self.place = found.end()
        return found

    def _error(self, what: str) -> ValueError:
        return ValueError(f"{self.pattern!r} is not an RE2 pattern: {what} at position {self.place}")


def _single(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]


def complement(ranges: Ranges) -> Ranges:
    gaps: Ranges = []
    start = 0
    for low, high in sorted(ranges):
        if low > start:
            gaps.append((start, low - 1))
        start = max(start, high + 1)
    return [*gaps, (start, LAST)] if start <= LAST else gaps


def _written(ranges: Ranges) -> str:
    """A set in Python's syntax; the empty one, which Python cannot write, as an assertion that never holds."""
    spans = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
    return f"[{spans}]" if ranges else "(?!)"


@lru_cache(maxsize=64)
def _category(name: str) -> Ranges:
    """The code points whose Unicode category begins with ``name``."""
    if name == "Any":
        return [(0, LAST)]
    ranges: Ranges = []
    for code in range(LAST + 1):
        if unicodedata.category(chr(code)).startswith(name):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1] = (ranges[-1][0], code)
            else:
                ranges.append((code, code))
    return ranges

"""Counting known n-grams in rows of tokens."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I64, PTR, Emitter, Loop

ENTRY = 4
"""Words of an entry: what was read so far, the next token, what is read then, the column of the n-gram that ends there (or -1)."""
FACTORS = (0x9E3779B97F4A7C15 - (1 << 64), 0x2545F4914F6CDD1D)
"""What token and state are multiplied with for an entry's place; both are odd, so that no bit of either is lost."""


TOGETHER = 8
"""Counts that are weighted at a time."""


@record(frozen=True, slots=True)
class Grams:
    """For each row, the number of each n-gram ("TF"), weighted ("TFIDF"), or the weights of those there are ("IDF"); an item is a
    row. Tokens of an n-gram stand 1, 2, ... apart; single ones are counted once.

    Tokens are integers of ``bits``. From each token on, the table is followed from state 0: an entry is at one of ``probes`` places
    from where its hash says. Arguments: out, tokens, table, weights (double), tokens of a row, columns, most tokens of an n-gram,
    farthest distance, mask of the table's places, probes.
    """

    mode: str
    bits: int

    def emit(self, f: Emitter) -> None:
        out, tokens, table, weights = (f.arg(i, PTR) for i in range(4))
        size, width, longest, farthest, mask, probes = (f.arg(i) for i in range(4, 10))
        with f.items() as row:
            line = f.at(out, f.shl(f.mul(row, width), 2))
            words = f.at(tokens, f.mul(f.mul(row, size), self.bits // 8))
            with f.loop(0, width) as c:
                f.store(F32, "0.0", f.at(line, f.shl(c.index, 2)))
            with f.loop(0, farthest) as apart, f.loop(0, size) as start, f.loop(0, longest, 1, [(I64, "0")]) as k:
                k.next = [self._step(f, (line, words, table), (start.index, apart.index, k), size, mask, probes)]
            weigh(f, self.mode, line, weights, width)

    def _step(
        self, f: Emitter, memory: tuple[str, str, str], at: tuple[str, str, Loop], size: str, mask: str, probes: str
    ) -> str:
        """Read one more token, and count the n-gram that ends with it; what has been read then, -1 for nothing known."""
        (line, words, table), (start, apart, k) = memory, at
        (state,) = k.vars
        place = f.add(start, f.mul(k.index, f.add(apart, 1)))
        goes = f.value(f"and i1 {f.value(f'icmp sge i64 {state}, 0')}, {f.less(place, size)}")
        token = self._token(f, words, f.select(goes, I64, place, "0"))
        following, column = following_of(f, (table, mask, probes), state, token)
        alone = f.value(f"icmp eq i64 {k.index}, 0")
        again = f.value(f"and i1 {alone}, {f.value(f'icmp ne i64 {apart}, 0')}")
        known = f.value(f"and i1 {goes}, {f.value(f'icmp sge i64 {column}, 0')}")
        with f.when(f.value(f"and i1 {known}, {f.value(f'xor i1 {again}, true')}")):
            count(f, line, column)
        return f.select(goes, I64, following, "-1")

    def _token(self, f: Emitter, words: str, place: str) -> str:
        token = f.load(f"i{self.bits}", f.at(words, f.mul(place, self.bits // 8)), self.bits // 8)
        return token if self.bits == 64 else f.value(f"sext i{self.bits} {token} to i64")


def following_of(f: Emitter, table: tuple[str, str, str], state: str, token: str) -> tuple[str, str]:
    """What is read after ``state`` and a token, and the column of the n-gram that ends there; -1 for what there is not. The table:
    its address, mask and probes."""
    entries, mask, probes = table
    mixed = f.add(f.mul(token, FACTORS[0]), f.mul(state, FACTORS[1]))
    first = f.value(f"xor i64 {mixed}, {f.value(f'lshr i64 {mixed}, 32')}")
    with f.loop(0, probes, 1, [(I64, "-1"), (I64, "-1")]) as probe:
        entry = f.at(entries, f.shl(f.and_(f.add(first, probe.index), mask), 5))
        same = f.value(
            f"and i1 {f.value(f'icmp eq i64 {f.load(I64, entry, 8)}, {state}')}, "
            f"{f.value(f'icmp eq i64 {f.load(I64, f.at(entry, 8), 8)}, {token}')}"
        )
        probe.next = [
            f.select(same, I64, f.load(I64, f.at(entry, 8 * (2 + i)), 8), found) for i, found in enumerate(probe.vars)
        ]
    following, column = probe.vars
    return following, column


def count(f: Emitter, line: str, column: str) -> None:
    """One more of a column's n-gram in a row."""
    cell = f.at(line, f.shl(column, 2))
    f.store(F32, f.value(f"fadd float {f.load(F32, cell)}, 1.0"), cell)


def weigh(f: Emitter, mode: str, line: str, weights: str, width: str) -> None:
    """What a mode makes of the counts of a row, in their place."""
    if mode == "TF":
        return
    whole = f.and_(width, -TOGETHER)
    for first, end, lanes in (("0", whole, TOGETHER), (whole, width, 1)):
        single, double, bools = (f"<{lanes} x {t}>" for t in (F32, "double", "i1"))
        with f.loop(first, end, lanes) as c:
            cell, weight = f.at(line, f.shl(c.index, 2)), f.load(double, f.at(weights, f.shl(c.index, 3)), 8)
            counted = f.load(single, cell)
            if mode == "TFIDF":
                weight = f.value(f"fmul {double} {f.value(f'fpext {single} {counted} to {double}')}, {weight}")
            rounded = f.value(f"fptrunc {double} {weight} to {single}")
            there = f.value(f"fcmp ogt {single} {counted}, zeroinitializer")
            f.store(single, f.value(f"select {bools} {there}, {single} {rounded}, {single} zeroinitializer"), cell)

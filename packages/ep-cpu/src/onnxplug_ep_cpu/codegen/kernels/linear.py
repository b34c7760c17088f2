"""Linear attention: a state of each head that every token decays, corrects and reads, column by column of its values."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I64, PTR, Emitter

Step = Callable[[str, list[str]], list[str]]
"""A row of the state and sums so far -> the sums with it."""
Row = Callable[[str], list[str]]
"""The number of a row of the state -> its vectors."""
WAYS = 4
"""Sums of a product at a time, which hide its latency."""


class Arg(IntEnum):
    """Slots of the arguments; all tensors are dense."""

    Q = 0  # [batch, token, query heads, K]
    K = 1  # [batch, token, heads, K]
    V = 2  # [batch, token, heads, V]
    PAST = 3  # [batch, heads, K, V], or zeros
    FACTORS = 4  # [batch, token, heads, factors of a head]
    RATES = 5  # [batch, token, rates]
    STATE = 6  # as PAST
    Y = 7  # [batch, token, heads, groups, V]
    HELD = 8  # [item, K, columns]: states between tokens
    TOKENS = 9
    HEADS = 10
    QUERY_HEADS = 11
    SHARED = 12  # heads that read the same query head
    SIZE = 13  # K
    WIDTH = 14  # V
    RATE_COUNT = 15  # 1: all heads have one


@record(frozen=True, slots=True)
class Linear:
    """An item is (batch, head, ``vectors`` of value columns). State S, for each token: S *= factor; what a key finds is S^T k; S += k (v),
    or with ``delta`` S += k rate (v - found); y = scale S^T q for each of ``group`` queries. ``factors``: "none", "head" or "key", one
    for each row of the state. ``past``: the state is not zero before the first token. ``masked``: the last vector is not whole; then an
    item is one vector. Between tokens the item's columns lie by themselves, where they stay in the first-level cache."""

    factors: str
    delta: bool
    group: int
    past: bool
    vectors: int
    masked: bool
    scale: float

    def emit(self, f: Emitter) -> None:
        a = {slot: f.arg(slot, PTR if slot < Arg.TOKENS else I64) for slot in Arg}
        size, heads, tokens = a[Arg.SIZE], a[Arg.HEADS], a[Arg.TOKENS]
        row, columns = f.shl(a[Arg.WIDTH], 2), self.vectors * f.lanes
        blocks = f.div(f.add(a[Arg.WIDTH], columns - 1), columns)
        with f.items() as item:
            block, rest = f.rem(item, blocks), f.div(item, blocks)
            head, batch = f.rem(rest, heads), f.div(rest, heads)
            mask = f.lanes_below(f.sub(a[Arg.WIDTH], f.mul(block, columns))) if self.masked else None
            column = f.shl(f.mul(block, columns), 2)
            start = f.add(f.mul(f.mul(rest, size), row), column)
            state, held = f.at(a[Arg.STATE], start), f.at(a[Arg.HELD], f.mul(f.mul(item, size), 4 * columns))
            before = (f.at(a[Arg.PAST], start), row) if self.past else (a[Arg.PAST], "0")
            query_head = f.div(f.mul(head, self.group), a[Arg.SHARED])
            with f.loop(0, tokens) as token:
                first = f.value(f"icmp eq i64 {token.index}, 0")
                last = f.value(f"icmp eq i64 {f.add(token.index, 1)}, {tokens}")
                source, target = (
                    (f.select(ends, PTR, where, held), f.select(ends, I64, step, str(4 * columns)))
                    for ends, (where, step) in ((first, before), (last, (state, row)))
                )
                place = f.add(f.mul(batch, tokens), token.index)
                mine = f.add(f.mul(place, heads), head)
                key = f.at(a[Arg.K], f.shl(f.mul(mine, size), 2))
                new = self._vectors(f, f.at(f.at(a[Arg.V], f.mul(mine, row)), column), mask)
                factor = f.at(a[Arg.FACTORS], f.shl(f.mul(mine, size) if self.factors == "key" else mine, 2))
                common = f.splat(f.load(F32, factor)) if self.factors == "head" else ""

                def decayed(at: str) -> list[str]:
                    """A row of the state, decayed."""
                    rows = self._vectors(f, f.at(source[0], f.mul(at, source[1])), mask)
                    if self.factors == "none":
                        return rows
                    by = common or f.splat(f.load(F32, f.at(factor, f.shl(at, 2))))
                    return [f.value(f"fmul {f.vec()} {x}, {by}") for x in rows]

                if self.delta:
                    found = self._found(f, size, key, decayed)
                    one = f.value(f"icmp eq i64 {a[Arg.RATE_COUNT]}, 1")
                    rate = f.add(f.mul(place, a[Arg.RATE_COUNT]), f.select(one, I64, "0", head))
                    rate = f.splat(f.load(F32, f.at(a[Arg.RATES], f.shl(rate, 2))))
                    differ = [f.value(f"fsub {f.vec()} {x}, {y}") for x, y in zip(new, found, strict=True)]
                    new = [f.value(f"fmul {f.vec()} {rate}, {x}") for x in differ]
                query = f.add(f.mul(place, a[Arg.QUERY_HEADS]), query_head)
                query = f.at(a[Arg.Q], f.shl(f.mul(query, size), 2))
                results = self._learned(f, size, (key, query), new, decayed, target, mask)
                y = f.at(f.at(a[Arg.Y], f.mul(f.mul(mine, self.group), row)), column)
                for g in range(self.group):
                    for i in range(self.vectors):
                        scaled = f.value(f"fmul {f.vec()} {results[g * self.vectors + i]}, {f.constant(self.scale)}")
                        f.store_masked(F32, scaled, f.at(f.at(y, f.mul(row, g)), 4 * f.lanes * i), mask)

    def _vectors(self, f: Emitter, where: str, mask: str | None) -> list[str]:
        return [f.load_masked(F32, f.at(where, 4 * f.lanes * i), mask) for i in range(self.vectors)]

    def _found(self, f: Emitter, size: str, key: str, decayed: Row) -> list[str]:
        """What the key finds in the decayed state."""

        def step(at: str, sums: list[str]) -> list[str]:
            by = f.splat(f.load(F32, f.at(key, f.shl(at, 2))))
            return [f.fma(by, x, total) for x, total in zip(decayed(at), sums, strict=True)]

        return self._summed(f, size, self.vectors, WAYS, step)

    def _learned(
        self,
        f: Emitter,
        size: str,
        asked: tuple[str, str],
        new: list[str],
        decayed: Row,
        target: tuple[str, str],
        mask: str | None,
    ) -> list[str]:
        """Add what is new to the decayed state; what each query finds in it."""
        key, query = asked

        def step(at: str, sums: list[str]) -> list[str]:
            offset, where = f.shl(at, 2), f.at(target[0], f.mul(at, target[1]))
            by = f.splat(f.load(F32, f.at(key, offset)))
            rows = [f.fma(by, x, held) for x, held in zip(new, decayed(at), strict=True)]
            for i, held in enumerate(rows):
                f.store_masked(F32, held, f.at(where, 4 * f.lanes * i), mask)
            done = []
            for g in range(self.group):
                x = f.splat(f.load(F32, f.at(query, f.add(offset, f.shl(f.mul(size, g), 2)))))
                parts = zip(rows, sums[g * self.vectors : (g + 1) * self.vectors], strict=True)
                done += [f.fma(x, held, total) for held, total in parts]
            return done

        return self._summed(f, size, self.group * self.vectors, max(1, WAYS // self.group), step)

    @staticmethod
    def _summed(f: Emitter, size: str, count: int, ways: int, step: Step) -> list[str]:
        """``count`` sums over the rows of the state, ``ways`` rows at a time."""
        v = f.vec()
        whole = f.sub(size, f.rem(size, ways))
        with f.loop(0, whole, ways, [(v, "zeroinitializer")] * (count * ways)) as k:
            for way in range(ways):
                k.next += step(f.add(k.index, way), k.vars[way * count : (way + 1) * count])
        total = k.vars[:count]
        for way in range(1, ways):
            part = k.vars[way * count : (way + 1) * count]
            total = [f.value(f"fadd {v} {x}, {y}") for x, y in zip(total, part, strict=True)]
        with f.loop(whole, size, 1, [(v, x) for x in total]) as k:
            k.next = step(k.index, k.vars)
        return k.vars

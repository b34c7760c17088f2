"""How the rows of a product are divided into tiles: those of all rows, and a rest."""

from __future__ import annotations

from collections.abc import Callable

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import Emitter

ANY = -1
"""A rest whose rows are an argument."""
LONGEST = 7
"""Rows of a rest that one tile takes at most, so that there need not be a tile for each number."""

One = Callable[[int, str, str], None]
"""Emits a tile of so many rows: its number among those of all rows, and its first row."""
Ended = Callable[[str, str, str], None]
"""Emits the end of a tile whose rows are an argument."""
Left = tuple[One, Ended]
"""What emits the sums of a tile of rows that are left, and their end: once for tiles of all numbers of rows."""


def rests(rows: int) -> range:
    """Rows of the tiles that rests of any number take, beside tiles of ``rows`` rows. None has one row alone."""
    return range(2, min(rows - 1, LONGEST) + 1)


def parts(left: int, rows: int) -> list[int]:
    """The tiles of a rest: as few as can be, and as even."""
    count = -(-left // max(rests(rows)))
    return [(left + n) // count for n in range(count)][::-1]


@record(frozen=True, slots=True)
class TileRows:
    """``count`` tiles of ``rows`` rows and ``left`` rows behind them. Without a ``rest`` there are none: the last tile, which starts
    with row ``last``, overlaps the one before it."""

    rows: int
    rest: int
    count: str
    left: str
    last: str

    @classmethod
    def of(cls, f: Emitter, rows: int, rest: int, total: str, full: str) -> TileRows:
        """``total`` rows; with ANY rest the first ``full`` tiles have all rows."""
        if rest == ANY:
            return cls(rows, rest, full, f.sub(total, f.mul(full, rows)), "0")
        if rest:
            return cls(rows, rest, f.div(total, rows), str(rest), "0")
        return cls(rows, rest, f.div(f.add(total, rows - 1), rows), "0", f.sub(total, rows))

    def passes(self, f: Emitter, first: str, end: str) -> str:
        """How often an item of tiles ``first`` up to ``end`` goes over a panel."""
        passes = f.sub(end, first)
        if not self.rest:
            return passes
        last = f.value(f"icmp eq i64 {end}, {self.count}")
        if self.rest == ANY:
            last = f.value(f"and i1 {last}, {f.less(0, self.left)}")
        return f.add(passes, f.value(f"zext i1 {last} to i64"))

    def each(self, f: Emitter, first: str, end: str, one: One, left: Left | None = None) -> None:
        """``one`` for each tile of an item, after the last of all the rows that are left; ``left`` for those of ANY, if given."""
        with f.loop(first, end) as tile:
            m = f.mul(tile.index, self.rows)
            one(self.rows, tile.index, m if self.rest else f.smallest(m, self.last))
        if self.rest:
            with f.when(f.value(f"icmp eq i64 {end}, {self.count}")):
                done = f.mul(end, self.rows)
                if self.rest == ANY:
                    self._parts(f, end, done, *(left or (one, None)))
                else:
                    one(self.rest, end, done)

    def _parts(self, f: Emitter, end: str, done: str, one: One, ended: Ended | None) -> None:
        """Each tile of the rows that are left (see ``parts``), ``done`` of them before."""
        longest = max(rests(self.rows))
        tiles = f.div(f.add(self.left, longest - 1), longest)
        with f.loop(0, tiles, carried=[("i64", done)]) as tile:
            (m,) = tile.vars
            more = f.sub(f.add(done, self.left), m)
            others = f.sub(tiles, tile.index)
            count = f.div(f.sub(f.add(more, others), 1), others)
            for rows in rests(self.rows):
                with f.when(f.value(f"icmp eq i64 {count}, {rows}")):
                    one(rows, end, m)
            if ended:
                ended(count, end, m)
            tile.next = [f.add(m, count)]

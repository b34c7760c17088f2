"""Counting the n-grams of texts where their bytes lie: no token becomes an object (see ``documents`` for where this serves).

A text is read once, byte by byte of its UTF-8 form. A token is a run of bytes of a set, which all bytes behind ASCII are in or
are not in, so that runs of bytes are runs of characters; its hash grows as it is read. A known token has a number, by which n-grams
are followed as ``kernels.grams`` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I64, PTR
from onnxplug_ep_cpu.codegen.kernels.grams import count, following_of, weigh
from onnxplug_ep_cpu.codegen.objects import Array, Function

FACTOR = 0x9E3779B97F4A7C15
"""What a hash is multiplied with for each byte; odd, so that no bit is lost."""
WORD = 4
"""Words of an entry of the table of tokens: hash, number (0: none), where its bytes begin, how many."""
OUTSIDE = -1
"""What the table of bytes has for those that no token holds."""
LONGEST = 1 << 24
"""Bytes of a text from which on counts may be beyond what float32 has exactly."""
_TOP_BITS = -0x7F7F7F7F7F7F7F80
"""The highest bit of each byte of a word."""


@record(frozen=True, slots=True)
class Words:
    """Tokens with their numbers: a hash table, a power of two of places, and all their bytes."""

    table: np.ndarray
    text: np.ndarray

    @classmethod
    def of(cls, numbers: Mapping[str, int]) -> Words:
        """Of tokens and their numbers, from 1 on."""
        size = 1 << (2 * len(numbers)).bit_length()
        table, text = np.zeros((size, WORD), np.int64), bytearray()
        taken = bytearray(size)
        for token, number in numbers.items():
            data = token.encode()
            found = hashed(data)
            place = found & (size - 1)
            while taken[place]:
                place = (place + 1) & (size - 1)
            taken[place] = 1
            table[place] = found - (found >> 63 << 64), number, len(text), len(data)
            text += data
        return cls(table, np.frombuffer(bytes(text) or b"\0", np.uint8))


def hashed(data: bytes) -> int:
    """As ``Counts`` computes it of a token."""
    found = 0
    for byte in data:
        found = (found + byte + 1) * FACTOR % 2**64
    return found ^ (found >> 32)


@record(frozen=True)
class Counts:
    """A row of counts for each text, as ``kernels.grams.Grams`` in a mode; of tokens of so many characters at least, or, if
    ``single``, of each character. ``cased``: texts that are not ASCII are changed first.

    Operands: room for the states of n-grams, texts, counts. Own words: dtypes of the three; True, which is given; what changes a
    text (a function of one argument); table of bytes (int16 of each: what it becomes, or ``OUTSIDE``); tokens: table, mask, bytes;
    n-grams: table, mask, probes; weights; columns, tokens of an n-gram, characters of a token.
    """

    mode: str
    cased: bool
    single: bool
    operands: ClassVar[int] = 3

    def emit(self, f: Function) -> None:
        room, texts, out = (f.array(number, f.own(number)) for number in range(3))
        true, change = f.own(3), f.own(4)
        width, longest = f.own(13, I64), f.own(14, I64)
        f.needs(f.value(f"icmp eq i64 {out.size}, {f.mul(texts.size, width)}"))
        f.needs(f.value(f"icmp sge i64 {room.size}, {f.shl(longest, 3)}"))
        slots = tuple(f.value("alloca i64, align 8") for _ in range(3))
        f.clear(out.data, f.shl(out.size, 2))
        with f.each(texts.size) as row:
            self._find(f, f.element(texts.data, row.index), change, slots)
            text, size, held = f.load(PTR, slots[0], 8), f.load(I64, slots[1], 8), f.load(PTR, slots[2], 8)
            line = f.at(out.data, f.shl(f.mul(row.index, width), 2))
            fits = f.less(size, LONGEST)
            self._read(f, text, f.select(fits, I64, size, "0"), line, room, longest)
            with f.when(f.is_there(held)):
                f.call("Py_DecRef", held)
            f.needs(fits)
            weigh(f, self.mode, line, f.own(12), width)
        f.call("Py_IncRef", true)
        f.give(true)

    def _find(self, f: Function, word: str, change: str, slots: tuple[str, ...]) -> None:
        """The bytes of a text, how many, and what is to be let go behind them, if anything: to three places."""
        text_slot, size_slot, held_slot = slots
        text = f.call("PyUnicode_AsUTF8AndSize", word, size_slot)
        f.needs(f.is_there(text))
        f.store(PTR, text, text_slot, 8)
        f.store(PTR, "null", held_slot, 8)
        if not self.cased:
            return
        plain, done = f.label("plain"), f.label("found")
        f.do(f"br i1 {self._is_ascii(f, text, f.load(I64, size_slot, 8))}, label %{done}, label %{plain}")
        f.start(plain)
        changed = f.call("PyObject_CallOneArg", change, word)
        f.needs(f.is_there(changed))
        text = f.call("PyUnicode_AsUTF8AndSize", changed, size_slot)
        there = f.is_there(text)
        with f.when(f.value(f"xor i1 {there}, true")):
            f.call("Py_DecRef", changed)
        f.needs(there)
        f.store(PTR, text, text_slot, 8)
        f.store(PTR, changed, held_slot, 8)
        f.do(f"br label %{done}")
        f.start(done)

    def _is_ascii(self, f: Function, text: str, size: str) -> str:
        """Whether no byte has its highest bit set."""
        whole = f.and_(size, -8)
        with f.loop(0, whole, 8, ((I64, "0"),)) as eight:
            eight.next = [f.value(f"or i64 {eight.vars[0]}, {f.load(I64, f.at(text, eight.index), 1)}")]
        with f.loop(whole, size, carried=((I64, "0"),)) as one:
            byte = f.value(f"sext i8 {f.load('i8', f.at(text, one.index), 1)} to i64")
            one.next = [f.value(f"or i64 {one.vars[0]}, {byte}")]
        top = f.and_(f.value(f"or i64 {eight.vars[0]}, {one.vars[0]}"), _TOP_BITS)
        return f.value(f"icmp eq i64 {top}, 0")

    def _read(self, f: Function, text: str, size: str, line: str, room: Array, longest: str) -> None:
        """Count the n-grams of a text; there is a byte behind it, which is none of its own."""
        kinds, least = f.own(5), f.own(15, I64)
        with f.each(longest) as state:
            f.put(I64, "-1", room.data, state.index)
        with f.loop(0, f.add(size, 1), carried=((I64, "0"), (I64, "0"), (I64, "0"))) as at:
            found, length, characters = at.vars
            byte = f.value(f"zext i8 {f.load('i8', f.at(text, at.index), 1)} to i64")
            becomes = f.value(f"sext i16 {f.item('i16', kinds, byte, 2)} to i64")
            inside = f.value(f"and i1 {f.less(at.index, size)}, {f.value(f'icmp ne i64 {becomes}, {OUTSIDE}')}")
            leads = f.value(f"icmp ne i64 {f.and_(byte, 0xC0)}, 128")
            goes_on = f.value(f"and i1 {inside}, {f.value(f'xor i1 {leads}, true')}") if self.single else inside
            ends = f.value(
                f"and i1 {f.value(f'icmp sge i64 {characters}, {least}')}, {f.value(f'xor i1 {goes_on}, true')}"
            )
            with f.when(ends):
                mixed = f.value(f"xor i64 {found}, {f.value(f'lshr i64 {found}, 32')}")
                number = self._number(f, f.at(text, f.sub(at.index, length)), length, mixed, kinds)
                self._follow(f, number, line, room, longest)
            before = tuple(f.select(goes_on, I64, value, "0") for value in (found, length, characters))
            grown = (
                f.mul(f.add(f.add(before[0], becomes), 1), FACTOR - (1 << 64)),
                f.add(before[1], 1),
                f.add(before[2], f.value(f"zext i1 {leads} to i64")),
            )
            at.next = [f.select(inside, I64, value, "0") for value in grown]

    def _number(self, f: Function, token: str, length: str, mixed: str, kinds: str) -> str:
        """The number of a token, 0 for one that nobody knows."""
        table, mask, known_text = f.own(6), f.own(7, I64), f.own(8)
        before, head, done = f.block, f.label("probe"), f.label("probed")
        f.do(f"br label %{head}")
        f.start(head)
        at = len(f.lines)
        place = f"%{head}.place"
        entry = f.at(table, f.shl(f.and_(place, mask), 5))
        number = f.load(I64, f.at(entry, 8), 8)
        known = f.value(f"icmp ne i64 {number}, 0")
        alike = f.value(f"icmp eq i64 {f.load(I64, entry, 8)}, {mixed}")
        alike = f.value(f"and i1 {alike}, {f.value(f'icmp eq i64 {f.load(I64, f.at(entry, 24), 8)}, {length}')}")
        alike = f.value(f"and i1 {known}, {alike}")
        text = f.at(known_text, f.load(I64, f.at(entry, 16), 8))
        with f.each(f.select(alike, I64, length, "0"), (I64, "0")) as each:
            byte = f.value(f"zext i8 {f.load('i8', f.at(token, each.index), 1)} to i64")
            ours = f.value(f"sext i16 {f.item('i16', kinds, byte, 2)} to i64")
            theirs = f.value(f"zext i8 {f.load('i8', f.at(text, each.index), 1)} to i64")
            each.next = [f.value(f"or i64 {each.vars[0]}, {f.value(f'xor i64 {ours}, {theirs}')}")]
        same = f.value(f"and i1 {alike}, {f.value(f'icmp eq i64 {each.vars[0]}, 0')}")
        following, last = f.add(place, 1), f.block
        f.lines.insert(at, f"  {place} = phi i64 [{mixed}, %{before}], [{following}, %{last}]")
        stops = f.value(f"or i1 {same}, {f.value(f'xor i1 {known}, true')}")
        f.do(f"br i1 {stops}, label %{done}, label %{head}")
        f.start(done)
        return number

    def _follow(self, f: Function, number: str, line: str, room: Array, longest: str) -> None:
        """Read one more token: of each beginning that was read, the longest first, what is read now, and count what ends."""
        table = f.own(9), f.own(10, I64), f.own(11, I64)
        known = f.value(f"icmp ne i64 {number}, 0")
        with f.each(longest) as back:
            place = f.sub(f.sub(longest, 1), back.index)
            first = f.value(f"icmp eq i64 {place}, 0")
            before = f.item(I64, room.data, f.select(first, I64, "0", f.sub(place, 1)))
            state = f.select(first, I64, "0", before)
            f.put(I64, "-1", room.data, place)
            with f.when(f.value(f"and i1 {known}, {f.value(f'icmp sge i64 {state}, 0')}")):
                following, column = following_of(f, table, state, number)
                f.put(I64, following, room.data, place)
                with f.when(f.value(f"icmp sge i64 {column}, 0")):
                    count(f, line, column)

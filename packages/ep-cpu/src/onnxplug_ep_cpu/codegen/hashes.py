"""MurmurHash3 of strings, as a loop over ``str`` objects (see ``objects``)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I32, I64
from onnxplug_ep_cpu.codegen.objects import Function
from onnxplug_ep_cpu.codegen.text import each_word, strings_of

_FIRST, _SECOND = 0xCC9E2D51, 0x1B873593
_STEP = 0xE6546B64
_ENDS = ((16, 0x85EBCA6B), (13, 0xC2B2AE35))


@record(frozen=True)
class Murmur:
    """MurmurHash3_x86_32 (``onnxplug_kernels.ops.contrib_hash``) of the UTF-8 bytes of each string, from a seed (own: 1)."""

    positive: bool
    operands: ClassVar[int] = 1

    def emit(self, f: Function) -> None:
        x, room = strings_of(f), f.value("alloca i64, align 8")
        seed = f.value(f"trunc i64 {f.own(1, I64)} to i32")
        made_of = np.dtype(np.uint32 if self.positive else np.int32)
        with each_word(f, x, made_of) as (word, data, index):
            text = f.call("PyUnicode_AsUTF8AndSize", word, room)
            f.needs(f.is_there(text))
            f.put(I32, self._hash(f, text, f.load(I64, room, 8), seed), data, index, 4)

    def _hash(self, f: Function, text: str, size: str, seed: str) -> str:
        whole = f.value(f"lshr i64 {size}, 2")
        with f.loop(0, whole, carried=((I32, seed),)) as words:
            state = self._joined(f, words.vars[0], f.load(I32, f.at(text, f.shl(words.index, 2)), 1))
            turned = f.value(f"mul i32 {self._turned(f, state, 13)}, 5")
            words.next = [f.value(f"add i32 {turned}, {_STEP}")]
        rest = f.at(text, f.shl(whole, 2))
        with f.loop(0, f.and_(size, 3), carried=((I32, "0"),)) as tail:
            byte = f.value(f"zext i8 {f.load('i8', f.at(rest, tail.index), 1)} to i32")
            places = f.value(f"trunc i64 {f.shl(tail.index, 3)} to i32")
            tail.next = [f.value(f"or i32 {tail.vars[0]}, {f.value(f'shl i32 {byte}, {places}')}")]
        state = self._joined(f, words.vars[0], tail.vars[0])
        state = f.value(f"xor i32 {state}, {f.value(f'trunc i64 {size} to i32')}")
        for shift, factor in _ENDS:
            state = f.value(f"mul i32 {self._shifted(f, state, shift)}, {factor}")
        return self._shifted(f, state, 16)

    def _joined(self, f: Function, state: str, word: str) -> str:
        """With a word of four bytes, of which zeros at the end change nothing."""
        mixed = self._turned(f, f.value(f"mul i32 {word}, {_FIRST}"), 15)
        return f.value(f"xor i32 {state}, {f.value(f'mul i32 {mixed}, {_SECOND}')}")

    def _turned(self, f: Function, word: str, count: int) -> str:
        return f.intrinsic("llvm.fshl.i32", I32, (I32, word), (I32, word), (I32, str(count)))

    def _shifted(self, f: Function, state: str, count: int) -> str:
        return f.value(f"xor i32 {state}, {f.value(f'lshr i32 {state}, {count}')}")

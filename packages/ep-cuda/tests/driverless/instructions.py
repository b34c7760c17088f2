"""PTX's instructions in C, besides arithmetic: memory, branches and calls, barriers and what warps exchange."""

from __future__ import annotations

import re
from collections.abc import Callable

from driverless.arithmetic import HALVES, SPACES, WIDTH, Arithmetic, Untranslated, split


class Instructions(Arithmetic):
    """Those of one function."""

    is_entry: bool
    tables: dict[str, list[str]]
    places = 0
    """Points at which the function has returned so far."""

    # ---- memory

    def _place(self, operand: str, space: str | None, size: int, write: int) -> str:
        """A pointer to so many bytes at an operand in brackets."""
        found = re.fullmatch(r"\[\s*([%\w$]+)\s*(?:\+\s*(-?\w+))?\s*\]", operand)
        if found is None:
            raise Untranslated(f"address {operand}")
        name, offset = found[1], int(found[2] or "0", 0)
        if space == "param":
            variable = self.variables.get(name)
            if variable is not None:
                if offset + size > variable.size:
                    raise Untranslated(f"{operand} is beyond its parameter")
                return f"(l->params + {variable.offset + offset})"
            array = self.named(name)
            if array is not None and array in self.registers:
                return f"(l->params + {self.bits(name, 64)} + {offset})"
            return f"({array or name} + {offset})"
        variable = self._variable(name) if self.named(name) not in self.registers else None
        if variable is not None and space not in (None, variable.space, "const"):
            raise Untranslated(f"{operand} is in {variable.space}")
        at = f"{self._address(variable)}" if variable is not None else self._base(name, space)
        where = {"const": "global", None: "generic"}.get(space, space)
        return f"{where}_at(l, t, {at} + ({offset}LL), {size}, {write})"

    def _base(self, name: str, space: str | None) -> str:
        return self.bits(
            name, 32 if space in ("shared", "local") and self.registers[self.named(name) or ""] == 32 else 64
        )

    def _moved(self, words: list[str], operands: list[str]) -> tuple[str | None, str, int]:
        space = next((w.partition("::")[0] for w in words if w.partition("::")[0] in SPACES), None)
        return space, words[-1], int(next((w[1:] for w in words if w in ("v2", "v4", "v8")), "1"))

    def _ld(self, words: list[str], operands: list[str]) -> str:
        space, type_, count = self._moved(words, operands)
        width = WIDTH[type_]
        place = self._place(operands[1], space, width // 8 * count, 0)
        names = split(operands[0][1:-1]) if count > 1 else [operands[0]]
        sign = f"(s64)(s{width})" if type_[0] == "s" else ""
        takes = " ".join(f"{self.register(n)} = {sign}from[{k}];" for k, n in enumerate(names) if n != "_")
        return f"{{ const u{width} *from = (const u{width} *){place}; {takes} }}"

    def _ldu(self, words: list[str], operands: list[str]) -> str:
        return self._ld(words, operands)

    def _st(self, words: list[str], operands: list[str]) -> str:
        space, type_, count = self._moved(words, operands)
        width = WIDTH[type_]
        place = self._place(operands[0], space, width // 8 * count, 1)
        names = split(operands[1][1:-1]) if count > 1 else [operands[1]]
        gives = " ".join(f"to[{k}] = {self.bits(n, width)};" for k, n in enumerate(names))
        return f"{{ u{width} *to = (u{width} *){place}; {gives} }}"

    def _atom(self, words: list[str], operands: list[str]) -> str:
        space, type_, _ = self._moved(words, operands)
        how, width = next(w for w in words if w in _ATOMIC), WIDTH[type_]
        destination, address, *rest = operands
        place = self._place(address, space, width // 8, 1)
        kind = type_ if type_ not in ("b32", "b64", "b16") else f"u{width}"
        if kind in HALVES:
            raise Untranslated(".".join(["atom", *words]))
        old = {"f32": "F(*at)", "f64": "D(*at)", "f16": "of_half(*at)", "bf16": "of_brain(*at)"}.get(
            kind, f"({kind})*at"
        )
        text = _ATOMIC[how](old, [self.value(x, kind) for x in rest])
        load = {"f32": "f_", "f64": "d_", "f16": "to_half", "bf16": "to_brain"}.get(kind, f"(u{width})")
        keep = f"{self.register(destination)} = was;" if destination != "_" else ""
        return f"{{ u{width} *at = (u{width} *){place}; u{width} was = *at; *at = {load}({text}); {keep} }}"

    def _red(self, words: list[str], operands: list[str]) -> str:
        return self._atom(words, ["_", *operands])

    def _membar(self, words: list[str], operands: list[str]) -> str:
        return ";"

    _fence = _prefetch = _prefetchu = _nanosleep = _discard = _applypriority = _griddepcontrol = _membar

    # ---- control

    def _bra(self, words: list[str], operands: list[str]) -> str:
        return f"goto {label(operands[0])};"

    def _brx(self, words: list[str], operands: list[str]) -> str:
        cases = " ".join(f"case {n}: goto {name};" for n, name in enumerate(self.tables[label(operands[1])]))
        return f"switch ({self.bits(operands[0], 32)}) {{ {cases} }}"

    def _ret(self, words: list[str], operands: list[str]) -> str:
        return "return DONE;" if self.is_entry else "return;"

    def _exit(self, words: list[str], operands: list[str]) -> str:
        if not self.is_entry:
            raise Untranslated("exit in a function")
        return "return DONE;"

    def _trap(self, words: list[str], operands: list[str]) -> str:
        return f"fault(l, t, 0, 0, 4); {self._ret(words, operands) if self.is_entry else 'return;'}"

    def _call(self, words: list[str], operands: list[str]) -> str:
        flat = [
            each for operand in operands for each in (split(operand[1:-1]) if operand.startswith("(") else [operand])
        ]
        target = next(w for w in operands if not w.startswith("("))
        given = [self.named(each) or each for each in flat if each != target]
        return f"{target}({', '.join(['l', 't', *given])});"

    def _yield(self, state: str) -> str:
        self.places += 1
        return f"t->pc = {self.places}; return {state}; case {self.places}:;"

    def _bar(self, words: list[str], operands: list[str]) -> str:
        if words[:1] == ["warp"]:
            return f"t->kind = SYNC; t->mask = {self.bits(operands[0], 32)}; {self._yield('AT_WARP')}"
        if "sync" not in words or operands[:1] != ["0"] or len(operands) > 1:
            raise Untranslated(f"bar.{'.'.join(words)} {operands}")
        return self._yield("AT_BARRIER")

    _barrier = _bar

    def _shfl(self, words: list[str], operands: list[str]) -> str:
        destination, _, kept = operands[0].partition("|")
        value, by, clamp, mask = (self.bits(x, 32) for x in operands[1:])
        put = f"t->kind = SHFL_{words[1].upper()}; t->value = {value}; t->by = {by}; t->clamp = {clamp}; t->mask = {mask}; "
        got = f" {self.register(destination)} = t->result;" + (f" {self.register(kept)} = t->carry;" if kept else "")
        return put + self._yield("AT_WARP") + got

    def _vote(self, words: list[str], operands: list[str]) -> str:
        put = f"t->kind = VOTE_{words[1].upper()}; t->value = {self._predicate(operands[1])}; t->mask = {self.bits(operands[2], 32)}; "
        return f"{put}{self._yield('AT_WARP')} {self.register(operands[0])} = t->result;"

    def _match(self, words: list[str], operands: list[str]) -> str:
        width = WIDTH[words[-1]]
        put = (
            f"t->kind = MATCH_ANY; t->value = {self.bits(operands[1], width)}; t->mask = {self.bits(operands[2], 32)}; "
        )
        if words[0] != "any":
            raise Untranslated(f"match.{'.'.join(words)}")
        return f"{put}{self._yield('AT_WARP')} {self.register(operands[0])} = t->result;"

    def _redux(self, words: list[str], operands: list[str]) -> str:
        kind = words[1].upper() + (f"_{words[-1][0].upper()}" if words[1] in ("min", "max") else "")
        put = (
            f"t->kind = REDUX_{kind}; t->value = {self.bits(operands[1], 32)}; t->mask = {self.bits(operands[2], 32)}; "
        )
        return f"{put}{self._yield('AT_WARP')} {self.register(operands[0])} = t->result;"


_ATOMIC: dict[str, Callable[[str, list[str]], str]] = {
    "add": lambda old, x: f"{old} + ({x[0]})",
    "exch": lambda old, x: x[0],
    "cas": lambda old, x: f"{old} == ({x[0]}) ? ({x[1]}) : {old}",
    "min": lambda old, x: f"({x[0]}) < {old} ? ({x[0]}) : {old}",
    "max": lambda old, x: f"({x[0]}) > {old} ? ({x[0]}) : {old}",
    "and": lambda old, x: f"{old} & ({x[0]})",
    "or": lambda old, x: f"{old} | ({x[0]})",
    "xor": lambda old, x: f"{old} ^ ({x[0]})",
    "inc": lambda old, x: f"{old} >= ({x[0]}) ? 0 : {old} + 1",
    "dec": lambda old, x: f"{old} == 0 || {old} > ({x[0]}) ? ({x[0]}) : {old} - 1",
}


def label(name: str) -> str:
    """The C name of a label."""
    return "L_" + name.strip().replace("$", "_")

"""PTX's operands and arithmetic in C (``ptx.h`` has the functions that it calls)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

WIDTH = {
    "pred": 8, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16, "b32": 32, "u32": 32, "s32": 32,
    "f32": 32, "f16x2": 32, "bf16x2": 32, "b64": 64, "u64": 64, "s64": 64, "f64": 64,
}  # fmt: skip
HALVES = {"f16x2": "f16", "bf16x2": "bf16"}
_NARROW = {"f16": ("of_half", "to_half"), "bf16": ("of_brain", "to_brain")}
_COMPARED = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}  # fmt: skip
SPACES = ("global", "shared", "local", "const", "param")
_SPECIAL = {
    "%laneid": "(t->id & 31)", "%warpid": "(t->id >> 5)", "%lanemask_lt": "((1u << (t->id & 31)) - 1)", "%smid": "0", "%clock": "0",
    "%lanemask_eq": "(1u << (t->id & 31))", "%lanemask_le": "((2u << (t->id & 31)) - 1)", "%clock64": "0", "%globaltimer": "0",
    "%lanemask_gt": "~((2u << (t->id & 31)) - 1)", "%lanemask_ge": "~((1u << (t->id & 31)) - 1)",
    **{f"%{name}.{axis}": f"{of}[{n}]" for n, axis in enumerate("xyz")
       for name, of in (("tid", "t->tid"), ("ctaid", "t->ctaid"), ("ntid", "l->block"), ("nctaid", "l->grid"))},
}  # fmt: skip


class Untranslated(Exception):
    """An instruction that is not known here."""


@dataclass
class Variable:
    """A variable of a module or a function: its space and where it begins there."""

    space: str
    offset: int
    size: int


class Arithmetic:
    """Instructions of one function that compute. ``yields``: its registers are kept while other threads run."""

    module_variables: Mapping[str, Variable]
    variables: dict[str, Variable]
    registers: dict[str, int]
    names: list[dict[str, str]]
    yields: bool

    def named(self, name: str) -> str | None:
        """The C name of a register or an array of parameters."""
        return next((scope[name] for scope in reversed(self.names) if name in scope), None)

    def register(self, name: str) -> str:
        """A register in C."""
        found = self.named(name)
        if found is None or found not in self.registers:
            raise Untranslated(f"register {name}")
        return f"r->{found}" if self.yields else found

    # ---- operands

    def bits(self, operand: str, width: int) -> str:
        """An operand as an unsigned integer of that width."""
        if operand in _SPECIAL:
            return f"(u{width}){_SPECIAL[operand]}"
        if self.named(operand) in self.registers:
            return f"(u{width}){self.register(operand)}"
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", operand):
            return f"0x{operand[2:]}u"
        if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", operand):
            return f"0x{operand[2:]}ULL"
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", operand):
            return f"(u{width}){int(operand.rstrip('U'), 0) % (1 << 64)}ULL"
        if (variable := self._variable(operand)) is not None:
            return f"(u{width}){self._address(variable)}"
        raise Untranslated(f"operand {operand}")

    def _variable(self, name: str) -> Variable | None:
        return self.variables.get(name) or self.module_variables.get(name)

    @staticmethod
    def _address(variable: Variable) -> str:
        """In its own space."""
        return f"((u64)variables + {variable.offset})" if variable.space == "global" else f"{variable.offset}ULL"

    def value(self, operand: str, type_: str, ftz: bool = False) -> str:
        """An operand as a number of its type; those of 16 bits as float32."""
        made = self.bits(operand, WIDTH[type_])
        if type_ in _NARROW:
            return f"{_NARROW[type_][0]}({made})"
        if type_ == "f32":
            return f"flushed(F({made}))" if ftz else f"F({made})"
        if type_ == "f64":
            return f"D({made})"
        return f"(s{WIDTH[type_]})({made})" if type_.startswith("s") else f"({made})"

    def result(self, destination: str, made: str, type_: str, ftz: bool = False) -> str:
        """A number into a register."""
        if destination == "_":
            return ""
        if type_ in _NARROW:
            made = f"{_NARROW[type_][1]}({made})"
        elif type_ == "f32":
            made = f"f_(flushed({made}))" if ftz else f"f_({made})"
        elif type_ == "f64":
            made = f"d_({made})"
        elif type_.startswith("s"):
            made = f"(s64)(s{WIDTH[type_]})({made})"
        else:
            made = f"(u{WIDTH[type_]})({made})"
        return f"{self.register(destination)} = {made};"

    def _pair(self, operands: Sequence[str], made: Callable[..., str], type_: str) -> str:
        """An operation on both halves of 32 bits."""
        destination, *rest = operands
        load, store = _NARROW[type_]
        halves = [
            f"(u32){store}({made(*(f'{load}((u16)({self.bits(x, 32)} >> {at}))' for x in rest))}) << {at}"
            for at in (0, 16)
        ]
        return f"{self.register(destination)} = {' | '.join(halves)};"

    # ---- instructions

    def instruction(self, opcode: str, operands: list[str]) -> str:
        """An instruction with its operands. ``Untranslated`` where it is not known."""
        name, *words = opcode.split(".")
        handler = getattr(self, f"_{name}", None)
        if handler is not None:
            made: str = handler(words, operands)
            return made
        type_ = words[-1]
        if name in _ARITHMETIC:
            return self._arithmetic(name, words, operands)
        if name in _INTEGERS:
            return self.result(operands[0], _INTEGERS[name](self, type_, operands[1:]), type_)
        raise Untranslated(f"{opcode} {', '.join(operands)}")

    def _arithmetic(self, name: str, words: list[str], operands: list[str]) -> str:
        type_, ftz = words[-1], "ftz" in words
        mode = next((w for w in words if w in ("rz", "rm", "rp")), "")
        made = _bound(_ARITHMETIC[name], words, type_, mode)
        if type_ in HALVES:
            return self._pair(
                operands,
                lambda *given: _bound(_ARITHMETIC[name], words, "f16", mode)(*given),
                HALVES[type_],
            )
        if type_ not in ("f16", "bf16", "f32", "f64"):
            return self._whole(name, words, operands)
        text = made(*(self.value(x, type_, ftz) for x in operands[1:]))
        if "sat" in words:
            text = f"saturated{'d' * (type_ == 'f64')}({text})"
        return self.result(operands[0], text, type_, ftz)

    def _whole(self, name: str, words: list[str], operands: list[str]) -> str:
        """Arithmetic of integers."""
        type_, destination = words[-1], operands[0]
        width, sign = WIDTH[type_], type_[0]
        values = [self.value(x, type_) for x in operands[1:]]
        if name == "mad" and "cc" in words:
            return self._carried(words, operands, taken=False)
        if name in ("mul", "mad"):
            if "wide" in words:
                wide = f"{sign}{2 * width}"
                text = f"({wide})({values[0]}) * ({wide})({values[1]})"
                if name == "mad":
                    text += f" + {self.value(operands[3], wide)}"
                return self.result(destination, text, wide)
            if "hi" in words and width == 64:
                text = f"high_{'signed' if sign == 's' else 'unsigned'}({values[0]}, {values[1]})"
            elif "hi" in words:
                text = f"(u{width})((({sign}{2 * width})({values[0]}) * ({sign}{2 * width})({values[1]})) >> {width})"
            else:
                text = f"{self.bits(operands[1], width)} * {self.bits(operands[2], width)}"
            text = text if name == "mul" else f"{text} + {self.bits(operands[3], width)}"
            return self.result(destination, text, type_)
        unsigned = [self.bits(x, width) for x in operands[1:]]
        if name in ("add", "sub"):
            text = f"(u{width})({unsigned[0]} {'+' if name == 'add' else '-'} {unsigned[1]})"
            if "cc" in words:
                carried = f"{unsigned[0]} {'>' if name == 'add' else '<'} {'~' * (name == 'add')}{unsigned[1]}"
                return f"t->carry = {carried}; {self.result(destination, text, type_)}"
        elif name in ("div", "rem"):
            text = f"{name}_{type_}({values[0]}, {values[1]})"
        elif name in ("min", "max"):
            text = f"({values[0]}) {'<' if name == 'min' else '>'} ({values[1]}) ? ({values[0]}) : ({values[1]})"
        elif name == "neg":
            text = f"-{unsigned[0]}"
        elif name == "abs":
            text = f"({values[0]}) < 0 ? -{unsigned[0]} : {unsigned[0]}"
        else:
            raise Untranslated(f"{name}.{'.'.join(words)}")
        return self.result(destination, text, type_)

    def _carried(self, words: list[str], operands: list[str], *, taken: bool) -> str:
        """mad and madc with the carry between words of a long number."""
        type_ = words[-1]
        width = WIDTH[type_]
        a, b, c = (self.bits(x, width) for x in operands[1:])
        product = f"(unsigned __int128)({a}) * ({b})"
        part = f"(u{width})({product} >> {width})" if "hi" in words else f"(u{width})({product})"
        text = self.result(operands[0], "(u64)sum", type_) + (
            f" t->carry = (u32)(sum >> {width}) & 1;" if "cc" in words else ""
        )
        return f"{{ unsigned __int128 sum = (unsigned __int128){part} + ({c}){' + t->carry' * taken}; {text} }}"

    def _madc(self, words: list[str], operands: list[str]) -> str:
        return self._carried(words, operands, taken=True)

    def _addc(self, words: list[str], operands: list[str]) -> str:
        width = WIDTH[words[-1]]
        a, b = (self.bits(x, width) for x in operands[1:])
        wide = f"(unsigned __int128)({a}) + ({b}) + t->carry"
        text = self.result(operands[0], f"(u64)({wide})", words[-1])
        return (
            f"{{ unsigned __int128 sum = {wide}; {text} t->carry = (u32)(sum >> {width}) & 1; }}"
            if "cc" in words
            else text
        )

    def _subc(self, words: list[str], operands: list[str]) -> str:
        width = WIDTH[words[-1]]
        a, b = (self.bits(x, width) for x in operands[1:])
        return self.result(operands[0], f"{a} - {b} - t->carry", words[-1])

    def _setp(self, words: list[str], operands: list[str]) -> str:
        type_, ftz = words[-1], "ftz" in words
        first, _, second = operands[0].partition("|")
        text = self._compared(words[0], operands[1], operands[2], type_, ftz)
        joined = next((w for w in words[1:-1] if w in ("and", "or", "xor")), None)
        third = f" {'&|^'[('and', 'or', 'xor').index(joined)]} {self._predicate(operands[3])}" if joined else ""
        made = f"{self.register(first)} = ({text}){third};" if first != "_" else ""
        if second and second != "_":
            made = f"{{ u8 truth = ({text}); {self.register(first)} = truth{third}; {self.register(second)} = !truth{third}; }}"
        return made

    def _predicate(self, operand: str) -> str:
        if operand.startswith("!"):
            return f"!{self.register(operand[1:])}"
        return self.register(operand)

    def _compared(self, how: str, a: str, b: str, type_: str, ftz: bool) -> str:
        if type_.startswith("b") and type_ != "bf16":
            type_ = f"u{WIDTH[type_]}"
        x, y = (self.value(o, type_, ftz) for o in (a, b))
        if how in ("num", "nan"):
            return f"{'' if how == 'nan' else '!'}(({x}) != ({x}) || ({y}) != ({y}))"
        if how in _COMPARED:
            unordered = (
                f" && ({x}) == ({x}) && ({y}) == ({y})"
                if how == "ne" and type_ in ("f16", "bf16", "f32", "f64")
                else ""
            )
            return f"({x}) {_COMPARED[how]} ({y}){unordered}"
        if how.endswith("u") and how[:-1] in _COMPARED:
            return f"({x}) {_COMPARED[how[:-1]]} ({y}) || ({x}) != ({x}) || ({y}) != ({y})"
        raise Untranslated(f"comparison {how}")

    def _set(self, words: list[str], operands: list[str]) -> str:
        to, of = words[-2:]
        if of in HALVES:
            raise Untranslated(".".join(["set", *words]))
        text = self._compared(words[0], operands[1], operands[2], of, "ftz" in words)
        if to in ("f16", "bf16", "f32"):
            return self.result(operands[0], f"({text}) ? 1.0f : 0.0f", to)
        return self.result(operands[0], f"({text}) ? ~0ULL : 0", to)

    def _selp(self, words: list[str], operands: list[str]) -> str:
        width = WIDTH[words[-1]]
        a, b = (self.bits(x, width) for x in operands[1:3])
        return f"{self.register(operands[0])} = {self._predicate(operands[3])} ? {a} : {b};"

    def _slct(self, words: list[str], operands: list[str]) -> str:
        width = WIDTH[words[-2]]
        a, b = (self.bits(x, width) for x in operands[1:3])
        return f"{self.register(operands[0])} = ({self.value(operands[3], words[-1])}) >= 0 ? {a} : {b};"

    def _mov(self, words: list[str], operands: list[str]) -> str:
        width = WIDTH[words[-1]]
        destination, source = operands
        if destination.startswith("{"):
            parts = split(destination[1:-1])
            step = width // len(parts)
            return " ".join(
                f"{self.register(p)} = (u{step})({self.bits(source, width)} >> {n * step});"
                for n, p in enumerate(parts)
                if p != "_"
            )
        if source.startswith("{"):
            parts = split(source[1:-1])
            step = width // len(parts)
            joined = " | ".join(f"(u{width})({self.bits(p, step)}) << {n * step}" for n, p in enumerate(parts))
            return f"{self.register(destination)} = {joined};"
        if words[-1] == "pred":
            made = (
                self._predicate(source)
                if source[-1:].isalnum() and not source.lstrip("-").isdigit()
                else str(int(int(source, 0) != 0))
            )
            return f"{self.register(destination)} = {made};"
        return f"{self.register(destination)} = {self.bits(source, width)};"

    def _bit(self, sign: str, words: list[str], operands: list[str]) -> str:
        if words[-1] == "pred":
            a, b = (self._predicate(x) for x in operands[1:])
            return f"{self.register(operands[0])} = {a} {sign} {b};"
        a, b = (self.bits(x, WIDTH[words[-1]]) for x in operands[1:])
        return self.result(operands[0], f"{a} {sign} {b}", words[-1])

    def _and(self, words: list[str], operands: list[str]) -> str:
        return self._bit("&", words, operands)

    def _or(self, words: list[str], operands: list[str]) -> str:
        return self._bit("|", words, operands)

    def _xor(self, words: list[str], operands: list[str]) -> str:
        return self._bit("^", words, operands)

    def _not(self, words: list[str], operands: list[str]) -> str:
        if words[-1] == "pred":
            return f"{self.register(operands[0])} = !{self._predicate(operands[1])};"
        return self.result(operands[0], f"~{self.bits(operands[1], WIDTH[words[-1]])}", words[-1])

    def _shf(self, words: list[str], operands: list[str]) -> str:
        low, high, by = (self.bits(x, 32) for x in operands[1:])
        return self.result(
            operands[0], f"funnel({low}, {high}, {by}, {int(words[0] == 'l')}, {int('wrap' in words)})", "b32"
        )

    def _lop3(self, words: list[str], operands: list[str]) -> str:
        a, b, c, table = (self.bits(x, 32) for x in operands[1:5])
        return self.result(operands[0], f"logic({a}, {b}, {c}, {table})", "b32")

    def _dp4a(self, words: list[str], operands: list[str]) -> str:
        a, b, c = (self.bits(x, 32) for x in operands[1:])
        return self.result(
            operands[0], f"dotted({a}, {b}, {c}, {int(words[0][0] == 's')}, {int(words[1][0] == 's')})", "b32"
        )

    def _cvt(self, words: list[str], operands: list[str]) -> str:
        to, of = words[-2:]
        ftz = "ftz" in words
        mode = next((w for w in words[:-2] if w in _ROUNDINGS), "")
        if to in HALVES:
            store = _NARROW[HALVES[to]][1]
            high, low = (self.value(x, of, ftz) for x in operands[1:])
            return f"{self.register(operands[0])} = (u32){store}({high}) << 16 | {store}({low});"
        floats = ("f16", "bf16", "f32", "f64")
        x = self.value(operands[1], of, ftz and of == "f32")
        if of in floats and to in floats:
            if mode in ("rni", "rzi", "rmi", "rpi"):
                x = f"{_ROUNDINGS[mode]}{'' if of == 'f64' else 'f'}({x})"
            elif mode in ("rz", "rm", "rp") and (of, to) == ("f64", "f32"):
                x = f"{mode}_narrow({x})"
            elif mode in ("rz", "rm", "rp"):
                raise Untranslated(".".join(["cvt", *words]))
            if "relu" in words or "satfinite" in words:
                raise Untranslated(".".join(["cvt", *words]))
            if "sat" in words:
                x = f"saturated{'d' * (of == 'f64')}({x})"
            return self.result(operands[0], x, to, ftz and to == "f32")
        if of in floats:
            rounded = f"{_ROUNDINGS[mode]}({x})"
            bits = WIDTH[to]
            wide = int(of == "f64" or bits == 64)
            made = f"to_{'signed' if to[0] == 's' else 'unsigned'}({rounded}, {bits}, {wide})"
            return self.result(operands[0], made, to)
        if to in floats:
            if mode not in ("rn", ""):
                raise Untranslated(".".join(["cvt", *words]))
            return self.result(operands[0], f"({'f64' if to != 'f32' else 'f32'})({x})", to)
        if "sat" in words:
            low, high = (0, 2 ** WIDTH[to] - 1) if to[0] == "u" else (-(2 ** (WIDTH[to] - 1)), 2 ** (WIDTH[to] - 1) - 1)
            wide = f"(__int128)({x})"
            text = f"({wide} < {low}LL ? {low}LL : {wide} > (__int128){high}ULL ? {high}ULL : ({x}))"
            return self.result(operands[0], text, to)
        return self.result(operands[0], x, to)

    def _cvta(self, words: list[str], operands: list[str]) -> str:
        space = next(w for w in words if w in SPACES)
        window = {"shared": "SHARED_WINDOW", "local": "LOCAL_WINDOW"}.get(space, "0ULL")
        sign = "-" if "to" in words else "+"
        return self.result(operands[0], f"{self.bits(operands[1], 64)} {sign} {window}", "u64")

    def _isspacep(self, words: list[str], operands: list[str]) -> str:
        x = self.bits(operands[1], 64)
        inside = {w: f"({x}) - {w.upper()}_WINDOW < WINDOW" for w in ("shared", "local")}
        made = inside[words[0]] if words[0] in inside else f"!({inside['shared']}) && !({inside['local']})"
        return f"{self.register(operands[0])} = {made};"


_ROUNDINGS = {
    "rni": "rint",
    "rzi": "trunc",
    "rmi": "floor",
    "rpi": "ceil",
    "rn": "rint",
    "rz": "trunc",
    "rm": "floor",
    "rp": "ceil",
}


def _bound(made: Callable[..., str], words: list[str], type_: str, mode: str) -> Callable[..., str]:
    return lambda *given: made(words, type_, mode, *given)


def _d(type_: str) -> str:
    return "d" if type_ == "f64" else ""


def _plain(sign: str, name: str) -> Callable[..., str]:
    def made(words: list[str], type_: str, mode: str, a: str, b: str) -> str:
        if mode:
            return f"{mode}_{name}{_d(type_)}({a}, {'-' * (sign == '-')}({b}))"
        return f"({a}) {sign} ({b})"

    return made


def _fused(words: list[str], type_: str, mode: str, a: str, b: str, c: str) -> str:
    if mode:
        return f"{mode}_fma{_d(type_)}({a}, {b}, {c})"
    return f"fma({a}, {b}, {c})" if type_ != "f32" else f"fmaf({a}, {b}, {c})"


def _of(name: str) -> Callable[..., str]:
    """A function of libm's."""
    return lambda words, type_, mode, *given: f"{name}{'' if type_ == 'f64' else 'f'}({', '.join(given)})"


def _extreme(name: str) -> Callable[..., str]:
    def made(words: list[str], type_: str, mode: str, a: str, b: str, *rest: str) -> str:
        if rest or "xorsign" in words:
            raise Untranslated(f"{name} of three")
        return f"{name}{'_nan' if 'NaN' in words else _d(type_)}({a}, {b})"

    return made


_ARITHMETIC: dict[str, Callable[..., str]] = {
    "add": _plain("+", "add"),
    "sub": _plain("-", "add"),
    "mul": _plain("*", "mul"),
    "div": _plain("/", "div"),
    "fma": _fused,
    "mad": _fused,
    "min": _extreme("least"),
    "max": _extreme("most"),
    "rem": _of("fmod"),
    "abs": _of("fabs"),
    "neg": lambda words, type_, mode, a: f"-({a})",
    "sqrt": _of("sqrt"),
    "rsqrt": lambda words, type_, mode, a: f"1 / sqrt{'' if type_ == 'f64' else 'f'}({a})",
    "rcp": lambda words, type_, mode, a: f"{mode}_div{_d(type_)}(1, {a})" if mode else f"1 / ({a})",
    "ex2": _of("exp2"),
    "lg2": _of("log2"),
    "sin": _of("sin"),
    "cos": _of("cos"),
    "tanh": _of("tanh"),
    "copysign": lambda words, type_, mode, a, b: f"copysign{'' if type_ == 'f64' else 'f'}({b}, {a})",
}


def _b(f: Arithmetic, type_: str, x: str) -> str:
    return f.bits(x, WIDTH[type_])


_INTEGERS: dict[str, Callable[[Arithmetic, str, list[str]], str]] = {
    "shl": lambda f, type_, x: f"shifted_left({_b(f, type_, x[0])}, {f.bits(x[1], 32)}, {WIDTH[type_]})",
    "shr": lambda f, type_, x: (
        f"shifted_signed({f.value(x[0], type_)}, {f.bits(x[1], 32)}, {WIDTH[type_]})"
        if type_[0] == "s"
        else f"shifted_right({_b(f, type_, x[0])}, {f.bits(x[1], 32)}, {WIDTH[type_]})"
    ),
    "cnot": lambda f, type_, x: f"!{_b(f, type_, x[0])}",
    "popc": lambda f, type_, x: f"__builtin_popcountll({_b(f, type_, x[0])})",
    "clz": lambda f, type_, x: (
        f"{_b(f, type_, x[0])} ? __builtin_clzll({_b(f, type_, x[0])}) - {64 - WIDTH[type_]} : {WIDTH[type_]}"
    ),
    "brev": lambda f, type_, x: (
        f"reversed({f.bits(x[0], 32)})"
        if type_ == "b32"
        else f"(u64)reversed((u32)({f.bits(x[0], 64)})) << 32 | reversed((u32)({f.bits(x[0], 64)} >> 32))"
    ),
    "bfe": lambda f, type_, x: (
        f"extracted((u64){'(s64)' if type_[0] == 's' else ''}({f.value(x[0], type_)}), {f.bits(x[1], 32)}, {f.bits(x[2], 32)}, "
        f"{WIDTH[type_]}, {int(type_[0] == 's')})"
    ),
    "bfi": lambda f, type_, x: (
        f"inserted({_b(f, type_, x[0])}, {_b(f, type_, x[1])}, {f.bits(x[2], 32)}, {f.bits(x[3], 32)}, {WIDTH[type_]})"
    ),
    "prmt": lambda f, type_, x: f"permuted({', '.join(f.bits(o, 32) for o in x)})",
    "sad": lambda f, type_, x: (
        f"({f.value(x[0], type_)} > {f.value(x[1], type_)} ? {_b(f, type_, x[0])} - {_b(f, type_, x[1])} : "
        f"{_b(f, type_, x[1])} - {_b(f, type_, x[0])}) + {_b(f, type_, x[2])}"
    ),
    "activemask": lambda f, type_, x: "0xffffffff",
}  # fmt: skip


def split(words: str) -> list[str]:
    """Operands between commas outside of brackets."""
    made, depth, start = [], 0, 0
    for at, sign in enumerate(words):
        depth += (sign in "{[(") - (sign in "}])")
        if sign == "," and not depth:
            made.append(words[start:at].strip())
            start = at + 1
    made.append(words[start:].strip())
    return [w for w in made if w]

"""The sum of rows of tables, normalised to mean 0 and variance 1 (com.microsoft EmbedLayerNormalization)."""

from __future__ import annotations

from onnxplug_kernel_text.skip import average
from onnxplug_kernel_text.types import marked, wrapped


def embedding(
    name: str, type_: str, id_type: str, *, places: bool, segments: bool, total: bool, group: int, watched: bool = False,
    bytes_: str = "",
) -> str:  # fmt: skip
    """(t - mean) / sqrt(variance + epsilon) * gamma + beta with t = words[id] + positions[place] + kinds[segment] for each line.

    Tensors: ids; places, segments (if any); of ``type_``: words, positions, kinds (if segments), gamma, beta, out0, and the sums t (if
    asked for); where ``watched`` fault (i32). Without ``places`` line l has place l % period. Scalars: i64 n, period, place_period (places
    are repeated), words, positions and kinds there are, modulo which numbers are taken; mark, which goes into fault where that changes a
    number; f32 epsilon. ``group`` work-items a line (a power of two, the local size).

    ``bytes_``: the type of the tables, gamma and beta, behind each of which stand its scale, of ``type_``, and its zero point."""
    typed = [
        (id_type, "ids"),
        *([(id_type, "places")] if places else []),
        *([(id_type, "segments")] if segments else []),
    ]
    for table in ("words", "positions", *(["kinds"] if segments else []), "gamma", "beta"):
        typed += [(bytes_, table), (type_, f"{table}_scale"), (bytes_, f"{table}_zero")] if bytes_ else [(type_, table)]
    typed.append((type_, "out0"))
    typed += [*([(type_, "total")] if total else []), *([("i32", "fault")] if watched else [])]
    place = wrapped("(i64)places[at % place_period]", "all_positions") if places else "at % period"

    def read(table: str, at: str) -> str:
        if bytes_:
            return f"((f32){table}[{at}] - (f32){table}_zero[0]) * LOAD_{type_}({table}_scale, 0)"
        return f"LOAD_{type_}({table}, {at})"

    x = f"{read('words', 'word + k')} + {read('positions', 'place + k')}"
    x += f" + {read('kinds', 'kind + k')}" if segments else ""
    each = f"for (i64 k = LOCAL_ID(0); k < n; k += {group})"

    scalars = ["n", "period", "place_period", "all_words", "all_positions", "all_kinds", *(["mark"] if watched else [])]
    numbers = [("ids[at]", "all_words"), *([("segments[at]", "all_kinds")] if segments else [])]
    numbers += [("places[at % place_period]", "all_positions")] if places else []
    declared = [*(f"TENSOR({t}, {v})" for t, v in typed), *(f"const i64 {s}" for s in scalars)]
    lines = [
        f"KERNEL void {name}({', '.join(declared)}, const f32 epsilon) {{",
        "  " + " ".join(f"OPEN({t}, {v})" for t, v in typed),
        f"  const i64 at = GROUP_ID(0), word = {wrapped('(i64)ids[at]', 'all_words')} * n, place = ({place}) * n;",
        f"  const i64 kind = {wrapped('(i64)segments[at]', 'all_kinds')} * n;" if segments else "",
        " ".join(marked(f"(i64){index}", extent) for index, extent in numbers) if watched else "",
        f"  LOCAL f32 shared[{group}]; f32 mean = 0, spread = 0;",
        average("mean", "x", x, each, group),
        average("spread", "(x - mean) * (x - mean)", x, each, group),
        "  spread = 1 / sqrt(spread + epsilon);",
        f"  {each} {{ const f32 x = {x};",
        f"    STORE_{type_}(total, at * n + k, x);" if total else "",
        f"    STORE_{type_}(out0, at * n + k, (x - mean) * spread * {read('gamma', 'k')} + {read('beta', 'k')}); }}",
    ]
    return "\n".join([*(line for line in lines if line), "}\n"])


def ones(name: str, id_type: str, *, mask: bool) -> str:
    """How many ones each line of a mask has, 0 without one. Tensors: mask (if any), out0, both ``id_type``. Scalars, i64: lines, n. One
    work-item a line."""
    given = f"TENSOR({id_type}, mask), " if mask else ""
    each = "for (i64 k = 0; k < n; k++) a += mask[at * n + k] == 1;" if mask else ""
    return f"""KERNEL void {name}({given}TENSOR({id_type}, out0), const i64 lines, const i64 n) {{
  const i64 at = GLOBAL_ID64(0);
  if (at >= lines) return;
  {f"OPEN({id_type}, mask)" if mask else ""} OPEN({id_type}, out0)
  {id_type} a = 0;
  {each}
  out0[at] = a;
}}
"""

"""Functions of OpenCL C where kernels are compiled for the host, as by PoCL. There the functions of its library are calls, and loops with
calls do not become vectors: each element then takes ten to a hundred times as long. Compilers of other devices have their own.

Those that are an instruction are left to the compiler. The others are Cephes' (https://www.netlib.org/cephes/); ``expm1`` is the
polynomial of ``exp_of`` less its 1 where the result is small. They are within 4 ulp, logarithm and tangent within 2; powers, which are
computed in doubles, are nearly always those that are nearest."""

_INSTRUCTIONS = {
    **dict.fromkeys(("rint", "floor", "ceil", "fabs", "sqrt"), "a"), **dict.fromkeys(("fmin", "fmax", "copysign"), "ab"), "fma": "abc",
}  # fmt: skip
"""Functions that are an instruction, and their operands."""
_WRITTEN = {"log": "v", "log1p": "v", "expm1": "v", "tanh": "v", "pow": "ab"}
"""Functions that are written out for floats, and their operands; of doubles they stay calls."""
_OWN = "__attribute__((overloadable))"

_FLOATS = """static float OWN log_of(float v) {
  const bool small = v < 1.17549435e-38f;  /* below the normal range */
  const int bits = as_int(small ? v * 8388608.0f : v), over = (bits & 0x7fffff) > 0x3504f3;  /* beyond the root of 2 */
  const float m = as_float((bits & 0x7fffff) | (over ? 0x3f000000 : 0x3f800000)) - 1.0f, z = m * m;
  const float e = (float)((bits >> 23) - 127 + over - (small ? 23 : 0));
  float p = 7.0376836292e-2f * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f; p = p * m - 1.2420140846e-1f; p = p * m + 1.4249322787e-1f; p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f; p = p * m - 2.4999993993e-1f; p = p * m + 3.3333331174e-1f;
  const float r = m + (p * m * z - 2.12194440e-4f * e - 0.5f * z) + 0.693359375f * e;
  return v > 0 ? v == INFINITY ? v : r : v == 0 ? -INFINITY : NAN;
}
static float OWN log1p_of(float v) {
  const float u = 1.0f + v;  /* what rounding took from it is given back in proportion */
  return u == 1.0f || u == INFINITY ? v : log_of(u) * (v / (u - 1.0f));
}
static float OWN expm1_of(float v) {
  float p = 1.9875691500e-4f;
  p = p * v + 1.3981999507e-3f; p = p * v + 8.3334519073e-3f; p = p * v + 4.1665795894e-2f;
  p = p * v + 1.6666665459e-1f; p = p * v + 5.0000001201e-1f;
  return v > -0.35f && v < 0.35f ? v == 0 ? v : p * (v * v) + v : exp_of(v) - 1.0f;
}
static float OWN tanh_of(float v) {
  const float m = v < 0 ? -v : v, z = v * v, far = 1.0f - 2.0f / (exp_of(2.0f * m) + 1.0f);
  float p = -5.70498872745e-3f * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f; p = p * z + 1.33314422036e-1f; p = p * z - 3.33332819422e-1f;
  return m > 0.625f ? v < 0 ? -far : far : v == 0 ? v : p * z * v + v;
}
static float OWN pow_of(float a, float b) {
  const float m = a < 0 ? -a : a, w = m < 1.17549435e-38f ? m * 8388608.0f : m, h = b * 0.5f;
  const int bits = as_int(w), over = (bits & 0x7fffff) > 0x3504f3, e = (bits >> 23) - 127 + over - (w == m ? 0 : 23);
  const double d = (double)as_float((bits & 0x7fffff) | (over ? 0x3f000000 : 0x3f800000)), s = (d - 1) / (d + 1), z = s * s;
  double l = 1 / 15.0 * z + 1 / 13.0;
  l = l * z + 1 / 11.0; l = l * z + 1 / 9.0; l = l * z + 1 / 7.0; l = l * z + 1 / 5.0; l = l * z + 1 / 3.0; l = l * z + 1;
  l = (double)e + l * s * 2.8853900817779268;  /* twice the logarithm of e: log2 of the mantissa */
  l = m == 0 ? -INFINITY : m == INFINITY ? INFINITY : l;
  double t = m == 1 ? 0 : l * b;
  t = t > 160 ? 160 : t < -160 ? -160 : t;
  const int n = (int)(t + (t < 0 ? -0.5 : 0.5));
  const double r = (t - n) * 0.69314718055994531;
  double y = r / 362880 + 1 / 40320.0;
  y = y * r + 1 / 5040.0; y = y * r + 1 / 720.0; y = y * r + 1 / 120.0; y = y * r + 1 / 24.0;
  y = y * r + 1 / 6.0; y = y * r + 0.5; y = y * r + 1; y = y * r + 1;
  const float power = (float)(y * as_double((long)(n + 1023) << 52));
  const bool whole = rint_of(b) == b, odd = whole && rint_of(h) != h;
  const float signed_ = odd && as_int(a) < 0 ? -power : power;
  const float all = a < 0 && !whole && m != INFINITY ? NAN : a != a || b != b ? a + b : signed_;
  return b == 0 || a == 1 ? 1 : all;
}
"""

_HALVES = f"""static float {_OWN} load_half(__global const half *p) {{
  return __builtin_load_halff((const __private half *)(size_t)p);
}}
static void {_OWN} store_half(float v, __global half *p) {{ __builtin_store_halff(v, (__private half *)(size_t)p); }}
static void {_OWN} store_half(double v, __global half *p) {{ vstore_half_rte(v, 0, p); }}
"""

_PAIRS = """#ifdef __AVX512BW__
typedef short thirty_two_shorts __attribute__((vector_size(64)));
typedef int sixteen_ints __attribute__((vector_size(64)));
static int16 OWN pairs_here(int16 a, int16 b, int16 c) {
#ifdef __AVX512VNNI__
  typedef sixteen_ints i;
  return __builtin_astype(__builtin_ia32_vpdpwssd512(__builtin_astype(c, i), __builtin_astype(a, i), __builtin_astype(b, i)), int16);
#else
  typedef thirty_two_shorts s;
  return c + __builtin_astype(__builtin_ia32_pmaddwd512(__builtin_astype(a, s), __builtin_astype(b, s)), int16);
#endif
}
#endif
#ifdef __AVX2__
typedef short sixteen_shorts __attribute__((vector_size(32)));
typedef int eight_ints __attribute__((vector_size(32)));
static int8 OWN pairs_here(int8 a, int8 b, int8 c) {
#if defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))
  typedef eight_ints i;
  return __builtin_astype(__builtin_ia32_vpdpwssd256(__builtin_astype(c, i), __builtin_astype(a, i), __builtin_astype(b, i)), int8);
#else
  typedef sixteen_shorts s;
  return c + __builtin_astype(__builtin_ia32_pmaddwd256(__builtin_astype(a, s), __builtin_astype(b, s)), int8);
#endif
}
#ifndef __AVX512BW__
static int16 OWN pairs_here(int16 a, int16 b, int16 c) { return pairs_of(a, b, c); }
#endif
#undef PAIRS
#define PAIRS(a, b, c) pairs_here(a, b, c)
#endif
"""


def _instruction(name: str, operands: str) -> str:
    """A function that the compiler makes an instruction of, in both types."""
    given = ", ".join(operands)
    return "".join(
        f"static {t} {_OWN} {name}_of({', '.join(f'{t} {o}' for o in operands)}) {{ return __builtin_{name}{suffix}({given}); }}\n"
        for t, suffix in (("float", "f"), ("double", ""))
    )


def _host() -> str:
    defined = "(defined(__aarch64__) || (defined(__FMA__) && defined(__F16C__))) && defined(cl_khr_fp64)"
    parts = [f"#if {defined}\n", *(_instruction(name, given) for name, given in _INSTRUCTIONS.items())]
    parts += [
        f"static double {_OWN} {name}_of({', '.join(f'double {o}' for o in given)}) {{ return {name}({', '.join(given)}); }}\n"
        for name, given in _WRITTEN.items()
    ]
    parts += [_FLOATS.replace("OWN", _OWN), _HALVES, _PAIRS.replace("OWN", _OWN)]
    parts += [f"#undef {name}\n#define {name} {name}_of\n" for name in (*_INSTRUCTIONS, *_WRITTEN)]
    parts += ["#undef LOAD_f16\n#define LOAD_f16(p, i) load_half((p) + (i))\n"]
    parts += ["#undef STORE_f16\n#define STORE_f16(p, i, v) store_half(v, (p) + (i))\n", "#endif\n"]
    return "".join(parts)


HOST = _host()
"""What follows the dialect."""

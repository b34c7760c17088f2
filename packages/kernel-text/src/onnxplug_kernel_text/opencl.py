"""The dialect in OpenCL C 1.2 and later.

``EXP`` and ``ERF`` of floats are written out, because compilers for processors turn loops into vectors only where nothing is called:
Cephes' expf (https://www.netlib.org/cephes/) and N. Juffa's erff (https://stackoverflow.com/questions/35148198), both within 2 ulp.
``host`` has further ones."""

from onnxplug_kernel_text.host import HOST

_DIALECT = """
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double f64;
#endif
typedef char i8; typedef uchar u8; typedef uchar b8; typedef short i16; typedef ushort u16;
typedef int i32; typedef uint u32; typedef long i64; typedef ulong u64; typedef float f32; typedef ushort bf16;
#define f16 half
#define KERNEL __kernel
#define GLOBAL __global
#define LOCAL __local
#define DEVICE
#define RESTRICT restrict
#define TENSOR(T, x) __global T *x##_base, const long x##_at
#define OPEN(T, x) __global T *x = x##_base + x##_at;
#define GLOBAL_ID(d) ((int)get_global_id(d))
#define GLOBAL_ID64(d) ((long)get_global_id(d))
#define LOCAL_ID(d) ((int)get_local_id(d))
#define GROUP_ID(d) ((int)get_group_id(d))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define BARRIER_GLOBAL() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define LOAD_f32(p, i) ((p)[i])
#define LOAD_f64(p, i) ((p)[i])
#define LOAD_i8(p, i) ((p)[i])
#define LOAD_u8(p, i) ((p)[i])
#define LOAD_b8(p, i) ((p)[i])
#define LOAD_i16(p, i) ((p)[i])
#define LOAD_u16(p, i) ((p)[i])
#define LOAD_i32(p, i) ((p)[i])
#define LOAD_u32(p, i) ((p)[i])
#define LOAD_i64(p, i) ((p)[i])
#define LOAD_u64(p, i) ((p)[i])
#define LOAD_f16(p, i) vload_half(i, p)
#define LOAD_bf16(p, i) as_float((uint)(p)[i] << 16)
#define STORE_f32(p, i, v) (p)[i] = (v)
#define STORE_f64(p, i, v) (p)[i] = (v)
#define STORE_i8(p, i, v) (p)[i] = (v)
#define STORE_u8(p, i, v) (p)[i] = (v)
#define STORE_b8(p, i, v) (p)[i] = (v)
#define STORE_i16(p, i, v) (p)[i] = (v)
#define STORE_u16(p, i, v) (p)[i] = (v)
#define STORE_i32(p, i, v) (p)[i] = (v)
#define STORE_u32(p, i, v) (p)[i] = (v)
#define STORE_i64(p, i, v) (p)[i] = (v)
#define STORE_u64(p, i, v) (p)[i] = (v)
#define STORE_f16(p, i, v) vstore_half_rte(v, i, p)
#define STORE_bf16(p, i, v) (p)[i] = to_bf16(v)
#define EXP(x) exp_of(x)
#define ERF(x) erf_of(x)
#define DOT4(a, b, c) dot4(a, b, c)
#define PAIRS(a, b, c) pairs_of(a, b, c)
static int dot4(int a, int b, int c) {
  const char4 x = as_char4(a), y = as_char4(b);
  return c + x.s0 * y.s0 + x.s1 * y.s1 + x.s2 * y.s2 + x.s3 * y.s3;
}
static int8 __attribute__((overloadable)) pairs_of(int8 a, int8 b, int8 c) {
  return c + ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
}
static int16 __attribute__((overloadable)) pairs_of(int16 a, int16 b, int16 c) {
  return c + ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
}
static ushort to_bf16(float v) {
  uint bits = as_uint(v);
  return isnan(v) ? (ushort)((bits >> 16) | 64) : (ushort)((bits + 32767u + ((bits >> 16) & 1u)) >> 16);
}
static float __attribute__((overloadable)) exp_of(float v) {
  const float c = v < -104.0f ? -104.0f : v > 89.0f ? 89.0f : v;
  const int n = (int)(c * 1.44269504f + (c < 0 ? -0.5f : 0.5f));
  const float k = (float)n, r = (c - k * 0.693359375f) - k * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f; p = p * r + 8.3334519073e-3f; p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f; p = p * r + 5.0000001201e-1f; p = p * (r * r) + r + 1.0f;
  const int half_ = n / 2;  /* two factors: results below the normal range, and beyond it */
  return p * as_float((half_ + 127) << 23) * as_float((n - half_ + 127) << 23);
}
static float __attribute__((overloadable)) erf_of(float v) {
  const float m = v < 0 ? -v : v, t = m > 4.0f ? 4.0f : m, s = t * t;
  float a = -1.72853470e-5f * t + 3.83197126e-4f;
  const float u = -3.88396438e-3f * t + 2.42546219e-2f;
  a = a * s + u; a = a * t - 1.06777877e-1f; a = a * t - 6.34846687e-1f; a = a * t - 1.28717512e-1f; a = a * t - t;
  const float far = 1.0f - exp_of(a);
  float b = -5.96761703e-4f;
  b = b * s + 4.99119423e-3f; b = b * s - 2.67681349e-2f; b = b * s + 1.12819925e-1f; b = b * s - 3.76125336e-1f;
  b = b * s + 1.28379166e-1f; b = b * t + t;
  const float r = t > 0.927734375f ? far : b;
  return v < 0 ? -r : v == 0 ? v : r;
}
#ifdef cl_khr_fp64
static double __attribute__((overloadable)) exp_of(double v) { return exp(v); }
static double __attribute__((overloadable)) erf_of(double v) { return erf(v); }
#endif
"""
PRELUDE = _DIALECT + HOST

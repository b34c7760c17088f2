"""The dialect in OpenCL C 1.2 and later."""

PRELUDE = """
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
static ushort to_bf16(float v) {
  uint bits = as_uint(v);
  return isnan(v) ? (ushort)((bits >> 16) | 64) : (ushort)((bits + 32767u + ((bits >> 16) & 1u)) >> 16);
}
"""

"""The dialect in CUDA C++, as NVRTC compiles it."""

_PLAIN = ("f32", "f64", "i8", "u8", "b8", "i16", "u16", "i32", "u32", "i64", "u64")

PRELUDE = (
    """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
typedef signed char i8; typedef unsigned char u8; typedef unsigned char b8; typedef short i16; typedef unsigned short u16;
typedef int i32; typedef unsigned int u32; typedef long long i64; typedef unsigned long long u64; typedef float f32; typedef double f64;
typedef __half f16; typedef __nv_bfloat16 bf16;
#define KERNEL extern "C" __global__
#define GLOBAL
#define LOCAL __shared__
#define DEVICE __device__
#define RESTRICT __restrict__
#define TENSOR(T, x) T *x
#define OPEN(T, x)
#define GLOBAL_ID(d) GLOBAL_ID_##d
#define GLOBAL_ID_0 ((int)(blockIdx.x * blockDim.x + threadIdx.x))
#define GLOBAL_ID_1 ((int)(blockIdx.y * blockDim.y + threadIdx.y))
#define GLOBAL_ID_2 ((int)(blockIdx.z * blockDim.z + threadIdx.z))
#define GLOBAL_ID64(d) GLOBAL_ID64_##d
#define GLOBAL_ID64_0 ((i64)blockIdx.x * blockDim.x + threadIdx.x)
#define GLOBAL_ID64_1 ((i64)blockIdx.y * blockDim.y + threadIdx.y)
#define LOCAL_ID(d) LOCAL_ID_##d
#define LOCAL_ID_0 ((int)threadIdx.x)
#define LOCAL_ID_1 ((int)threadIdx.y)
#define GROUP_ID(d) GROUP_ID_##d
#define GROUP_ID_0 ((int)blockIdx.x)
#define GROUP_ID_1 ((int)blockIdx.y)
#define GROUP_ID_2 ((int)blockIdx.z)
#define BARRIER() __syncthreads()
#define BARRIER_GLOBAL() __syncthreads()
#define EXP(x) exp(x)
#define ERF(x) erf(x)
#define DOT4(a, b, c) dot4(a, b, c)
static __device__ inline int dot4(int a, int b, int c) {
#if __CUDA_ARCH__ >= 610
  return __dp4a(a, b, c);
#else
  for (int n = 0; n < 32; n += 8) c += (signed char)(a >> n) * (signed char)(b >> n);
  return c;
#endif
}
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fc00000)
#endif
"""
    + "".join(f"#define LOAD_{t}(p, i) ((p)[i])\n#define STORE_{t}(p, i, v) (p)[i] = (v)\n" for t in _PLAIN)
    + """
#define LOAD_f16(p, i) __half2float((p)[i])
#define STORE_f16(p, i, v) (p)[i] = to_f16(v)
#define LOAD_bf16(p, i) __bfloat162float((p)[i])
#define STORE_bf16(p, i, v) (p)[i] = __float2bfloat16_rn(v)
static __device__ inline __half to_f16(float v) { return __float2half_rn(v); }
static __device__ inline __half to_f16(double v) { return __double2half(v); }
"""
)

// What every kernel text begins with. The text is CUDA C++ and, for tests, C: so it keeps to what both know.
// A block has LANES_X times LANES_Y threads, at most 256, or 1024 of a KERNEL_WIDE; a thread is LANE_X, LANE_Y of
// block BLOCK of BLOCKS.

#ifdef __CUDACC_RTC__
#define FB_CUDA 1
#elif defined(__CUDACC__)
#define FB_CUDA 1
#include <math.h>
#endif

typedef long long i8;
typedef unsigned long long u8;
typedef int i4;
typedef unsigned int u4;
typedef float f4;
typedef double f8;
typedef unsigned char b1;
typedef unsigned short b2;  // a bfloat16: the upper half of the bits of a float

#ifdef FB_CUDA
// Blocks a multiprocessor must hold are named, else the compiler aims at more and spills registers for it.
#define KERNEL extern "C" __global__ void __launch_bounds__(256, 2)
#define KERNEL_WIDE extern "C" __global__ void __launch_bounds__(1024, 1)
#define DEVICE static __device__ __forceinline__
#define SHARED __shared__
#define BARRIER() __syncthreads()
#define LANE_X ((i8)threadIdx.x)
#define LANE_Y ((i8)threadIdx.y)
#define LANES_X ((i8)blockDim.x)
#define LANES_Y ((i8)blockDim.y)
#define BLOCK ((i8)blockIdx.x)
#define BLOCKS ((i8)gridDim.x)
#define ALIGNED(bytes) __align__(bytes)
#define UNROLL _Pragma("unroll 4")  // loads of several rounds are under way at once
#define UNROLLED _Pragma("unroll")
// A kernel that says OVERLAP may be launched so that the next one begins before it ends, and it before the last one
// ended: until AFTER_LAST it may read what no kernel of the stream writes, and write nothing. All its threads say both.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define OVERLAP() asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
#define AFTER_LAST() asm volatile("griddepcontrol.wait;" ::: "memory")
#else
#define OVERLAP() ((void)0)
#define AFTER_LAST() ((void)0)
#endif
#define CLAIMED(word, name) claimed((u8*)(word), name)
#define MOST(word, value) (void)atomicMax((u8*)(word), value)
DEVICE bool claimed(u8* word, u8 name) {
  const u8 was = atomicCAS(word, 0ull, name);
  return was == 0 || was == name;
}
DEVICE f8 as_f8(i8 bits) { return __longlong_as_double(bits); }
DEVICE f4 as_f4(u4 bits) { return __uint_as_float(bits); }
DEVICE u4 bits_of_f4(f4 x) { return __float_as_uint(x); }

#define F4_INF __int_as_float(0x7f800000)
#define F8_INF __longlong_as_double(0x7ff0000000000000ll)
#endif

// Elements that lie side by side and are loaded or stored at once.
#define VECTOR(kind, count, bytes) typedef struct ALIGNED(bytes) { kind v[count]; } kind##x##count;
VECTOR(f4, 2, 8)
VECTOR(f4, 4, 16)
VECTOR(f8, 2, 16)
VECTOR(i4, 2, 8)
VECTOR(i4, 4, 16)
VECTOR(i8, 2, 16)
VECTOR(b1, 2, 2)
VECTOR(b1, 4, 4)
VECTOR(b2, 2, 4)
VECTOR(b2, 4, 8)

DEVICE f4 f4_of_b2(b2 x) { return as_f4((u4)x << 16); }
DEVICE b2 b2_of_f4(f4 x) {  // the nearest one, of two the even one; a NaN stays a NaN
  const u4 bits = bits_of_f4(x);
  return x != x ? (b2)(bits >> 16 | 64) : (b2)((bits + 32767 + (bits >> 16 & 1)) >> 16);
}

DEVICE i8 min_i8(i8 a, i8 b) { return a < b ? a : b; }
DEVICE i8 max_i8(i8 a, i8 b) { return a > b ? a : b; }
// A rank and an id in one number, larger for earlier ranks, then for lower ids; see `row_texts.found_by`.
DEVICE u8 earliest(i8 rank, i8 id) {
  return (u8)(2147483647 - rank) << 32 | (u8)(2147483647 - min_i8(max_i8(id, -2147483647 - 1), 2147483647));
}
DEVICE f4 sigmoid_f4(f4 x) {
  f4 e = expf(-fabsf(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}
DEVICE f8 sigmoid_f8(f8 x) {
  f8 e = exp(-fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}
DEVICE u8 mixed(u8 z) {  // the finaliser of SplitMix64, as foldbatch.static.ops.random.mixed
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
// A float as a whole number: beyond its limits the nearer one, and NaN 0. C leaves it open, and processors differ.
#define WHOLE(to, from, low, high) \
  DEVICE to to##_of_##from(from x) { return x != x ? 0 : x >= -(from)low ? high : x < (from)low ? low : (to)x; }
#define I4_LOW (-2147483647 - 1)
#define I8_LOW (-9223372036854775807ll - 1)
WHOLE(i4, f4, I4_LOW, 2147483647)
WHOLE(i4, f8, I4_LOW, 2147483647)
WHOLE(i8, f4, I8_LOW, 9223372036854775807ll)
WHOLE(i8, f8, I8_LOW, 9223372036854775807ll)

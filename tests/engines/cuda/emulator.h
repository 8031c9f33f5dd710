// Runs kernels on the CPU: what a GPU gives a kernel, as plain C. A block is one thread, and blocks run one after
// the other, so barriers have nothing to wait for. Texts must work for any number of threads in a block.
// No header is included: reading math.h would take as long as compiling a small kernel.

#define KERNEL void
#define KERNEL_WIDE void
#define DEVICE static inline
#define SHARED static
#define BARRIER() ((void)0)
#define LANE_X ((i8)0)
#define LANE_Y ((i8)0)
#define LANES_X ((i8)1)
#define LANES_Y ((i8)1)
#define BLOCK emulated_block
#define BLOCKS emulated_blocks
#define UNROLL
#define UNROLLED
#define OVERLAP() ((void)0)
#define AFTER_LAST() ((void)0)
#define ALIGNED(bytes) __attribute__((aligned(bytes)))
#define CLAIMED(word, name) (*(u8*)(word) == 0 ? (*(u8*)(word) = (name), 1) : *(u8*)(word) == (name))
#define MOST(word, value) (*(u8*)(word) = *(u8*)(word) > (value) ? *(u8*)(word) : (value))

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define F4_INF ((float)INFINITY)
#define F8_INF ((double)INFINITY)
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)
#define signbit(x) __builtin_signbit(x)
#define memcpy __builtin_memcpy
#define memset __builtin_memset

#define OF_ONE(name) float name##f(float); double name(double);
#define OF_TWO(name) float name##f(float, float); double name(double, double);
OF_ONE(acos) OF_ONE(acosh) OF_ONE(asin) OF_ONE(asinh) OF_ONE(atan) OF_ONE(atanh) OF_ONE(cbrt) OF_ONE(ceil)
OF_ONE(cos) OF_ONE(cosh) OF_ONE(erf) OF_ONE(erfc) OF_ONE(exp) OF_ONE(exp2) OF_ONE(expm1) OF_ONE(fabs) OF_ONE(floor)
OF_ONE(lgamma) OF_ONE(log) OF_ONE(log10) OF_ONE(log1p) OF_ONE(log2) OF_ONE(rint) OF_ONE(round) OF_ONE(sin)
OF_ONE(sinh) OF_ONE(sqrt) OF_ONE(tan) OF_ONE(tanh) OF_ONE(tgamma) OF_ONE(trunc)
OF_TWO(atan2) OF_TWO(copysign) OF_TWO(fmax) OF_TWO(fmin) OF_TWO(fmod) OF_TWO(pow) OF_TWO(remainder)
float fmaf(float, float, float);
double fma(double, double, double);

static long long emulated_block, emulated_blocks;

static inline double as_f8(long long bits) {
  double x;
  memcpy(&x, &bits, 8);
  return x;
}

static inline float as_f4(unsigned int bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

static inline unsigned int bits_of_f4(float x) {
  unsigned int bits;
  memcpy(&bits, &x, 4);
  return bits;
}

typedef void (*Emulated)(long long, long long, long long, long long, long long, long long, long long, long long,
                         long long, long long, long long, long long, long long, long long, long long, long long);

// Parameters beyond those of the kernel are not looked at: the caller passes them, and takes them away again.
void emulate(Emulated kernel, long long blocks, const long long* a) {
  emulated_blocks = blocks;
  for (emulated_block = 0; emulated_block < blocks; emulated_block++)
    kernel(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15]);
}

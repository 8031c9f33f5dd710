// Runs kernels on the CPU: what a GPU gives a kernel, as plain C. A block is one thread, and blocks run one after
// the other, so barriers have nothing to wait for. Texts must work for any number of threads in a block.

#include <math.h>
#include <string.h>

#define KERNEL void
#define DEVICE static inline
#define SHARED static __thread
#define BARRIER() ((void)0)
#define LANE_X ((i8)0)
#define LANE_Y ((i8)0)
#define LANES_X ((i8)1)
#define LANES_Y ((i8)1)
#define BLOCK emulated_block
#define BLOCKS emulated_blocks
#define ALIGNED(bytes) __attribute__((aligned(bytes)))
#define FIRST_OF(word) (*(long long*)(word) == 0 ? (*(long long*)(word) = 1, 1) : 0)
#define F4_INF ((float)INFINITY)
#define F8_INF ((double)INFINITY)

static __thread long long emulated_block, emulated_blocks;

static inline double as_f8(long long bits) {
  double x;
  memcpy(&x, &bits, 8);
  return x;
}

typedef void (*Emulated)(long long, long long, long long, long long, long long, long long, long long, long long,
                         long long, long long, long long, long long, long long, long long, long long, long long);

// Parameters beyond those of the kernel are not looked at: the caller passes them, and takes them away again.
void emulate(Emulated kernel, long long blocks, const long long* a) {
  emulated_blocks = blocks;
  for (emulated_block = 0; emulated_block < blocks; emulated_block++)
    kernel(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15]);
}

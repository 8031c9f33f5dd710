// Runs a kernel on the CPU as a GPU does: a thread for each lane of a block, and several blocks at once.
// The program reads a launch with its memory from its input, runs it, and writes the memory to its output.
// What threads do to each other's memory without a barrier between, ThreadSanitizer reports.
// POSIX threads and no header of C++: with <thread> and <barrier> a program takes twice as long to compile.

#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KERNEL extern "C" void
#define KERNEL_WIDE extern "C" void
#define KERNEL_TOGETHER extern "C" void
#define GRID_BARRIER(words) emulated_grid_barrier(words)
#define DEVICE static inline
#define BARRIER() emulated_barrier()
#define THREADS (emulated_launch.lanes_x * emulated_launch.lanes_y)
#define LANE_X ((i8)emulated.lane_x)
#define LANE_Y ((i8)emulated.lane_y)
#define LANES_X ((i8)emulated_launch.lanes_x)
#define LANES_Y ((i8)emulated_launch.lanes_y)
#define BLOCK ((i8)emulated.block)
#define BLOCKS ((i8)emulated_launch.blocks)
#define ALIGNED(bytes) __attribute__((aligned(bytes)))
#define FIRST_OF(word) emulated_first((long long*)(word))
#define F4_INF ((float)INFINITY)
#define F8_INF ((double)INFINITY)

enum { AT_ONCE = 8 };  // blocks, at most

typedef void (*Emulated)(long long, long long, long long, long long, long long, long long, long long, long long,
                         long long, long long, long long, long long, long long, long long, long long, long long);
struct Launch { long long kernel, blocks, lanes_x, lanes_y, at_once, buffers, a[16]; };
struct Lane { long long lane_x, lane_y, block, place, barriers; };
struct Memory { long long address, nbytes; char* here; };

static Launch emulated_launch;
static thread_local Lane emulated;

static inline double as_f8(long long bits) {
  double x;
  memcpy(&x, &bits, 8);
  return x;
}

// Relaxed, as on a GPU: who is first learns nothing of what others wrote.
static inline bool emulated_first(long long* word) {
  long long expected = 0;
  return __atomic_compare_exchange_n(word, &expected, 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

// A barrier of a block. Threads that are done leave it, so that the others go on and the mistake can be reported.
// A thread that wakes looks at `turn` alone, which tells it what happened before the barrier was full and nothing of
// what others did since. With a mutex, or pthread_barrier_t, ThreadSanitizer would take a late one for warned.
struct Barrier {
  long long state;  // threads that wait; above 32 bits, threads that have not left
  int turn;

  void full(long long waiting) {
    __atomic_fetch_sub(&state, waiting, __ATOMIC_RELAXED);
    __atomic_fetch_add(&turn, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, INT_MAX, 0, 0, 0);
  }
  void look(long long now) {
    if (now >> 32 && now >> 32 == (int)now) full((int)now);
  }
  void wait() {
    int before = __atomic_load_n(&turn, __ATOMIC_RELAXED);
    look(__atomic_add_fetch(&state, 1, __ATOMIC_ACQ_REL));
    while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) == before)
      syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, before, 0, 0, 0);
  }
  void leave() { look(__atomic_sub_fetch(&state, 1ll << 32, __ATOMIC_ACQ_REL)); }
};
static Barrier emulated_barriers[AT_ONCE];

static inline void emulated_barrier() {
  emulated.barriers++;
  emulated_barriers[emulated.place].wait();
}

// As device.h has it, with real atomics. All blocks run at once here, or this would wait for ever.
static inline void emulated_grid_barrier(long long* words) {
  emulated_barrier();
  if (emulated.lane_x == 0 && emulated.lane_y == 0) {
    long long blocks = emulated_launch.blocks;
    long long goal = (__atomic_fetch_add(words, 1, __ATOMIC_ACQ_REL) / blocks + 1) * blocks;
    while (__atomic_load_n(words, __ATOMIC_ACQUIRE) < goal) sched_yield();
  }
  emulated_barrier();
}

// Memory that the threads of a block share. It begins as numbers that are none.
struct Room {
  static Room* all;
  Room* next;
  void* memory;
  size_t nbytes;
  Room(void* memory, size_t nbytes) : next(all), memory(memory), nbytes(nbytes) { all = this; }
};
Room* Room::all = 0;

template <class T, int number>
struct Shared {
  alignas(16) static char memory[AT_ONCE][(sizeof(T) + 15) / 16 * 16];
  static Room room;
  static T& here() {
    (void)&room;
    return *(T*)memory[emulated.place];
  }
};
template <class T, int number>
alignas(16) char Shared<T, number>::memory[AT_ONCE][(sizeof(T) + 15) / 16 * 16];
template <class T, int number>
Room Shared<T, number>::room(memory, sizeof(memory));

extern Emulated emulated_kernels[];

static void* emulated_lane(void* told) {
  Lane* lane = (Lane*)told;
  const long long* a = emulated_launch.a;
  emulated = *lane;
  emulated_kernels[emulated_launch.kernel](a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11],
                                           a[12], a[13], a[14], a[15]);
  emulated_barriers[emulated.place].leave();
  *lane = emulated;
  return 0;
}

static void emulated_failed(const char* why) {
  fprintf(stderr, "%s\n", why);
  exit(3);
}

static void emulated_blocks(long long first, long long count) {
  long long lanes = emulated_launch.lanes_x * emulated_launch.lanes_y;
  Lane* all = (Lane*)calloc(count * lanes, sizeof(Lane));
  pthread_t* threads = (pthread_t*)calloc(count * lanes, sizeof(pthread_t));
  for (Room* room = Room::all; room; room = room->next) memset(room->memory, 0xFF, room->nbytes);
  for (long long place = 0; place < count; place++)
    emulated_barriers[place] = {lanes << 32, 0};
  for (long long at = 0; at < count * lanes; at++) {
    long long place = at / lanes, lane = at % lanes;
    all[at] = {lane % emulated_launch.lanes_x, lane / emulated_launch.lanes_x, first + place, place, 0};
    if (pthread_create(&threads[at], 0, emulated_lane, &all[at])) emulated_failed("too many threads");
  }
  for (long long at = 0; at < count * lanes; at++) pthread_join(threads[at], 0);
  for (long long at = 0; at < count * lanes; at++)
    if (all[at].barriers != all[at / lanes * lanes].barriers)
      emulated_failed("threads of a block pass different numbers of barriers");
  free(all);
  free(threads);
}

// A word that is an address of the caller's memory becomes the address of its copy here, or the other way round.
static long long emulated_moved(const Memory* buffers, long long word, bool back) {
  for (long long at = 0; at < emulated_launch.buffers; at++) {
    long long from = back ? (long long)buffers[at].here : buffers[at].address;
    long long to = back ? buffers[at].address : (long long)buffers[at].here;
    if (word >= from && word < from + buffers[at].nbytes) return word - from + to;
  }
  return word;
}

static void emulated_move_all(const Memory* buffers, bool back) {
  for (long long at = 0; at < emulated_launch.buffers; at++)
    for (long long byte = -buffers[at].address & 7; byte + 8 <= buffers[at].nbytes; byte += 8) {
      long long* word = (long long*)(buffers[at].here + byte);
      *word = emulated_moved(buffers, *word, back);
    }
}

static void emulated_read(void* target, size_t nbytes) {
  if (nbytes && fread(target, nbytes, 1, stdin) != 1) emulated_failed("the launch is cut off");
}

int main() {
  Launch& launch = emulated_launch;
  emulated_read(&launch, sizeof(launch));
  Memory* buffers = (Memory*)calloc(launch.buffers + 1, sizeof(Memory));
  for (long long at = 0; at < launch.buffers; at++) {
    emulated_read(&buffers[at], 2 * sizeof(long long));
    long long alignment = buffers[at].address & -buffers[at].address;
    alignment = alignment > 256 ? 256 : alignment < 8 ? 8 : alignment;
    if (posix_memalign((void**)&buffers[at].here, alignment, buffers[at].nbytes)) emulated_failed("no memory");
    emulated_read(buffers[at].here, buffers[at].nbytes);
  }
  emulated_move_all(buffers, false);
  for (int at = 0; at < 16; at++) launch.a[at] = emulated_moved(buffers, launch.a[at], false);
  for (long long first = 0; first < launch.blocks; first += launch.at_once) {
    long long left = launch.blocks - first;
    emulated_blocks(first, left < launch.at_once ? left : launch.at_once);
  }
  emulated_move_all(buffers, true);
  for (long long at = 0; at < launch.buffers; at++) fwrite(buffers[at].here, 1, buffers[at].nbytes, stdout);
  return 0;
}

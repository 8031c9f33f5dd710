// Executes decoded PTX: blocks one after the other, the threads of a warp side by side, warps in an order by seed.
// Every access to memory is checked: alignment, bounds, bytes that nobody wrote, races. The first fault ends a launch.
// What is generated before this text: the numbers of operations; and in it `OPERATIONS`, a case for each, and `ATOMICS`.

#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned char u8, p;
typedef signed char s8;
typedef unsigned short u16;
typedef short s16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64, i64;
typedef unsigned __int128 u128;
typedef __int128 s128;
typedef float f32;
typedef double f64;

typedef struct {
  i64 operation, guard, negated, target, offset, n_out, n_in, out[4], in[11], space, item, count, flag;
} Instruction;

typedef struct {
  u32 write, writer, plain, plainer, read, reader;  // stamps and who; plain: not atomic; 0: never
} Shadow;  // of one byte

typedef struct {
  u64 start, size;
  Shadow* shadow;
} Buffer;

typedef struct {
  i64 instructions, pc, block, thread, address, other;
  char kind[64];
} Report;

typedef struct {
  i64 blocks, x, y, registers, shared, local, parts, seed, limit;
} Launch;

enum { LOW = 1, HIGH = 2, BOTH = 3 };
enum { RUNS, WAITS, MEETS, ENDED };  // a thread: it runs; waits for its warp; for its block; has left the kernel
enum { READ, WRITE, ATOMIC, READ_ONLY };
enum { COMPUTES, COPIES, PACKS, UNPACKS, TAKES_LOW };  // what halves of a register an operation makes of halves
enum { GENERIC, GLOBAL, SHARED, LOCAL };
#define MARK (1u << 29)  // of a reader: by ld.global.nc
#define WHO (MARK - 1)
enum { THREAD, WARP, BLOCK, ALL };  // who >> 30: one, or several of a warp, of a block, of all
#define WINDOW 56  // bits: addresses of shared and local memory among generic ones

static Buffer* buffers;
static i64 n_buffers, room, recent;
static u32 stamp = 1, launch_stamp, block_stamp;  // rises with each barrier, block and launch

static const Launch* L;
static const Instruction* code;
static const u64* constants;
static const i64* parts;  // of shared memory: offset and size of each variable
static Report* report;
static jmp_buf out;
static u64 random_state;
static i64 block, threads, warps;
static u64* registers;  // [warps][registers][32]
static u8* defined;  // likewise: LOW and HIGH tell which half has been written or computed
static int *pcs, *states;  // [threads]
static u32* warp_stamps;
static char *shared, *local;
static Shadow* shared_shadow;
static u8* local_written;
static u64 missing;  // of the bytes that were accessed last, those that nobody had written: a bit each

static void fault(const char* kind, int pc, int thread, u64 address) {
  strncpy(report->kind, kind, sizeof report->kind - 1);
  report->pc = pc;
  report->block = block;
  report->thread = thread;
  report->address = (i64)address;
  longjmp(out, 1);
}

static u64 drawn(u64 below) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state % below;
}

// -- memory

static i64 place(u64 address) {  // the last buffer that begins at an address or before it
  i64 low = 0, high = n_buffers;
  while (low < high) {
    i64 middle = (low + high) / 2;
    if (buffers[middle].start <= address) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

static Buffer* buffer_at(u64 address, u64 nbytes) {
  if (recent >= n_buffers || address - buffers[recent].start >= buffers[recent].size) recent = place(address);
  if (recent < 0) {
    recent = 0;
    return 0;
  }
  Buffer* b = buffers + recent;
  u64 offset = address - b->start;
  return offset < b->size && nbytes <= b->size - offset ? b : 0;
}

void memory_add(u64 start, u64 size) {
  if (n_buffers == room) buffers = realloc(buffers, (room = 2 * room + 64) * sizeof *buffers);
  i64 at = place(start) + 1;
  memmove(buffers + at + 1, buffers + at, (n_buffers++ - at) * sizeof *buffers);
  buffers[at] = (Buffer){start, size, calloc(size + 1, sizeof(Shadow))};
}

void memory_remove(u64 start) {
  i64 at = place(start);
  if (at < 0 || buffers[at].start != start) return;
  free(buffers[at].shadow);
  memmove(buffers + at, buffers + at + 1, (--n_buffers - at) * sizeof *buffers);
}

// What the host, a copy or a product does. 0: well; 1: no such memory; 2: bytes that nobody wrote
int memory_touch(u64 start, u64 nbytes, int writes) {
  if (!nbytes) return 0;
  Buffer* b = buffer_at(start, nbytes);
  if (!b) return 1;
  Shadow* s = b->shadow + (start - b->start);
  for (u64 k = 0; k < nbytes; k++) {
    if (writes) s[k] = (Shadow){1, 0, 1, 0, 0, 0};
    else if (!s[k].write) return 2;
  }
  return 0;
}

static int before(u32 when, u32 who, int me) {  // whether what was done then, by them, is surely done now
  if (when < launch_stamp) return 1;
  u32 id = who & WHO;  // in this block they are below its number of threads, or of warps; no division tells so
  switch (who >> 30) {
    case THREAD:
      if ((id -= (u32)(block * threads)) == (u32)me) return 1;
      return id < threads && (when < block_stamp || (id / 32 == (u32)me / 32 && when < warp_stamps[id / 32]));
    case WARP:
      id -= (u32)(block * warps);
      return id < warps && (when < block_stamp || (id == (u32)me / 32 && when < warp_stamps[id]));
    case BLOCK: return id == block && when < block_stamp;
  }
  return 0;
}

static u32 both(u32 who, int me) {  // who read: they and I
  u32 id = who & WHO, warp = -1;
  int here = 0;
  switch (who >> 30) {
    case THREAD: id -= (u32)(block * threads), here = id < threads, warp = id / 32; break;
    case WARP: id -= (u32)(block * warps), here = id < warps, warp = id; break;
    case BLOCK: here = id == block;
  }
  if (!here) return (u32)ALL << 30;
  if (warp == (u32)me / 32) return (u32)WARP << 30 | (u32)(block * warps + warp);
  return (u32)BLOCK << 30 | (u32)block;
}

static inline int alike(const Shadow* a, const Shadow* b) {
  u64 x[3], y[3];
  memcpy(x, a, sizeof x), memcpy(y, b, sizeof y);
  return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

static void noted(Shadow* s, int nbytes, int how, int pc, int me, u64 address) {
  u32 mine = (u32)(block * threads + me);
  Shadow last;
  for (int k = 0; k < nbytes; k++, s++) {
    if (k && alike(s, &last)) {  // as most often: what held of the byte before holds of this one
      *s = s[-1];
      missing |= (u64)!last.write << k;
      continue;
    }
    last = *s;
    report->other = how == ATOMIC ? s->plainer : s->writer;
    if (how == WRITE || how == ATOMIC) {
      int ordered = how == ATOMIC ? before(s->plain, s->plainer, me) : before(s->write, s->writer, me);
      if (!ordered) fault("race of two writes", pc, me, address + k);
      report->other = s->reader;
      if (s->read >= launch_stamp && s->reader & MARK)
        fault("write of what ld.global.nc read in the same launch", pc, me, address + k);
      if (!before(s->read, s->reader, me)) fault("race of a write with a read before it", pc, me, address + k);
      missing |= (u64)!s->write << k;
      s->writer = how == WRITE || before(s->write, s->writer, me) ? mine : both(s->writer, me);
      s->write = stamp;
      if (how == WRITE) s->plain = stamp, s->plainer = mine;
    } else {
      missing |= (u64)!s->write << k;
      if (how == READ_ONLY && s->write >= launch_stamp)
        fault("ld.global.nc of what the same launch wrote", pc, me, address + k);
      if (!before(s->write, s->writer, me)) fault("race of a read with a write before it", pc, me, address + k);
      u32 mark = how == READ_ONLY || (s->read >= launch_stamp && s->reader & MARK) ? MARK : 0;
      if (s->reader != (mine | mark)) s->reader = (before(s->read, s->reader, me) ? mine : both(s->reader, me)) | mark;
      s->read = stamp;
    }
  }
}

static char* accessed(int space, u64 address, int item, int count, int how, int pc, int me) {
  int nbytes = item * count;
  missing = 0;
  if (space == GENERIC) {
    u64 window = address >> WINDOW;
    space = window == SHARED || window == LOCAL ? (int)window : GLOBAL;
    if (space != GLOBAL) address &= ((u64)1 << WINDOW) - 1;
  }
  if (space != GLOBAL) address = (u32)address;  // they are computed in 32 bits, and may pass 0
  if (address & (nbytes - 1)) fault("misaligned address", pc, me, address);
  if (space == GLOBAL) {
    Buffer* b = buffer_at(address, nbytes);
    if (!b) fault("out of bounds of global memory", pc, me, address);
    noted(b->shadow + (address - b->start), nbytes, how, pc, me, address);
    return (char*)address;
  }
  if (space == SHARED) {
    for (int k = 0; k < L->parts; k++) {
      u64 offset = address - (u64)parts[2 * k];
      if (offset < (u64)parts[2 * k + 1] && offset + nbytes <= (u64)parts[2 * k + 1]) {
        noted(shared_shadow + address, nbytes, how, pc, me, address);
        return shared + address;
      }
    }
    fault("out of bounds of shared memory", pc, me, address);
  }
  if (address >= (u64)L->local || address + nbytes > (u64)L->local) fault("out of bounds of local memory", pc, me, address);
  u8* here = local_written + me * L->local + address;
  for (int k = 0; k < nbytes; k++) {
    missing |= (u64)!here[k] << k;
    if (how == WRITE) here[k] = 1;
  }
  return local + me * L->local + address;
}

// -- numbers

#define WHOLE(type)                                       \
  static inline type of_##type(u64 v) { return (type)v; } \
  static inline u64 bits_##type(type v) { return (u64)v; }
WHOLE(u8) WHOLE(u16) WHOLE(u32) WHOLE(u64) WHOLE(s64)
#define SIGNED(type, unsigned_)                           \
  static inline type of_##type(u64 v) { return (type)v; } \
  static inline u64 bits_##type(type v) { return (unsigned_)v; }
SIGNED(s16, u16) SIGNED(s32, u32)
static inline s8 of_s8(u64 v) { return (s8)v; }
static inline u64 bits_s8(s8 v) { return (u32)(s32)v; }  // registers are wider
static inline p of_p(u64 v) { return v != 0; }
static inline u64 bits_p(p v) { return v != 0; }
#define FLOAT(type, unsigned_)                                                                   \
  static inline type of_##type(u64 v) { unsigned_ w = (unsigned_)v; type x; memcpy(&x, &w, sizeof x); return x; } \
  static inline u64 bits_##type(type x) { unsigned_ w; memcpy(&w, &x, sizeof x); return w; }
FLOAT(f32, u32) FLOAT(f64, u64)

#define number(x) ((x) != (x) ? (__typeof__(x))NAN : (x))
static f32 flushed(f32 x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }
static f64 coarse(f64 x) {
  x = of_f64(bits_f64(x) >> 32 << 32);
  return fabs(x) < 0x1p-1022 ? copysign(0, x) : x;
}
static f64 whole(f64 x, int direction) {
  return direction == FE_UPWARD ? ceil(x) : direction == FE_DOWNWARD ? floor(x) : direction == FE_TOWARDZERO ? trunc(x) : rint(x);
}
#define DIRECTED(name, type, expression)                            \
  static type name##_##type(type a_, type b_, type c_, int direction) { \
    volatile type a = a_, b = b_, c = c_, d;                        \
    (void)c;                                                        \
    fesetround(direction);                                          \
    d = expression;                                                 \
    fesetround(FE_TONEAREST);                                       \
    return d;                                                       \
  }
DIRECTED(add, f32, a + b) DIRECTED(add, f64, a + b) DIRECTED(mul, f32, a * b) DIRECTED(mul, f64, a * b)
DIRECTED(fma, f32, fmaf(a, b, c)) DIRECTED(fma, f64, fma(a, b, c))

// -- a warp

#define SOURCE(k) (i->in[k] >= 0 ? R + 32 * i->in[k] : constants + (-1 - i->in[k]))
#define STRIDE(k) (i->in[k] >= 0)
#define EACH for (int q = 0; q < n; q++)

static inline u64 source(const Instruction* i, int k, u64* R, int lane) { return SOURCE(k)[STRIDE(k) * lane]; }

static inline int sure(const Instruction* i, int k, u8* D, int lane) { return i->in[k] < 0 || D[32 * i->in[k] + lane] == BOTH; }

static int halves(u64 absent, int nbytes) {
  u32 all = nbytes < 4 ? (1u << nbytes) - 1 : 15;
  int low = !(absent & all);
  return nbytes < 8 ? (low ? BOTH : 0) : (low ? LOW : 0) | (absent >> 4 & 15 ? 0 : HIGH);
}

static void moved(const Instruction* i, int pc, int warp, const int* lanes, int n, u64* R, u8* D) {
  EACH {
    int lane = lanes[q], me = 32 * warp + lane;
    u64 address = source(i, 0, R, lane) + (u64)i->offset;
    if (!sure(i, 0, D, lane)) fault("address that nobody computed", pc, me, address);
    if (i->operation == LOAD) {
      char* from = accessed(i->space, address, i->item, i->count, i->flag & 2 ? READ_ONLY : READ, pc, me);
      for (int k = 0; k < i->count; k++, from += i->item) {
        u64 v = 0;
        memcpy(&v, from, i->item);
        if (i->flag & 1 && i->item < 8 && v >> (8 * i->item - 1)) v |= ~(u64)0 << 8 * i->item;
        R[32 * i->out[k] + lane] = v;
        D[32 * i->out[k] + lane] = (u8)halves(missing >> (k * i->item), i->item);
      }
    } else {
      for (int k = 1; k <= i->count; k++)
        if (!sure(i, k, D, lane)) fault("store of a number that nobody wrote or computed", pc, me, address);
      char* to = accessed(i->space, address, i->item, i->count, WRITE, pc, me);
      for (int k = 0; k < i->count; k++, to += i->item) {
        u64 v = source(i, k + 1, R, lane);
        memcpy(to, &v, i->item);
      }
    }
  }
}

#define with_sign(v, nbytes) ((nbytes) == 4 ? (i64)(s32)(v) : (i64)(v))

static void changed(const Instruction* i, int pc, int warp, const int* lanes, int n, u64* R, u8* D) {
  EACH {
    int lane = lanes[q], me = 32 * warp + lane;
    u64 address = source(i, 0, R, lane) + (u64)i->offset, a = 0, d;
    for (int k = 0; k < i->n_in; k++)
      if (!sure(i, k, D, lane)) fault("atomic operation on a number that nobody computed", pc, me, address);
    char* at = accessed(i->space, address, i->item, 1, ATOMIC, pc, me);
    u64 b = source(i, 1, R, lane), c = i->n_in > 2 ? source(i, 2, R, lane) : 0;
    if (missing) fault("atomic operation on memory that nobody wrote", pc, me, address);
    memcpy(&a, at, i->item);
    if (i->item == 4) b = (u32)b, c = (u32)c;
    switch (i->flag) { ATOMICS }
    memcpy(at, &d, i->item);
    if (i->n_out) {
      R[32 * i->out[0] + lane] = a;
      D[32 * i->out[0] + lane] = BOTH;
    }
  }
}

// D = A B + C of a warp: A is 16 by 8, B 8 by 8, of TF32: the last 13 bits are not looked at. Lanes have parts of them,
// as PTX says for m16n8k8. A tensor core rounds sums towards zero: here once, of nine terms.
static void multiplied(const Instruction* i, int warp, u64* R, u8* D) {
  f64 a[16][8], b[8][8];
  u8 known_a[16][8], known_b[8][8];
  for (int lane = 0; lane < 32; lane++) {
    const int group = lane >> 2, number = lane & 3;
    for (int k = 0; k < 4; k++) {
      const int row = group + (k & 1) * 8, column = number + (k >> 1) * 4;
      a[row][column] = of_f32(source(i, k, R, lane) & 0xffffe000);
      known_a[row][column] = sure(i, k, D, lane);
    }
    for (int k = 0; k < 2; k++) {
      b[number + k * 4][group] = of_f32(source(i, 4 + k, R, lane) & 0xffffe000);
      known_b[number + k * 4][group] = sure(i, 4 + k, D, lane);
    }
  }
  for (int lane = 0; lane < 32; lane++) {
    u64 results[4];
    u8 sure_[4];
    for (int k = 0; k < 4; k++) {
      const int row = (lane >> 2) + (k >> 1) * 8, column = (lane & 3) * 2 + (k & 1);
      int known = sure(i, 6 + k, D, lane);
      volatile f64 total = of_f32(source(i, 6 + k, R, lane));
      for (int j = 0; j < 8; j++) {
        total = total + a[row][j] * b[j][column];
        known = known && known_a[row][j] && known_b[j][column];
      }
      fesetround(FE_TOWARDZERO);
      volatile f32 d = total;
      fesetround(FE_TONEAREST);
      results[k] = bits_f32(number(d)), sure_[k] = known ? BOTH : 0;
    }
    for (int k = 0; k < 4; k++) R[32 * i->out[k] + lane] = results[k], D[32 * i->out[k] + lane] = sure_[k];
  }
}

static void together(const Instruction* i, int pc, int warp, u32 mask, u64* R, u8* D) {
  u64 a[32], d[32];
  u8 known[32];
  u32 ballot = 0;
  if (i->operation == WARP_BARRIER) {
    warp_stamps[warp] = ++stamp;
    return;
  }
  if (i->operation == MMA) {
    multiplied(i, warp, R, D);
    return;
  }
  for (int lane = 0; lane < 32; lane++) a[lane] = known[lane] = 0;
  for (int lane = 0; lane < 32; lane++)
    if (mask >> lane & 1) {
      a[lane] = source(i, 0, R, lane);
      known[lane] = sure(i, 0, D, lane);
      if (i->operation == VOTE) {
        if (!known[lane]) fault("vote with a predicate that nobody computed", pc, 32 * warp + lane, 0);
        if ((a[lane] & 1) != (u64)(i->flag >> 4)) ballot |= 1u << lane;
      }
    }
  for (int lane = 0; lane < 32; lane++) {
    if (!(mask >> lane & 1)) continue;
    int sure_ = 1, inside = 1;
    if (i->operation == VOTE) {
      int kind = i->flag & 15;
      d[lane] = kind == 0 ? ballot : kind == 1 ? ballot != 0 : kind == 2 ? ballot == mask : ballot == mask || !ballot;
    } else {
      if (!sure(i, 1, D, lane) || !sure(i, 2, D, lane)) fault("lane that nobody computed", pc, 32 * warp + lane, 0);
      int b = source(i, 1, R, lane) & 31, c = (int)source(i, 2, R, lane), clamp = c & 31, part = c >> 8 & 31;
      int last = (lane & part) | (clamp & ~part), first = lane & part, from;
      switch (i->flag) {
        case 0: from = first | (b & ~part), inside = from <= last; break;
        case 1: from = lane - b, inside = from >= last; break;
        case 2: from = lane + b, inside = from <= last; break;
        default: from = lane ^ b, inside = from <= last;
      }
      if (!inside) from = lane;
      d[lane] = (u32)a[from];
      sure_ = (mask >> from & 1) && known[from];
    }
    R[32 * i->out[0] + lane] = d[lane];
    D[32 * i->out[0] + lane] = sure_ ? BOTH : 0;
    if (i->n_out > 1) {
      R[32 * i->out[1] + lane] = (u64)inside;
      D[32 * i->out[1] + lane] = BOTH;
    }
  }
}

// Lanes that wait for each other: those at one instruction go on when all that its mask names are there.
static void gathered(int warp) {
  u64* R = registers + warp * L->registers * 32;
  u8* D = defined + warp * L->registers * 32;
  int *pc = pcs + 32 * warp, *state = states + 32 * warp, some = -1;
  u32 tried = 0;
  for (int lane = 0; lane < 32; lane++) {
    if (state[lane] != WAITS || tried >> lane & 1) continue;
    const Instruction* i = code + pc[lane];
    int where = i->n_in - 1;
    u32 mask = (u32)source(i, where, R, lane), there = 0;
    for (int other = 0; other < 32; other++)
      if (state[other] == WAITS && pc[other] == pc[lane]) {
        if (!sure(i, where, D, other)) fault("mask that nobody computed", pc[lane], 32 * warp + other, 0);
        if ((u32)source(i, where, R, other) == mask) there |= 1u << other;
      }
    tried |= there;
    some = lane;
    if (!(mask >> lane & 1)) fault("lane that its own mask does not name", pc[lane], 32 * warp + lane, mask);
    if ((there & mask) != mask) continue;
    together(i, pc[lane], warp, mask, R, D);
    for (int other = 0, next = pc[lane] + 1; other < 32; other++)
      if (mask >> other & 1) state[other] = RUNS, pc[other] = next;
    return;
  }
  fault("mask that names lanes which never come", pc[some], 32 * warp + some, 0);
}

// Run lanes of a warp that are at one place, until they part, meet others, wait or end.
static void run_lanes(int warp, int pc, const int* lanes, int n_lanes, int others) {
  u64* R = registers + warp * L->registers * 32;
  u8* D = defined + warp * L->registers * 32;
  int some[32], first = 1;
  for (;; first = 0) {
    if (pc >= others && !first) break;
    const Instruction* i = code + pc;
    const int* active = lanes;
    int n = n_lanes;
    if ((report->instructions += n_lanes) > L->limit) fault("kernel that does not end", pc, 32 * warp + lanes[0], 0);
    if (i->guard >= 0) {
      n = 0;
      for (int q = 0; q < n_lanes; q++) {
        int lane = lanes[q];
        if (D[32 * i->guard + lane] != BOTH) fault("predicate that nobody computed", pc, 32 * warp + lane, 0);
        if ((R[32 * i->guard + lane] != 0) != i->negated) some[n++] = lane;
      }
      active = some;
    }
    switch (i->operation) {
      case BRANCH:
        if (n == n_lanes) {
          pc = i->target;
        } else if (n == 0) {
          pc++;
        } else {
          for (int q = 0; q < n_lanes; q++) pcs[32 * warp + lanes[q]] = pc + 1;
          EACH pcs[32 * warp + some[q]] = i->target;
          return;
        }
        continue;
      case EXIT:
      case BARRIER:
      case WARP_BARRIER:
      case VOTE:
      case MMA:
      case SHUFFLE:
        for (int q = 0; q < n_lanes; q++) pcs[32 * warp + lanes[q]] = pc + 1;
        EACH {
          pcs[32 * warp + active[q]] = pc;
          states[32 * warp + active[q]] = i->operation == EXIT ? ENDED : i->operation == BARRIER ? MEETS : WAITS;
        }
        return;
      case LOAD:
      case STORE: moved(i, pc, warp, active, n, R, D); break;
      case CHANGE: changed(i, pc, warp, active, n, R, D); break;
      case SELECT:
        EACH {
          int lane = active[q], k = source(i, 2, R, lane) ? 0 : 1;
          u64 v = source(i, k, R, lane);
          int known = sure(i, 2, D, lane) && sure(i, k, D, lane);
          R[32 * i->out[0] + lane] = v;
          D[32 * i->out[0] + lane] = known ? BOTH : 0;
        }
        break;
      default:
        if (!i->flag) {
          u8 known[32];
          EACH known[q] = BOTH;
          for (int k = 0; k < i->n_in; k++)
            if (i->in[k] >= 0) EACH known[q] = D[32 * i->in[k] + active[q]] == BOTH ? known[q] : 0;
          for (int k = 0; k < i->n_out; k++) EACH D[32 * i->out[k] + active[q]] = known[q];
        } else EACH {
          int lane = active[q], known = i->in[0] >= 0 ? D[32 * i->in[0] + lane] : BOTH;
          int other = i->n_in > 1 && sure(i, 1, D, lane);
          switch (i->flag) {
            case PACKS: known = (known == BOTH ? LOW : 0) | (other ? HIGH : 0); break;
            case TAKES_LOW: known = known & LOW ? BOTH : 0; break;
            case UNPACKS: D[32 * i->out[1] + lane] = known & HIGH ? BOTH : 0, known = known & LOW ? BOTH : 0;
          }
          D[32 * i->out[0] + lane] = (u8)known;
        }
        switch (i->operation) { OPERATIONS }
    }
    pc++;
  }
  for (int q = 0; q < n_lanes; q++) pcs[32 * warp + lanes[q]] = pc;
}

static int run_warp(int warp) {  // return whether a lane can go on
  int lanes[32], n = 0, pc = -1, others = 1 << 30, waiting = 0;
  int *at = pcs + 32 * warp, *state = states + 32 * warp;
  for (int lane = 0; lane < 32; lane++) {
    waiting |= state[lane] == WAITS;
    if (state[lane] == RUNS && (pc < 0 || at[lane] < pc)) pc = at[lane];
  }
  if (pc < 0) {
    if (waiting) gathered(warp);
    return waiting;
  }
  if (drawn(8) == 0)  // now and then those that are ahead
    for (int lane = 0; lane < 32; lane++)
      if (state[lane] == RUNS && drawn(4) == 0) pc = at[lane];
  for (int lane = 0; lane < 32; lane++)
    if (state[lane] == RUNS) {
      if (at[lane] == pc) lanes[n++] = lane;
      else if (at[lane] > pc && at[lane] < others) others = at[lane];
    }
  run_lanes(warp, pc, lanes, n, others);
  return 1;
}

static void run_block(const i64* special) {
  memset(defined, 0, warps * L->registers * 32);
  memset(shared_shadow, 0, L->shared * sizeof(Shadow));
  memset(local_written, 0, 32 * warps * L->local);
  block_stamp = ++stamp;
  for (int me = 0; me < 32 * warps; me++) {
    pcs[me] = 0;
    states[me] = me < threads ? RUNS : ENDED;
    i64 values[] = {me % L->x, me / L->x, 0, L->x, L->y, 1, block, 0, 0, L->blocks, 1, 1, me % 32};
    for (int k = 0; k < 13; k++)
      if (special[k] >= 0) {
        i64 at = (me / 32 * L->registers + special[k]) * 32 + me % 32;
        registers[at] = (u64)values[k];
        defined[at] = BOTH;
      }
  }
  for (i64 idle = 0, w = (i64)drawn(warps);; w = drawn(4) ? w : (i64)drawn(warps)) {
    if (run_warp((int)w)) {
      idle = 0;
      continue;
    }
    w = (w + 1) % warps;
    if (++idle < 2 * warps) continue;
    for (i64 k = idle = 0; k < warps; k++) idle += run_warp((int)k);  // all, as the order is random
    if (idle) continue;
    int met = -1, ended = -1;
    for (int me = 0; me < threads; me++) {
      if (states[me] == ENDED) ended = me;
      else if (met >= 0 && pcs[me] != pcs[met]) fault("two barriers that threads of a block wait at", pcs[me], me, 0);
      else met = me;
    }
    if (met < 0) return;
    if (ended >= 0) fault("barrier that a thread does not reach: it has ended", pcs[met], ended, 0);
    for (int me = 0; me < threads; me++) states[me] = RUNS, pcs[me]++;
    block_stamp = ++stamp;
  }
}

int run(const Launch* launch, const Instruction* code_, const u64* constants_, const i64* special, const i64* parts_,
        Report* report_) {
  L = launch, code = code_, constants = constants_, parts = parts_, report = report_;
  threads = L->x * L->y, warps = (threads + 31) / 32;
  random_state = (u64)L->seed * 0x9E3779B97F4A7C15ull + 1;
  i64 cells = warps * L->registers * 32;
  registers = malloc(cells * 8 + 8), defined = malloc(cells + 1);
  pcs = malloc(32 * warps * sizeof(int)), states = malloc(32 * warps * sizeof(int));
  warp_stamps = calloc(warps, sizeof(u32));
  shared = malloc(L->shared + 1), shared_shadow = malloc((L->shared + 1) * sizeof(Shadow));
  local = malloc(32 * warps * L->local + 1), local_written = malloc(32 * warps * L->local + 1);
  i64* order = malloc(L->blocks * sizeof(i64));
  for (i64 k = 0; k < L->blocks; k++) {
    i64 at = (i64)drawn(k + 1);
    order[k] = order[at];
    order[at] = k;
  }
  launch_stamp = ++stamp;
  int failed = setjmp(out);
  if (!failed)
    for (i64 k = 0; k < L->blocks; k++) {
      block = order[k];
      run_block(special);
    }
  free(registers), free(defined), free(pcs), free(states), free(warp_stamps), free(shared), free(shared_shadow);
  free(local), free(local_written), free(order);
  return failed;
}

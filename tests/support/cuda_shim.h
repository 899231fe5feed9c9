// CUDA kernels on a CPU, for tests without a GPU. The threads of a block are fibers in a ring: one runs until it has to wait for the
// others of its warp (shuffles, products on tensor cores) or of its block (barriers), and then passes on to the next. Blocks run one
// after the other.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <functional>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define SHIM 1
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define INFINITY_BITS 0x7f800000

struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct Dimensions { int x, y, z; };
static float2 make_float2(float x, float y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <class To, class From> static To bits(From value) { To out; memcpy(&out, &value, sizeof(To)); return out; }
static unsigned __float_as_uint(float x) { return bits<unsigned>(x); }
static float __uint_as_float(unsigned x) { return bits<float>(x); }
static int __float_as_int(float x) { return bits<int>(x); }
static float __int_as_float(int x) { return bits<float>(x); }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __ffs(int x) { return __builtin_ffs(x); }
template <class T> static T __ldg(const T *p) { return *p; }
template <class T> static T min(T a, T b) { return a < b ? a : b; }
template <class T> static T max(T a, T b) { return a > b ? a : b; }

constexpr int SHIM_STACK = 1 << 16;
struct Group { int arrived = 0, live = 0; long generation = 0; };
struct Warp : Group { unsigned char values[2][32][32]; };
struct Fiber {
  std::vector<char> stack;
#if defined(__x86_64__)
  void *pointer;
#else
  ucontext_t context;
#endif
  bool done;
};
static std::vector<Fiber> shim_fibers;
static std::vector<Warp> shim_warps;
static Group shim_block;
static int shim_now, shim_left;
static Dimensions blockIdx, blockDim, gridDim;
static std::function<void()> shim_body;
#define threadIdx (Dimensions{shim_now, 0, 0})

#if defined(__x86_64__)
static void *shim_outside;
extern "C" void shim_switch(void **from, void *to);
asm(".text\nshim_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
static void shim_go(int from, int to) { shim_switch(from < 0 ? &shim_outside : &shim_fibers[from].pointer, to < 0 ? shim_outside : shim_fibers[to].pointer); }
#else
static ucontext_t shim_outside;
static void shim_go(int from, int to) {
  swapcontext(from < 0 ? &shim_outside : &shim_fibers[from].context, to < 0 ? &shim_outside : &shim_fibers[to].context);
}
#endif

static void shim_pass_on() {
  int me = shim_now, n = (int)shim_fibers.size(), next = me;
  do next = (next + 1) % n;
  while (next != me && shim_fibers[next].done);
  if (next == me) abort();  // it waits for threads that have ended
  shim_now = next;
  shim_go(me, next);
  shim_now = me;
}
static void shim_wait(Group &group) {
  long mine = group.generation;
  if (++group.arrived == group.live) { group.arrived = 0; ++group.generation; }
  while (group.generation == mine) shim_pass_on();
}
static void shim_leave(Group &group) {
  if (--group.live > 0 && group.arrived == group.live) { group.arrived = 0; ++group.generation; }
}

// The values of all lanes of this warp, after each has written its own.
template <class T> static const unsigned char (*shim_exchange(const T &value))[32] {
  static_assert(sizeof(T) <= 32, "");
  Warp &warp = shim_warps[shim_now / 32];
  long parity = warp.generation & 1;
  memcpy(warp.values[parity][shim_now % 32], &value, sizeof(T));
  shim_wait(warp);
  return warp.values[parity];
}
template <class T> static T __shfl_sync(unsigned, T value, int lane) { T out; memcpy(&out, shim_exchange(value)[lane & 31], sizeof(T)); return out; }
template <class T> static T __shfl_xor_sync(unsigned all, T value, int mask) { return __shfl_sync(all, value, (shim_now % 32) ^ mask); }
template <class T> static T __shfl_up_sync(unsigned all, T value, int by) { int lane = shim_now % 32; return __shfl_sync(all, value, lane >= by ? lane - by : lane); }
template <class T> static T __shfl_down_sync(unsigned all, T value, int by) { int lane = shim_now % 32; return __shfl_sync(all, value, lane + by < 32 ? lane + by : lane); }
static unsigned __ballot_sync(unsigned, int predicate) {
  auto values = shim_exchange(predicate);
  unsigned out = 0;
  for (int lane = 0; lane < 32; ++lane) { int v; memcpy(&v, values[lane], sizeof v); out |= (unsigned)(v != 0) << lane; }
  return out;
}
static void __syncwarp(unsigned = 0) { shim_exchange(0); }
static void __syncthreads() { shim_wait(shim_block); }
static int atomicAdd(int *p, int v) { int before = *p; *p += v; return before; }
static int atomicMax(int *p, int v) { int before = *p; if (v > before) *p = v; return before; }

struct ShimOperands { unsigned a0, a1, b; };
static void multiply_add(float (&c)[4], unsigned a0, unsigned a1, unsigned b) {
  auto values = shim_exchange(ShimOperands{a0, a1, b});
  int lane = shim_now % 32, group = lane >> 2, pair = lane & 3;
  auto of = [&](int lane) { ShimOperands out; memcpy(&out, values[lane], sizeof out); return out; };
  auto rounded = [](unsigned x) { return __uint_as_float(x & 0xffffe000u); };
  for (int e = 0; e < 4; ++e)
    for (int k = 0; k < 4; ++k) {
      ShimOperands row = of(group * 4 + k), column = of((2 * pair + (e & 1)) * 4 + k);
      c[e] += rounded(e < 2 ? row.a0 : row.a1) * rounded(column.b);
    }
}

static void shim_enter() {
  shim_body();
  shim_fibers[shim_now].done = true;
  shim_leave(shim_warps[shim_now / 32]);
  shim_leave(shim_block);
  if (--shim_left == 0) shim_go(shim_now, -1);
  shim_pass_on();
}
static void shim_run(int blocks, int threads, std::function<void()> body) {
  shim_body = body;
  shim_fibers.resize(threads);
  gridDim = {blocks, 1, 1}, blockDim = {threads, 1, 1};
  for (int block = 0; block < blocks; ++block) {
    blockIdx = {block, 0, 0};
    shim_warps.assign((threads + 31) / 32, Warp());
    shim_block = Group(), shim_block.live = shim_left = threads;
    for (int i = 0; i < threads; ++i) {
      Fiber &fiber = shim_fibers[i];
      if (fiber.stack.empty()) fiber.stack.resize(SHIM_STACK);
      fiber.done = false;
      ++shim_warps[i / 32].live;
#if defined(__x86_64__)
      uintptr_t top = ((uintptr_t)fiber.stack.data() + SHIM_STACK) & ~(uintptr_t)15;
      void **frame = (void **)(top - 16);
      *frame = (void *)shim_enter;  // where the first switch returns to, with the stack as a call leaves it
      fiber.pointer = (void *)(frame - 6);
#else
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.data(), fiber.context.uc_stack.ss_size = SHIM_STACK, fiber.context.uc_link = nullptr;
      makecontext(&fiber.context, shim_enter, 0);
#endif
    }
    shim_now = 0;
    shim_go(-1, 0);
  }
}

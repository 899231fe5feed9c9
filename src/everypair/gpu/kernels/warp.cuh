// A warp and 32 dimensions (a panel) of the vectors that it meets: loads, products on tensor cores, sums over lanes.
//
// Lanes have two arrangements. For lines of memory, lane = 8 pair + part: eight lanes read the 128 bytes of one of four vectors. For
// products, lane = 4 group + pair: it holds dimensions 4 group .. 4 group + 3 of one of four vectors.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 ALL = 0xffffffffu;  // lanes
constexpr int PANEL = 32;         // dimensions
constexpr int WARPS = 4;          // warps of a block

#ifndef SHIM
// c += A B, of 16 x 4 and 4 x 8 numbers of which 10 bits of the mantissa count, in float32.
__device__ __forceinline__ void multiply_add(float (&c)[4], u32 a0, u32 a1, u32 b) {
  asm("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}
#endif

// Row `row` of a table with `stride` numbers a row.
__device__ __forceinline__ const float *row_of(const float *table, int row, int stride) { return table + (u64)(u32)row * (u32)stride; }

__device__ __forceinline__ float4 load4(const float *from) { return __ldg((const float4 *)from); }

__device__ __forceinline__ float dot4(const float4 &x, const float (&d)[4]) { return fmaf(x.x, d[0], fmaf(x.y, d[1], fmaf(x.z, d[2], x.w * d[3]))); }

// Eight values of each lane, summed over the eight lanes of a pair (lane = 8 pair + part): the lane of part j ends with the j-th sum.
__device__ __forceinline__ float sum_parts(float (&v)[8], int part) {
#pragma unroll
  for (int half = 4; half >= 1; half >>= 1) {
    bool upper = part & half;
#pragma unroll
    for (int e = 0; e < half; ++e) {
      float kept = upper ? v[e + half] : v[e], sent = upper ? v[e] : v[e + half];
      v[e] = kept + __shfl_xor_sync(ALL, sent, half);
    }
  }
  return v[0];
}

// Four values of each lane, summed over the four lanes of a group (lane = 4 group + pair): lane i ends with dimension i.
__device__ __forceinline__ float sum_pairs(const float (&v)[4], int pair) {
  bool upper = pair & 2, odd = pair & 1;
  float first = (upper ? v[2] : v[0]) + __shfl_xor_sync(ALL, upper ? v[0] : v[2], 2);
  float second = (upper ? v[3] : v[1]) + __shfl_xor_sync(ALL, upper ? v[1] : v[3], 2);
  return (odd ? second : first) + __shfl_xor_sync(ALL, odd ? first : second, 1);
}

__device__ __forceinline__ double sum_lanes(double x) {
#pragma unroll
  for (int step = 16; step; step >>= 1) x += __shfl_xor_sync(ALL, x, step);
  return x;
}

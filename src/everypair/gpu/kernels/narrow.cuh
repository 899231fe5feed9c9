// Sums over visits in a panel of 16 dimensions, as the CPU's panels have it: fields take turns panel by panel, so that the width of a
// panel is part of the order of steps.
#pragma once
#include "moments.cuh"

constexpr int WIDTH = 16;

// The sums that the steps on a level's vector w take (see everypair.kernels.panel_levels): over pairs, of r z and a z z'; over rows,
// with E what other features have in them and mu their weight, of mu t E, J_qq mu E E' and more. In the arrangement of products: this
// lane has dimensions 2 group and 2 group + 1 of one of four visits. A feature of value x counts x times.
struct Sums {
  float tiles[2][4];  // sum of a z z' + J_qq mu E E'; entries (2 group + e / 2, 4 pair + 2 (e & 1) + tile)
  float gradient[2];  // sum of r z + mu t E
  float first[2];     // sum of mu x E
  float second[2];    // sum of mu x^2 E
  float size[2];      // the diagonal of the curvatures, of absolute values
  float rest[2];      // sum of mu x times what other dimensions add to J phi
  float mass, linear, bias;  // sums of mu x^2, mu x and mu x phi_q
};

constexpr int ROWS_OF_SUMS = 11, SUMS = ROWS_OF_SUMS * 32;  // numbers of stored sums

__device__ __forceinline__ float2 load2(const float *from) { return __ldg((const float2 *)from); }

// tiles += a z z' of four vectors; see add_products.
__device__ __forceinline__ void add_square(float (&tiles)[2][4], const float2 &z, float a) {
  float x[2] = {z.x, z.y};
  u32 upper[2], lower[2], weighted_upper[2], weighted_lower[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) split(x[e], upper[e], lower[e]), split(a * x[e], weighted_upper[e], weighted_lower[e]);
#pragma unroll
  for (int j = 0; j < 2; ++j) multiply_add(tiles[j], weighted_upper[0], weighted_upper[1], lower[j]);
#pragma unroll
  for (int j = 0; j < 2; ++j) multiply_add(tiles[j], weighted_lower[0], weighted_lower[1], upper[j]);
#pragma unroll
  for (int j = 0; j < 2; ++j) multiply_add(tiles[j], weighted_upper[0], weighted_upper[1], upper[j]);
}

// Two values of each lane, summed over the four lanes of a group: lane i (and i + 16) ends with dimension i.
__device__ __forceinline__ float sum_visits(const float (&v)[2], int lane) {
  float first = v[0], other = v[1];
#pragma unroll
  for (int step = 1; step <= 2; step <<= 1) first += __shfl_xor_sync(ALL, first, step), other += __shfl_xor_sync(ALL, other, step);
  int from = 4 * ((lane & 15) >> 1);
  first = __shfl_sync(ALL, first, from), other = __shfl_sync(ALL, other, from);
  return lane & 1 ? other : first;
}

__device__ __forceinline__ float sum_lanes(float x) {
#pragma unroll
  for (int step = 16; step; step >>= 1) x += __shfl_xor_sync(ALL, x, step);
  return x;
}

// By dimension: what lane i (and i + 16) needs for the steps.
struct LevelSums {
  float gradient, first, second, size, rest, mass, linear, bias;
};

__device__ __forceinline__ LevelSums gathered(const Sums &s, int lane) {
  return {sum_visits(s.gradient, lane), sum_visits(s.first, lane), sum_visits(s.second, lane), sum_visits(s.size, lane),
          sum_visits(s.rest, lane),     sum_lanes(s.mass),         sum_lanes(s.linear),        sum_lanes(s.bias)};
}

__device__ __forceinline__ void store_sums(const Sums &s, const LevelSums &of, float *to, int lane) {
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) to[(4 * j + e) * 32 + lane] = s.tiles[j][e];
  bool upper = lane >= WIDTH;
  to[8 * 32 + lane] = upper ? of.first : of.gradient;
  to[9 * 32 + lane] = upper ? of.size : of.second;
  to[10 * 32 + lane] = !upper ? of.rest : lane == 16 ? of.mass : lane == 17 ? of.linear : lane == 18 ? of.bias : 0.f;
}

__device__ __forceinline__ LevelSums load_sums(float (&tiles)[2][4], const float *from, int lane) {
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) tiles[j][e] = from[(4 * j + e) * 32 + lane];
  int i = lane & 15;
  return {from[8 * 32 + i], from[8 * 32 + 16 + i], from[9 * 32 + i], from[9 * 32 + 16 + i], from[10 * 32 + i], from[10 * 32 + 16], from[10 * 32 + 17], from[10 * 32 + 18]};
}

// The tiles as a 16 x 16 matrix in shared memory of this warp.
__device__ __forceinline__ void unfold16(const float (&tiles)[2][4], float *matrix, int lane) {
  int group = lane >> 2, pair = lane & 3;
  __syncwarp();
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) matrix[(2 * group + (e >> 1)) * WIDTH + 4 * pair + 2 * (e & 1) + j] = tiles[j][e];
  __syncwarp();
}

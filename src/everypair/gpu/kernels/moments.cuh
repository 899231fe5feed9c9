// The sums over pairs that the steps on a panel of 32 dimensions need: the gradient sum r z and the curvatures sum a z z'.
#pragma once
#include "warp.cuh"

// In the arrangement of products. A tile has 16 x 8 of the products: those of dimensions 4 group + e and 4 (2 pair + h) + j, for two
// e and one j. Six of eight tiles: (e = 0, 1; j = 0 .. 3) and (e = 2, 3; j = 2, 3); the rest is their mirror image.
struct Moments {
  float gradient[4];
  float tiles[6][4];
};

constexpr int TILES = 6, NUMBERS = 25 * PANEL;  // numbers of stored moments

__device__ __forceinline__ int first_row(int tile) { return tile < 4 ? 0 : 2; }
__device__ __forceinline__ int column(int tile) { return tile < 4 ? tile : tile - 2; }

// A number as the sum of two that have 10 bits each of its mantissa, or nearly.
__device__ __forceinline__ void split(float x, u32 &upper, u32 &lower) {
  upper = __float_as_uint(x) & 0xffffe000u;
  lower = __float_as_uint(x - __uint_as_float(upper));
}

// tiles += a z z' of four vectors, of which this lane holds four dimensions of one. Three products of upper and lower halves are as
// exact as float32. Tiles take turns, so that none waits for its own last product.
template <bool SCALED>
__device__ __forceinline__ void add_products(Moments &m, const float4 &z, float a) {
  float x[4] = {z.x, z.y, z.z, z.w};
  u32 upper[4], lower[4], weighted_upper[4], weighted_lower[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    split(x[e], upper[e], lower[e]);
    if (SCALED)
      split(a * x[e], weighted_upper[e], weighted_lower[e]);
    else
      weighted_upper[e] = upper[e], weighted_lower[e] = lower[e];
  }
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) multiply_add(m.tiles[tile], weighted_upper[first_row(tile)], weighted_upper[first_row(tile) + 1], lower[column(tile)]);
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) multiply_add(m.tiles[tile], weighted_lower[first_row(tile)], weighted_lower[first_row(tile) + 1], upper[column(tile)]);
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) multiply_add(m.tiles[tile], weighted_upper[first_row(tile)], weighted_upper[first_row(tile) + 1], upper[column(tile)]);
}

__device__ __forceinline__ void add_gradient(Moments &m, const float4 &z, float r) {
  m.gradient[0] = fmaf(r, z.x, m.gradient[0]), m.gradient[1] = fmaf(r, z.y, m.gradient[1]);
  m.gradient[2] = fmaf(r, z.z, m.gradient[2]), m.gradient[3] = fmaf(r, z.w, m.gradient[3]);
}

// Moments of a piece of a row, for `add_pieces`; `gradient` is that of dimension `lane`.
__device__ __forceinline__ void store(const Moments &m, float gradient, float *to, int lane) {
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e) to[(tile * 4 + e) * PANEL + lane] = m.tiles[tile][e];
  to[4 * TILES * PANEL + lane] = gradient;
}

__device__ __forceinline__ float load(Moments &m, const float *from, int lane) {
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e) m.tiles[tile][e] = from[(tile * 4 + e) * PANEL + lane];
  return from[4 * TILES * PANEL + lane];
}

// The moments of pieces first .. last - 1, added up in their order in float64, by a block of ADDERS threads: the same bits in every
// run, which atomic additions would not give.
constexpr int ADDERS = 160, EACH = NUMBERS / ADDERS;

__device__ __forceinline__ void add_pieces(const float *pieces, int first, int last, float *total) {
  double sums[EACH] = {};
#pragma unroll 4
  for (int piece = first; piece < last; ++piece)
#pragma unroll
    for (int e = 0; e < EACH; ++e) sums[e] += pieces[(u64)piece * NUMBERS + e * ADDERS + threadIdx.x];
#pragma unroll
  for (int e = 0; e < EACH; ++e) total[e * ADDERS + threadIdx.x] = (float)sums[e];
  __syncthreads();
}

// A place in a 32 x 32 matrix in shared memory. Columns are swapped by row, so that lanes write tiles to different banks.
__device__ __forceinline__ int place(int row, int col) { return row * PANEL + (col ^ (row >> 2)); }

// The curvatures times a scale, as a matrix in shared memory of this warp.
__device__ __forceinline__ void unfold(const Moments &m, float scale, float *matrix, int lane) {
  int group = lane >> 2, pair = lane & 3;
  __syncwarp();
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      int row = 4 * group + first_row(tile) + (e >> 1), col = 8 * pair + 4 * (e & 1) + column(tile);
      float v = scale * m.tiles[tile][e];
      matrix[place(row, col)] = v;
      if (tile == 2 || tile == 3) matrix[place(col, row)] = v;
    }
  __syncwarp();
}

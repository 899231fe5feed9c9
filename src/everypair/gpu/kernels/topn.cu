// The best n items of each row: approximate scores of all items are given, exact ones are computed for the few that may be among the
// best.
//
// A block of threads takes a row. The n-th largest of the threads' largest scores is no more than the n-th largest score: an item that is
// less by more than the rounding of scores (`slack`) is none of the best.
#include "warp.cuh"

#ifndef THREADS
#define THREADS 256  // at least twice n
#endif
constexpr int TOGETHER = 8;        // scores that a thread reads before it looks at them
constexpr int MOST = 2 * THREADS;  // candidates of a row; rows with more, which have many equal scores, are left to the caller

#ifndef SHIM
#define LEAST __int_as_float(0xff800000)  // minus infinity
#else
#define LEAST __int_as_float((int)0xff800000)
#endif

__device__ __forceinline__ bool better(float s, int i, float t, int j) { return s > t || (s == t && i < j); }

// `scores` (rows of n_items) are overwritten where items are excluded: those of row r are `excluded[begin[r]]` to `excluded[end[r]]`.
extern "C" __global__ void __launch_bounds__(THREADS)
best_of_rows(int n_items, int n, float *scores, const float *__restrict__ slack, const int *__restrict__ begin, const int *__restrict__ end, const int *__restrict__ excluded,
             const float *__restrict__ phi, const float *__restrict__ psi, int k, int *ids, float *best, int *left_over) {
  __shared__ float largest[THREADS], exact[MOST], bound;
  __shared__ int items[MOST], count;
  int me = threadIdx.x, lane = me & 31, row = blockIdx.x;
  float *x = scores + (u64)row * n_items;
  for (int p = begin[row] + me; p < end[row]; p += THREADS)
    if (excluded[p] >= 0) x[excluded[p]] = LEAST;
  if (me == 0) count = 0, bound = LEAST;
  __syncthreads();
  float most = LEAST;
#pragma unroll 8
  for (int i = me; i < n_items; i += THREADS) most = fmaxf(most, x[i]);
  largest[me] = most;
  __syncthreads();
  int above = 0;
#pragma unroll 8
  for (int j = 0; j < THREADS; ++j) above += better(largest[j], j, most, me);
  if (above == n - 1) bound = most;
  __syncthreads();
  float least = bound - slack[row];
  if (most >= least) {
    for (int first = me; first < n_items; first += TOGETHER * THREADS) {
      float some[TOGETHER];
#pragma unroll
      for (int e = 0; e < TOGETHER; ++e) some[e] = first + e * THREADS < n_items ? x[first + e * THREADS] : LEAST;
#pragma unroll
      for (int e = 0; e < TOGETHER; ++e)
        if (some[e] >= least && some[e] > LEAST) {
          int at = atomicAdd(&count, 1);
          if (at < MOST) items[at] = first + e * THREADS;
        }
    }
  }
  __syncthreads();
  int found = count;
  if (me == 0) left_over[row] = found > MOST;
  if (found > MOST) return;
  for (int c = me >> 5; c < found; c += THREADS / 32) {
    const float *own = phi + (u64)row * k, *other = psi + (u64)items[c] * k;
    double total = 0.0;
    for (int f = lane; f < k; f += 32) total += (double)own[f] * other[f];
    total = sum_lanes(total);
    if (lane == 0) exact[c] = (float)total;
  }
  __syncthreads();
  for (int c = me; c < max(found, n); c += THREADS) {
    if (c >= found) {  // fewer than n items
      if (c < n) ids[(u64)row * n + c] = -1, best[(u64)row * n + c] = LEAST;
      continue;
    }
    int place = 0;
    for (int j = 0; j < found; ++j) place += better(exact[j], items[j], exact[c], items[c]);
    if (place < n) ids[(u64)row * n + place] = items[c], best[(u64)row * n + place] = exact[c];
  }
}

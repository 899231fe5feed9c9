// The sweep of the vectors of levels, one-hot fields of MFSI and factorization machines: a level is a row of matrix factorization over
// the rows that have it. The mathematics are those of everypair.kernels.panel_levels.
#include "narrow.cuh"

#ifndef PAIRWISE
#define PAIRWISE 0  // factorization machines: the features of a row interact
#endif
#ifndef COUPLED
#define COUPLED 0  // rows have a vector of what other dimensions add to J phi
#endif

// The other side's Gram in a panel: the block A (16 x 16), its column v at the bias dimension q, what dimensions that do not move add
// (the same for all rows), one after the other; and the number J_qq.
struct Gram {
  const float *A, *v, *constant;
  float J_qq;
};

__device__ __forceinline__ Gram gram_of(const float *gram, float J_qq) { return {gram, gram + WIDTH * WIDTH, gram + WIDTH * WIDTH + WIDTH, J_qq}; }

// Coordinate steps on the 16 dimensions of a level's vector, one after the other; lane i has dimension i and returns how far it moves.
__device__ __forceinline__ float step_level(const float (&tiles)[2][4], const LevelSums &sums, const Gram &gram, float *matrix, float w, float penalty, float eta, float tiny, int lane) {
  int i = lane & 15;
  unfold16(tiles, matrix, lane);
  float v = gram.v[i], y = sums.mass * w + sums.first, slope = sums.gradient + v * sums.bias + sums.rest + gram.constant[i] * sums.linear;
  float straight = 0.f, mixed = 0.f;
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) {
    float A = gram.A[j * WIDTH + i], other = __shfl_sync(ALL, v, j);
    slope = fmaf(A, __shfl_sync(ALL, y, j), slope);
    float added = sums.mass * A, cross = other * sums.second + __shfl_sync(ALL, sums.second, j) * v;
    if (lane < WIDTH) matrix[j * WIDTH + i] += added + cross;
    if (j == i) straight = added, mixed = cross;
  }
  __syncwarp();
  float h = matrix[i * WIDTH + i];
  bool lost = h <= tiny * (sums.size + straight + fabsf(mixed));
  float curvature = (lost ? 0.f : h) + penalty, inverse = curvature > 0.f ? eta / curvature : 0.f;
  float step = curvature > 0.f ? -((lost ? 0.f : slope) + penalty * w) * inverse : -w;
  if (lost) inverse = 0.f;
#pragma unroll
  for (int j = 0; j < WIDTH - 1; ++j) {
    float effect = i > j ? -inverse * matrix[j * WIDTH + i] : 0.f;
    step = fmaf(effect, __shfl_sync(ALL, step, j), step);
  }
  return step;
}

// The vector of a level after its steps, how far it moved, and <v, move>.
__device__ __forceinline__ void finish(const float (&tiles)[2][4], const LevelSums &sums, const Gram &gram, float *matrix, int level, float *W, int stride, int first_dim,
                                       const float *penalty, int penalty_step, float eta, float tiny, float *delta, float *along, int lane) {
  float *at = W + (u64)level * stride + first_dim + (lane & 15), before = *at;
  float after = before + step_level(tiles, sums, gram, matrix, before, penalty[(u64)level * penalty_step], eta, tiny, lane);
  float moved = after - before, product = lane < WIDTH ? moved * gram.v[lane] : 0.f;
  product = sum_lanes(product);
  if (lane < WIDTH) *at = after, delta[(u64)level * WIDTH + lane] = moved;
  if (lane == 0) along[level] = product;
}

// What a visit adds, in the arrangement of products: z the vector it meets, E what other features have in its row.
struct Visit {
  float residual, a, t, mu, mu_x;  // x r, x^2 a, mu x t, mu x^2, mu x
};

__device__ __forceinline__ Visit from_lane(const Visit &v, int lane) {
  return {__shfl_sync(ALL, v.residual, lane), __shfl_sync(ALL, v.a, lane), __shfl_sync(ALL, v.t, lane), __shfl_sync(ALL, v.mu, lane), __shfl_sync(ALL, v.mu_x, lane)};
}

__device__ __forceinline__ void add_pair(Sums &s, const float2 &z, const Visit &v) {
  s.gradient[0] = fmaf(v.residual, z.x, s.gradient[0]), s.gradient[1] = fmaf(v.residual, z.y, s.gradient[1]);
  float size = fabsf(v.a);
  s.size[0] = fmaf(size * z.x, z.x, s.size[0]), s.size[1] = fmaf(size * z.y, z.y, s.size[1]);
  add_square(s.tiles, z, v.a);
}

__device__ __forceinline__ void add_row(Sums &s, const float2 &E, const Visit &v, float J_qq) {
  s.first[0] = fmaf(v.mu_x, E.x, s.first[0]), s.first[1] = fmaf(v.mu_x, E.y, s.first[1]);
  if (PAIRWISE) {
    s.second[0] = fmaf(v.mu, E.x, s.second[0]), s.second[1] = fmaf(v.mu, E.y, s.second[1]);
    s.gradient[0] = fmaf(v.t, E.x, s.gradient[0]), s.gradient[1] = fmaf(v.t, E.y, s.gradient[1]);
    float weight = J_qq * v.mu;
    s.size[0] = fmaf(weight * E.x, E.x, s.size[0]), s.size[1] = fmaf(weight * E.y, E.y, s.size[1]);
    add_square(s.tiles, E, weight);
  }
}

// A side of events: row c has the pair c and no other. `state` has score, phi_q, t and the item of each event. Levels of few events are
// stepped on at once; pieces of others are stored.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
sweep_event_levels(int n_tasks, const int4 *__restrict__ tasks, const int *__restrict__ members, const float4 *__restrict__ state, const float *__restrict__ a, int a_step,
                   const float *__restrict__ b, int b_step, const float *__restrict__ weight, int weight_step, const float *__restrict__ x, int x_step,
                   const float *__restrict__ psi, int none, const float *__restrict__ F, int n_rows, const float *__restrict__ rest, float *W, int stride, int first_dim,
                   const float *__restrict__ gram, float J_qq, const float *__restrict__ penalty, int penalty_step, float eta, float tiny, float *delta, float *along,
                   float *pieces) {
  __shared__ float matrices[WARPS][WIDTH * WIDTH];
  int lane = threadIdx.x & 31, number = blockIdx.x * WARPS + (threadIdx.x >> 5);
  if (number >= n_tasks) return;
  int4 task = tasks[number];
  int level = task.x, lo = task.y, n = task.z, group = lane >> 2, pair = lane & 3;
  float2 own = load2(W + (u64)level * stride + first_dim + 2 * group);
  const float *items = psi + first_dim + 2 * group, *rows = F + first_dim + 2 * group;
  Sums sums = {};
  for (int from = 0; from < n; from += 32) {
    int row = n_rows, item = none;
    float value = 0.f;
    Visit visit = {};
    if (from + lane < n) {
      row = members[lo + from + lane];
      float4 s = state[row];
      float mu = weight[(u64)row * weight_step], weight_a = a[(u64)row * a_step];
      value = x[(u64)row * x_step], item = __float_as_int(s.w);
      visit = {value * (weight_a * s.x - b[(u64)row * b_step]), value * value * weight_a, mu * value * s.z, mu * value * value, mu * value};
      sums.mass += visit.mu, sums.linear += visit.mu_x, sums.bias += visit.mu_x * s.y;
    }
#pragma unroll
    for (int half = 0; half < 32; half += 16) {
      if (from + half >= n) break;
      float2 z[4], E[4], r[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        int of = half + 4 * e + pair, its_row = __shfl_sync(ALL, row, of);
        z[e] = load2(row_of(items, __shfl_sync(ALL, item, of), stride));
        E[e] = load2(row_of(rows, its_row, stride));
        if (COUPLED) r[e] = load2(rest + (u64)its_row * WIDTH + 2 * group);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        int of = half + 4 * e + pair;
        Visit v = from_lane(visit, of);
        float its_value = __shfl_sync(ALL, value, of);
        E[e].x -= its_value * own.x, E[e].y -= its_value * own.y;
        if (PAIRWISE) z[e].x += E[e].x, z[e].y += E[e].y;
        add_pair(sums, z[e], v);
        add_row(sums, E[e], v, J_qq);
        if (COUPLED) sums.rest[0] = fmaf(v.mu_x, r[e].x, sums.rest[0]), sums.rest[1] = fmaf(v.mu_x, r[e].y, sums.rest[1]);
      }
    }
  }
  LevelSums of = gathered(sums, lane);
  if (task.w >= 0) {
    store_sums(sums, of, pieces + (u64)task.w * SUMS, lane);
    return;
  }
  finish(sums.tiles, of, gram_of(gram, J_qq), matrices[threadIdx.x >> 5], level, W, stride, first_dim, penalty, penalty_step, eta, tiny, delta, along, lane);
}

// The sums over pairs of pieces of levels, where a row may have any number of pairs; `visits` are row and pair.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
sum_pairs_of_levels(int n_tasks, const int4 *__restrict__ tasks, const int2 *__restrict__ visits, const int *__restrict__ indices, const float *__restrict__ scores,
                    const float *__restrict__ a, int a_step, const float *__restrict__ b, int b_step, const float *__restrict__ x, int x_step, const float *__restrict__ psi,
                    int none, const float *__restrict__ F, int n_rows, const float *__restrict__ W, int stride, int first_dim, float *pieces) {
  int lane = threadIdx.x & 31, number = blockIdx.x * WARPS + (threadIdx.x >> 5);
  if (number >= n_tasks) return;
  int4 task = tasks[number];
  int lo = task.y, n = task.z, group = lane >> 2, pair = lane & 3;
  float2 own = load2(W + (u64)task.x * stride + first_dim + 2 * group);
  const float *others = psi + first_dim + 2 * group, *rows = F + first_dim + 2 * group;
  Sums sums = {};
  for (int from = 0; from < n; from += 32) {
    int row = n_rows, other = none;
    float value = 0.f;
    Visit visit = {};
    if (from + lane < n) {
      int2 at = visits[lo + from + lane];
      row = at.x, other = indices[at.y], value = x[(u64)row * x_step];
      float weight_a = a[(u64)at.y * a_step];
      visit.residual = value * (weight_a * scores[at.y] - b[(u64)at.y * b_step]), visit.a = value * value * weight_a;
    }
    for (int e = 0; e < 8; ++e) {
      int of = 4 * e + pair;
      if (from + 4 * e >= n) break;
      float2 z = load2(row_of(others, __shfl_sync(ALL, other, of), stride));
      if (PAIRWISE) {
        float2 E = load2(row_of(rows, __shfl_sync(ALL, row, of), stride));
        float its_value = __shfl_sync(ALL, value, of);
        z.x += E.x - its_value * own.x, z.y += E.y - its_value * own.y;
      }
      add_pair(sums, z, from_lane(visit, of));
    }
  }
  store_sums(sums, gathered(sums, lane), pieces + (u64)task.w * SUMS, lane);
}

// The sums over rows of pieces of levels.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
sum_rows_of_levels(int n_tasks, const int4 *__restrict__ tasks, const int *__restrict__ members, const float *__restrict__ phi_q, const float *__restrict__ t,
                   const float *__restrict__ weight, int weight_step, const float *__restrict__ x, int x_step, const float *__restrict__ F, int n_rows,
                   const float *__restrict__ rest, const float *__restrict__ W, int stride, int first_dim, float J_qq, float *pieces) {
  int lane = threadIdx.x & 31, number = blockIdx.x * WARPS + (threadIdx.x >> 5);
  if (number >= n_tasks) return;
  int4 task = tasks[number];
  int lo = task.y, n = task.z, group = lane >> 2, pair = lane & 3;
  float2 own = load2(W + (u64)task.x * stride + first_dim + 2 * group);
  const float *rows = F + first_dim + 2 * group;
  Sums sums = {};
  for (int from = 0; from < n; from += 32) {
    int row = n_rows;
    float value = 0.f;
    Visit visit = {};
    if (from + lane < n) {
      row = members[lo + from + lane], value = x[(u64)row * x_step];
      float mu = weight[(u64)row * weight_step];
      visit.t = mu * value * t[row], visit.mu = mu * value * value, visit.mu_x = mu * value;
      sums.mass += visit.mu, sums.linear += visit.mu_x, sums.bias += visit.mu_x * phi_q[row];
    }
    for (int e = 0; e < 8; ++e) {
      int of = 4 * e + pair;
      if (from + 4 * e >= n) break;
      int its_row = __shfl_sync(ALL, row, of);
      float2 E = load2(row_of(rows, its_row, stride));
      float its_value = __shfl_sync(ALL, value, of);
      E.x -= its_value * own.x, E.y -= its_value * own.y;
      Visit v = from_lane(visit, of);
      add_row(sums, E, v, J_qq);
      if (COUPLED) {
        float2 r = load2(rest + (u64)its_row * WIDTH + 2 * group);
        sums.rest[0] = fmaf(v.mu_x, r.x, sums.rest[0]), sums.rest[1] = fmaf(v.mu_x, r.y, sums.rest[1]);
      }
    }
  }
  store_sums(sums, gathered(sums, lane), pieces + (u64)task.w * SUMS, lane);
}

// Levels that were cut, a block of SUMS / 2 threads each: level `levels[l]` has the pieces `bounds[l]` to `bounds[l + 1]`, in this order.
extern "C" __global__ void __launch_bounds__(SUMS / 2)
step_levels(const int *__restrict__ levels, const int *__restrict__ bounds, const float *__restrict__ pieces, float *W, int stride, int first_dim, const float *__restrict__ gram,
            float J_qq, const float *__restrict__ penalty, int penalty_step, float eta, float tiny, float *delta, float *along) {
  __shared__ float total[SUMS], matrix[WIDTH * WIDTH];
  int me = threadIdx.x;
  double one = 0.0, two = 0.0;
#pragma unroll 4
  for (int piece = bounds[blockIdx.x]; piece < bounds[blockIdx.x + 1]; ++piece) {
    one += pieces[(u64)piece * SUMS + me];
    two += pieces[(u64)piece * SUMS + SUMS / 2 + me];
  }
  total[me] = (float)one, total[SUMS / 2 + me] = (float)two;
  __syncthreads();
  if (me >= 32) return;
  float tiles[2][4];
  LevelSums sums = load_sums(tiles, total, me);
  finish(tiles, sums, gram_of(gram, J_qq), matrix, levels[blockIdx.x], W, stride, first_dim, penalty, penalty_step, eta, tiny, delta, along, me);
}

// Scores, phi_q, t and vectors of events after the steps of their levels. In the arrangement of lines with half as many parts: lane =
// 8 event + part, a lane has two dimensions.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
follow_events(int n_events, float4 *state, const int *__restrict__ codes, const float *__restrict__ x, int x_step, const float *__restrict__ psi, float *F, int stride,
              int first_dim, const float *__restrict__ W, const float *__restrict__ delta, const float *__restrict__ along, float J_qq) {
  int lane = threadIdx.x & 31, first = (blockIdx.x * WARPS + (threadIdx.x >> 5)) * 32, pair = lane >> 3, part = lane & 7;
  if (first >= n_events) return;
  bool there = first + lane < n_events;
  float4 s = there ? state[first + lane] : make_float4(0.f, 0.f, 0.f, __int_as_float(0));
  int item = __float_as_int(s.w), code = there ? codes[first + lane] : codes[first];
  float value = there ? x[(u64)(first + lane) * x_step] : 0.f;
  float with_item[8], with_row[8];
#pragma unroll 4
  for (int e = 0; e < 8; ++e) {
    int of = 4 * e + pair, its_code = __shfl_sync(ALL, code, of), row = min(first + of, n_events - 1);
    float its_value = __shfl_sync(ALL, value, of);
    float *at = F + (u64)row * stride + first_dim + 2 * part;
    float2 d = load2(delta + (u64)its_code * WIDTH + 2 * part), z = load2(row_of(psi, __shfl_sync(ALL, item, of), stride) + first_dim + 2 * part), f = *(float2 *)at;
    with_item[e] = its_value * (d.x * z.x + d.y * z.y), with_row[e] = 0.f;
    if (PAIRWISE) {
      float2 w = load2(row_of(W, its_code, stride) + first_dim + 2 * part);
      with_row[e] = its_value * (d.x * (f.x - its_value * (w.x - d.x)) + d.y * (f.y - its_value * (w.y - d.y)));
    }
    f.x += its_value * d.x, f.y += its_value * d.y;
    if (first + of < n_events) *(float2 *)at = f;
  }
  float by_item = sum_parts(with_item, part), by_row = PAIRWISE ? sum_parts(with_row, part) : 0.f;
  // The event of this lane's sums is number `own`; its state is with the lane of that number.
  int from = 8 * (lane & 3) + (lane >> 2);
  by_item = __shfl_sync(ALL, by_item, from), by_row = __shfl_sync(ALL, by_row, from);
  if (there) {
    s.x += by_item + by_row, s.y += by_row, s.z += value * along[code] + J_qq * by_row;
    state[first + lane] = s;
  }
}

// Scores of the pairs of rows after the steps of the rows' levels; vectors are still those of before.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
follow_pairs(int n_tasks, const int4 *__restrict__ tasks, const int *__restrict__ indices, float *scores, const int *__restrict__ codes, const float *__restrict__ x, int x_step,
             const float *__restrict__ psi, int none, const float *__restrict__ F, int stride, int first_dim, const float *__restrict__ W, const float *__restrict__ delta) {
  int lane = threadIdx.x & 31, number = blockIdx.x * WARPS + (threadIdx.x >> 5);
  if (number >= n_tasks) return;
  int4 task = tasks[number];
  int row = task.x, pair = lane >> 3, part = lane & 7, own = 4 * part + pair, code = codes[row];
  float value = x[(u64)row * x_step];
  float2 d = load2(delta + (u64)code * WIDTH + 2 * part);
  d.x *= value, d.y *= value;
  float beside = 0.f;
  if (PAIRWISE) {
    float2 f = load2(row_of(F, row, stride) + first_dim + 2 * part), w = load2(row_of(W, code, stride) + first_dim + 2 * part);
    beside = d.x * (f.x - value * w.x + d.x) + d.y * (f.y - value * w.y + d.y);
#pragma unroll
    for (int step = 4; step; step >>= 1) beside += __shfl_xor_sync(ALL, beside, step);
  }
  const float *base = psi + first_dim + 2 * part;
  for (int from = 0; from < task.z; from += 32) {
    int index = from + lane < task.z ? indices[task.y + from + lane] : none;
    float v[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      float2 z = load2(row_of(base, __shfl_sync(ALL, index, 4 * e + pair), stride));
      v[e] = d.x * z.x + d.y * z.y;
    }
    float moved = sum_parts(v, part) + beside;
    if (from + own < task.z) scores[task.y + from + own] += moved;
  }
}

// Vectors of rows, phi_q and t after `follow_pairs`; a thread has a dimension of a row.
extern "C" __global__ void __launch_bounds__(256)
follow_rows(int n_rows, const int *__restrict__ codes, const float *__restrict__ x, int x_step, float *F, int stride, int first_dim, const float *__restrict__ W,
            const float *__restrict__ delta, const float *__restrict__ along, float J_qq, float *phi_q, float *t) {
  long long number = blockIdx.x * 256ll + threadIdx.x;
  int row = (int)min(number / WIDTH, (long long)n_rows - 1), i = number % WIDTH, code = codes[row];
  float value = x[(u64)row * x_step], d = delta[(u64)code * WIDTH + i], *at = F + (u64)row * stride + first_dim + i, f = *at;
  float moved = value * d * (f - value * (W[(u64)code * stride + first_dim + i] - d));
  if (number < (long long)n_rows * WIDTH) *at = f + value * d;
  if (PAIRWISE) {
#pragma unroll
    for (int step = 8; step; step >>= 1) moved += __shfl_xor_sync(ALL, moved, step);
    if (i == 0 && number < (long long)n_rows * WIDTH) phi_q[row] += moved, t[row] += value * along[code] + J_qq * moved;
  }
}

// The sweep of free rows (matrix factorization): every row is its own least-squares problem.
//
// A warp takes a row, or a piece of a long one. One pass over its pairs sums the moments of 32 dimensions, the steps run on these
// alone, and a second pass moves the scores. Panels of dimensions are the outer loop, so that gathered lines stay in the cache.
#include "steps.cuh"

#ifndef WEIGHTED
#define WEIGHTED 0  // whether pairs have weights a of their own
#endif
#ifndef UNREGULARIZED
#define UNREGULARIZED 0  // whether there are rows without L2
#endif

// The pairs of a row, or of a piece of it: from `first` on, `n` of them; `piece` is its number among all pieces, or -1.
struct Task {
  int row, first, n, piece;
};

__device__ __forceinline__ Task task_of(const int4 *tasks, int number) {
  int4 t = tasks[number];
  return {t.x, t.y, t.z, t.w};
}

// scores += <delta, psi> for the pairs of a task; in the arrangement of lines, a lane has four numbers of delta.
__device__ __forceinline__ void move_scores(const Task &task, const int *__restrict__ indices, float *scores, const float *__restrict__ psi, int stride, int none,
                                            const float (&delta)[4], int lane) {
  int pair = lane >> 3, part = lane & 7, own = 4 * part + pair;
  const float *base = psi + 4 * part;
  int next = lane < task.n ? indices[task.first + lane] : none;
  for (int from = 0; from < task.n; from += 32) {
    int index = next;
    next = from + 32 + lane < task.n ? indices[task.first + from + 32 + lane] : none;
    float score = from + own < task.n ? scores[task.first + from + own] : 0.f, v[8];
    float4 x[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) x[e] = load4(row_of(base, __shfl_sync(ALL, index, 4 * e + pair), stride));
#pragma unroll
    for (int e = 0; e < 8; ++e) v[e] = dot4(x[e], delta);
    score += sum_parts(v, part);
    if (from + own < task.n) scores[task.first + from + own] = score;
  }
}

// The step of a row, from the moments of all its pairs; returns how far dimension `lane` moved.
__device__ __forceinline__ float step_row(const Moments &moments, float gradient, float scale, float *matrix, int row, float *W, int stride, int first_dim,
                                          const float *__restrict__ weight, int weight_step, const float *__restrict__ penalty, int penalty_step,
                                          const float *__restrict__ lost, const float *__restrict__ diagonal, const float *__restrict__ J, const float *__restrict__ products,
                                          int coupled, float eta, float tiny, int lane) {
  unfold(moments, scale, matrix, lane);
  Settings set = {weight[(u64)row * weight_step], penalty[(u64)row * penalty_step], eta, tiny, UNREGULARIZED ? lost[row] : 0.f};
  float *at = W + (u64)row * stride + first_dim + lane, before = *at, own = diagonal[first_dim + lane];
  float product = coupled ? products[(u64)row * PANEL + lane] : own * before;
  float after = before + step_along<UNREGULARIZED>(matrix, gradient, before, product, set, J, own, coupled, lane);
  *at = after;
  return after - before;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 5)
sweep_rows(int n_tasks, const int4 *__restrict__ tasks, const int *__restrict__ indices, float *scores, const float *__restrict__ psi, const float *__restrict__ a,
           const float *__restrict__ b, int b_step, float *W, int stride, int none, int first_dim, const float *__restrict__ weight, int weight_step,
           const float *__restrict__ penalty, int penalty_step, const float *__restrict__ lost, const float *__restrict__ diagonal, const float *__restrict__ J,
           const float *__restrict__ products, int coupled, float eta, float tiny, float *pieces) {
  __shared__ float matrices[WARPS][PANEL * PANEL];
  int lane = threadIdx.x & 31, number = blockIdx.x * WARPS + (threadIdx.x >> 5);
  if (number >= n_tasks) return;
  Task task = task_of(tasks, number);
  int group = lane >> 2, pair = lane & 3;
  const float *panel = psi + first_dim, *base = panel + 4 * group;
  Moments moments = {};
  float uniform = a[0];
  int next_index = lane < task.n ? indices[task.first + lane] : none;
  float next_score = lane < task.n ? scores[task.first + lane] : 0.f, next_a = WEIGHTED && lane < task.n ? a[task.first + lane] : uniform;
  float next_b = lane < task.n ? b[(u64)(task.first + lane) * b_step] : 0.f;
  for (int from = 0; from < task.n; from += 32) {
    int index = next_index, ahead = from + 32 + lane;
    float weight_here = next_a, residual = from + lane < task.n ? weight_here * next_score - next_b : 0.f;
    next_index = none;
    if (ahead < task.n) {
      next_index = indices[task.first + ahead], next_score = scores[task.first + ahead], next_b = b[(u64)(task.first + ahead) * b_step];
      if (WEIGHTED) next_a = a[task.first + ahead];
    }
#pragma unroll
    for (int half = 0; half < 32; half += 16) {
      if (from + half >= task.n) break;
      float4 z[4];
#pragma unroll
      for (int v = 0; v < 4; ++v) z[v] = load4(row_of(base, __shfl_sync(ALL, index, half + 4 * v + pair), stride));
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        int of = half + 4 * v + pair;
        add_gradient(moments, z[v], __shfl_sync(ALL, residual, of));
        add_products<WEIGHTED>(moments, z[v], WEIGHTED ? __shfl_sync(ALL, weight_here, of) : 1.f);
      }
    }
  }
  float gradient = sum_pairs(moments.gradient, pair);
  if (task.piece >= 0) {
    store(moments, gradient, pieces + (u64)task.piece * NUMBERS, lane);
    return;
  }
  float step = step_row(moments, gradient, WEIGHTED ? 1.f : uniform, matrices[threadIdx.x >> 5], task.row, W, stride, first_dim, weight, weight_step, penalty, penalty_step,
                        lost, diagonal, J, products, coupled, eta, tiny, lane);
  float delta[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) delta[e] = __shfl_sync(ALL, step, 4 * (lane & 7) + e);
  move_scores(task, indices, scores, panel, stride, none, delta, lane);
}

// Long rows, a block of ADDERS threads each: row `rows[r]` has the pieces `bounds[r]` to `bounds[r + 1]`.
extern "C" __global__ void __launch_bounds__(ADDERS)
step_long(const int *__restrict__ rows, const int *__restrict__ bounds, const float *__restrict__ pieces, const float *__restrict__ a, float *W, int stride, int none,
          int first_dim, const float *__restrict__ weight, int weight_step, const float *__restrict__ penalty, int penalty_step, const float *__restrict__ lost,
          const float *__restrict__ diagonal, const float *__restrict__ J, const float *__restrict__ products, int coupled, float eta, float tiny, float *delta) {
  __shared__ float total[NUMBERS], matrix[PANEL * PANEL];
  int r = blockIdx.x, lane = threadIdx.x;
  add_pieces(pieces, bounds[r], bounds[r + 1], total);
  if (lane >= 32) return;
  Moments moments;
  float gradient = load(moments, total, lane);
  delta[r * PANEL + lane] = step_row(moments, gradient, WEIGHTED ? 1.f : a[0], matrix, rows[r], W, stride, first_dim, weight, weight_step, penalty, penalty_step, lost, diagonal,
                                     J, products, coupled, eta, tiny, lane);
}

// The scores of long rows after their steps, piece by piece; piece p belongs to long row `owner[p]`.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
move_pieces(int n_pieces, const int4 *__restrict__ tasks, const int *__restrict__ owner, const int *__restrict__ indices, float *scores, const float *__restrict__ psi,
            const float *W, int stride, int none, int first_dim, const float *__restrict__ delta) {
  int lane = threadIdx.x & 31, number = blockIdx.x * WARPS + (threadIdx.x >> 5);
  if (number >= n_pieces) return;
  float4 d = load4(delta + owner[number] * PANEL + 4 * (lane & 7));
  float of_lane[4] = {d.x, d.y, d.z, d.w};
  move_scores(task_of(tasks, number), indices, scores, psi + first_dim, stride, none, of_lane, lane);
}

// Scores of observed pairs from scratch, with the biases of both sides, and for each task the sums of a s^2, b s and alpha s^2 (one kind after the other).
extern "C" __global__ void __launch_bounds__(32 * WARPS)
score_rows(int n_tasks, const int4 *__restrict__ tasks, const int *__restrict__ indices, const float *__restrict__ W, const float *__restrict__ psi, int stride, int none,
           const float *__restrict__ bias, int bias_step, const float *__restrict__ other_bias, int other_bias_step, const float *__restrict__ a, int a_step, const float *__restrict__ b, int b_step, const float *__restrict__ alpha, int alpha_step, float *scores, double *sums) {
  int lane = threadIdx.x & 31, number = blockIdx.x * WARPS + (threadIdx.x >> 5);
  if (number >= n_tasks) return;
  Task task = task_of(tasks, number);
  int pair = lane >> 3, part = lane & 7, own = 4 * part + pair;
  const float *vector = row_of(W, task.row, stride) + 4 * part, *base = psi + 4 * part;
  double of_a = 0.0, of_b = 0.0, of_alpha = 0.0;
  float own_bias = bias[(u64)task.row * bias_step];
  for (int from = 0; from < task.n; from += 32) {
    int index = from + lane < task.n ? indices[task.first + from + lane] : none;
    const float *lines[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) lines[e] = row_of(base, __shfl_sync(ALL, index, 4 * e + pair), stride);
    float v[8] = {};
#pragma unroll 2
    for (int first = 0; first < stride; first += PANEL) {
      float4 w = *(const float4 *)(vector + first);
      float mine[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int e = 0; e < 8; ++e) v[e] += dot4(load4(lines[e] + first), mine);
    }
    float s = sum_parts(v, part) + own_bias + other_bias[(u64)__shfl_sync(ALL, index, own) * other_bias_step];
    if (from + own < task.n) {
      u64 p = task.first + from + own;
      scores[p] = s;
      double square = (double)s * s;
      of_a += a[p * a_step] * square, of_b += (double)b[p * b_step] * s, of_alpha += alpha[p * alpha_step] * square;
    }
  }
  of_a = sum_lanes(of_a), of_b = sum_lanes(of_b), of_alpha = sum_lanes(of_alpha);
  if (lane == 0) sums[number] = of_a, sums[n_tasks + number] = of_b, sums[2 * n_tasks + number] = of_alpha;
}

// The same where row c has the pair c and no other; sums are those of blocks of warps, each of which takes EVENTS events.
constexpr int EVENTS = 128;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
score_events(int n, int n_blocks, const int *__restrict__ indices, const float *__restrict__ W, const float *__restrict__ psi, int stride, const float *__restrict__ bias, int bias_step,
             const float *__restrict__ other_bias, int other_bias_step, const float *__restrict__ a, int a_step, const float *__restrict__ b, int b_step,
             const float *__restrict__ alpha, int alpha_step, float *scores, double *sums) {
  __shared__ double total[3][WARPS];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, pair = lane >> 3, part = lane & 7, own = 4 * part + pair;
  double of_a = 0.0, of_b = 0.0, of_alpha = 0.0;
  int begin = (blockIdx.x * WARPS + warp) * EVENTS, end = min(begin + EVENTS, n);
  for (int first = begin; first < end; first += 32) {
    int index = first + lane < end ? indices[first + lane] : 0;
    float v[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float *x = row_of(W, min(first + 4 * e + pair, n - 1), stride) + 4 * part, *y = row_of(psi, __shfl_sync(ALL, index, 4 * e + pair), stride) + 4 * part;
      float sum = 0.f;
      for (int f = 0; f < stride; f += PANEL) {
        float4 w = load4(x + f);
        float mine[4] = {w.x, w.y, w.z, w.w};
        sum += dot4(load4(y + f), mine);
      }
      v[e] = sum;
    }
    float s = sum_parts(v, part);
    int its_index = __shfl_sync(ALL, index, own);
    if (first + own < end) {
      u64 c = first + own;
      s += bias[c * bias_step] + other_bias[(u64)its_index * other_bias_step];
      scores[c] = s;
      double square = (double)s * s;
      of_a += a[c * a_step] * square, of_b += (double)b[c * b_step] * s, of_alpha += alpha[c * alpha_step] * square;
    }
  }
  of_a = sum_lanes(of_a), of_b = sum_lanes(of_b), of_alpha = sum_lanes(of_alpha);
  if (lane == 0) total[0][warp] = of_a, total[1][warp] = of_b, total[2][warp] = of_alpha;
  __syncthreads();
  if (threadIdx.x >= 3) return;
  double sum = 0.0;
  for (int w = 0; w < WARPS; ++w) sum += total[threadIdx.x][w];
  sums[(u64)threadIdx.x * n_blocks + blockIdx.x] = sum;
}

// a = alpha - alpha0 m n of observed pairs (Lemma 1); `covered` is m of each pair (step 1), or that of all (step 0).
extern "C" __global__ void __launch_bounds__(256)
explicit_weights(int n_pairs, const int *__restrict__ items, const float *__restrict__ alpha, int alpha_step, const float *__restrict__ covered, int covered_step,
                 const float *__restrict__ item_weight, int item_step, double alpha0, float *a) {
  int p = blockIdx.x * blockDim.x + threadIdx.x;
  if (p >= n_pairs) return;
  double m = covered[(u64)p * covered_step], n = item_weight[(u64)items[p] * item_step];
  a[p] = (float)(alpha[(u64)p * alpha_step] - alpha0 * m * n);
}

// L2 of each row: its squared length, times its penalty.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
penalties_of_rows(int n_rows, const float *__restrict__ W, int stride, const float *__restrict__ penalty, int penalty_step, double *penalties) {
  int lane = threadIdx.x & 31, row = blockIdx.x * WARPS + (threadIdx.x >> 5);
  if (row >= n_rows) return;
  const float *w = row_of(W, row, stride);
  double total = 0.0;
  for (int f = lane; f < stride; f += PANEL) total += (double)w[f] * w[f];
  total = sum_lanes(total);
  if (lane == 0) penalties[row] = total * penalty[(u64)row * penalty_step];
}

// The sums of squares of each column, for a block of `rows_each` rows; a thread has a column.
extern "C" __global__ void squares_of_columns(int n_rows, int rows_each, const float *__restrict__ W, int stride, const float *__restrict__ weight, int weight_step, double *sums) {
  int first = blockIdx.x * rows_each, last = min(first + rows_each, n_rows);
  for (int column = threadIdx.x; column < stride; column += blockDim.x) {
    double total = 0.0;
#pragma unroll 8
    for (int row = first; row < last; ++row) {
      double w = W[(u64)row * stride + column];
      total += w * w * weight[(u64)row * weight_step];
    }
    sums[(u64)blockIdx.x * stride + column] = total;
  }
}

// Sums of each column times a number of the row, and alone, weighted, for a block of `rows_each` rows; a thread has a column.
extern "C" __global__ void products_of_columns(int n_rows, int rows_each, const float *__restrict__ W, int stride, const float *__restrict__ numbers,
                                               const float *__restrict__ weight, int weight_step, double *sums) {
  int first = blockIdx.x * rows_each, last = min(first + rows_each, n_rows);
  for (int column = threadIdx.x; column < stride; column += blockDim.x) {
    double total = 0.0, alone = 0.0;
#pragma unroll 8
    for (int row = first; row < last; ++row) {
      double w = (double)W[(u64)row * stride + column] * weight[(u64)row * weight_step];
      total += w * numbers[row], alone += w;
    }
    sums[2 * (u64)blockIdx.x * stride + column] = total, sums[(2 * (u64)blockIdx.x + 1) * stride + column] = alone;
  }
}

// For each task, the sum of (|a s| + |b|)^2 / alpha: the size of what the explicit part of gradients is made of.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
sizes_of_rows(int n_tasks, const int4 *__restrict__ tasks, const float *__restrict__ scores, const float *__restrict__ a, int a_step, const float *__restrict__ b, int b_step,
              const float *__restrict__ alpha, int alpha_step, double *sizes) {
  int lane = threadIdx.x & 31, number = blockIdx.x * WARPS + (threadIdx.x >> 5);
  if (number >= n_tasks) return;
  Task task = task_of(tasks, number);
  double total = 0.0;
  for (u64 p = task.first + lane; p < task.first + task.n; p += 32) {
    double size = fabsf(a[p * a_step] * scores[p]) + fabsf(b[p * b_step]), confidence = alpha[p * alpha_step];
    if (confidence > 0.0) total += size * size / confidence;
  }
  total = sum_lanes(total);
  if (lane == 0) sizes[number] = total;
}

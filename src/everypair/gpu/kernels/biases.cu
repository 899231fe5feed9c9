// One dimension of a side, whose weights are linear in it (bias and linear weights of factorization machines), and what rows are as sums
// over their levels.
#include "warp.cuh"

// Half gradient and curvature of the loss in a dimension that meets 1 on the other side: those of observed pairs, for each task.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
slopes_of_tasks(int n_tasks, const int4 *__restrict__ tasks, const float *__restrict__ scores, const float *__restrict__ a, int a_step, const float *__restrict__ b, int b_step,
                double *slopes) {
  int lane = threadIdx.x & 31, number = blockIdx.x * WARPS + (threadIdx.x >> 5);
  if (number >= n_tasks) return;
  int4 task = tasks[number];
  double g = 0.0, h = 0.0;
  for (u64 p = task.y + lane; p < task.y + task.z; p += 32) g += (double)a[p * a_step] * scores[p] - b[p * b_step], h += a[p * a_step];
  g = sum_lanes(g), h = sum_lanes(h);
  if (lane == 0) slopes[2 * (u64)number] = g, slopes[2 * (u64)number + 1] = h;
}

// The slopes of rows: those of their tasks (n_long rows have several, which come first), and the implicit part weight (J phi)_q.
extern "C" __global__ void __launch_bounds__(256)
slopes_of_rows(int n_tasks, int n_pieces, int n_long, const int4 *__restrict__ tasks, const int *__restrict__ long_rows, const int *__restrict__ bounds,
               const double *__restrict__ slopes, const float *__restrict__ weight, int weight_step, const float *__restrict__ t, float J_qq, float *g, float *h) {
  int number = blockIdx.x * 256 + threadIdx.x;
  if (number >= n_tasks - n_pieces + n_long) return;
  int row, first, last;
  if (number < n_long)
    row = long_rows[number], first = bounds[number], last = bounds[number + 1];
  else
    first = n_pieces + number - n_long, last = first + 1, row = tasks[first].x;
  double total_g = 0.0, total_h = 0.0;
  for (int task = first; task < last; ++task) total_g += slopes[2 * (u64)task], total_h += slopes[2 * (u64)task + 1];
  double mu = weight[(u64)row * weight_step];
  g[row] = (float)(total_g + mu * t[row]), h[row] = (float)(total_h + mu * J_qq);
}

// The same where row c has the pair c and no other.
extern "C" __global__ void __launch_bounds__(256)
slopes_of_events(int n, const float *__restrict__ scores, const float *__restrict__ a, int a_step, const float *__restrict__ b, int b_step, const float *__restrict__ weight,
                 int weight_step, const float *__restrict__ t, float J_qq, float *g, float *h) {
  int c = blockIdx.x * 256 + threadIdx.x;
  if (c >= n) return;
  float its_a = a[(u64)c * a_step], mu = weight[(u64)c * weight_step];
  g[c] = its_a * scores[c] - b[(u64)c * b_step] + mu * t[c], h[c] = its_a + mu * J_qq;
}

// Sums of x g and x^2 h over the rows of pieces of levels.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
sum_slopes(int n_tasks, const int4 *__restrict__ tasks, const int *__restrict__ members, const float *__restrict__ x, int x_step, const float *__restrict__ g,
           const float *__restrict__ h, double *sums) {
  int lane = threadIdx.x & 31, number = blockIdx.x * WARPS + (threadIdx.x >> 5);
  if (number >= n_tasks) return;
  int4 task = tasks[number];
  double of_g = 0.0, of_h = 0.0;
  for (int p = task.y + lane; p < task.y + task.z; p += 32) {
    int row = members[p];
    double value = x[(u64)row * x_step];
    of_g += value * g[row], of_h += value * value * h[row];
  }
  of_g = sum_lanes(of_g), of_h = sum_lanes(of_h);
  if (lane == 0) sums[2 * (u64)number] = of_g, sums[2 * (u64)number + 1] = of_h;
}

// The weight of a level at its minimum, a warp each; level l has the pieces `bounds[l]` to `bounds[l + 1]`.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
step_weights(int n_levels, const int *__restrict__ bounds, const double *__restrict__ sums, const float *__restrict__ penalty, int penalty_step, float eta, float *w, float *delta) {
  int lane = threadIdx.x & 31, level = blockIdx.x * WARPS + (threadIdx.x >> 5);
  if (level >= n_levels) return;
  double g = 0.0, h = 0.0;
  for (int piece = bounds[level] + lane; piece < bounds[level + 1]; piece += 32) g += sums[2 * (u64)piece], h += sums[2 * (u64)piece + 1];
  g = sum_lanes(g), h = sum_lanes(h);
  if (lane != 0) return;
  double l2 = penalty[(u64)level * penalty_step], before = w[level];
  float after = h + l2 > 0.0 ? (float)(before - eta * (g + l2 * before) / (h + l2)) : 0.f;
  w[level] = after, delta[level] = (float)(after - before);
}

// The slopes of rows after their levels moved; `moved` adds up how far rows did.
extern "C" __global__ void __launch_bounds__(256)
follow_weights(int n, const int *__restrict__ codes, const float *__restrict__ x, int x_step, const float *__restrict__ delta, const float *__restrict__ h, float *g, float *moved) {
  int row = blockIdx.x * 256 + threadIdx.x;
  if (row >= n) return;
  float move = x[(u64)row * x_step] * delta[codes[row]];
  g[row] += h[row] * move, moved[row] += move;
}

// Scores of the pairs of rows that moved along a dimension which meets 1.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
shift_scores(int n_tasks, const int4 *__restrict__ tasks, const float *__restrict__ moved, float *scores) {
  int lane = threadIdx.x & 31, number = blockIdx.x * WARPS + (threadIdx.x >> 5);
  if (number >= n_tasks) return;
  int4 task = tasks[number];
  float move = moved[task.x];
  for (int p = task.y + lane; p < task.y + task.z; p += 32) scores[p] += move;
}

__device__ __forceinline__ void add_level(float4 &sum, const float *level, float value) {
  float4 w = load4(level);
  sum = make_float4(fmaf(value, w.x, sum.x), fmaf(value, w.y, sum.y), fmaf(value, w.z, sum.z), fmaf(value, w.w, sum.w));
}

// Vectors of rows: the sum of those of their levels in up to four fields, times x, added if `adding`. A thread has four dimensions of a row.
extern "C" __global__ void __launch_bounds__(256)
add_levels(int n, int stride, int adding, float *F, const int *__restrict__ codes0, const float *__restrict__ x0, int step0, const float *__restrict__ W0,
           const int *__restrict__ codes1, const float *__restrict__ x1, int step1, const float *__restrict__ W1, const int *__restrict__ codes2,
           const float *__restrict__ x2, int step2, const float *__restrict__ W2, const int *__restrict__ codes3, const float *__restrict__ x3, int step3,
           const float *__restrict__ W3, int n_fields) {
  u64 number = (u64)blockIdx.x * 256 + threadIdx.x, row = number / (stride / 4), part = number % (stride / 4);
  if (row >= n) return;
  float4 *at = (float4 *)(F + row * stride + 4 * part), sum = adding ? *at : make_float4(0.f, 0.f, 0.f, 0.f);
  add_level(sum, W0 + (u64)codes0[row] * stride + 4 * part, x0[row * step0]);
  if (n_fields > 1) add_level(sum, W1 + (u64)codes1[row] * stride + 4 * part, x1[row * step1]);
  if (n_fields > 2) add_level(sum, W2 + (u64)codes2[row] * stride + 4 * part, x2[row * step2]);
  if (n_fields > 3) add_level(sum, W3 + (u64)codes3[row] * stride + 4 * part, x3[row * step3]);
  *at = sum;
}

// The bias dimension of rows: what a field adds, the weight of the level less half of its squared length.
extern "C" __global__ void __launch_bounds__(256)
add_weights(int n, const int *__restrict__ codes, const float *__restrict__ x, int x_step, const float *__restrict__ w, const float *__restrict__ squares, double *bias) {
  int row = blockIdx.x * 256 + threadIdx.x;
  if (row >= n) return;
  double value = x[(u64)row * x_step];
  bias[row] += value * w[codes[row]] - 0.5 * value * value * squares[codes[row]];
}

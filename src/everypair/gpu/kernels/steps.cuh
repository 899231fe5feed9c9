// The coordinate steps on 32 dimensions of a vector, one after the other (Algorithm 2, inner loop).
#pragma once
#include "moments.cuh"

// What the steps on a vector take beside its moments. The implicit part of the loss has curvatures weight J; `product` is this lane's
// dimension of J w. A curvature of at most `tiny` times its summands is rounding, and so is its gradient: L2 alone counts then. A step
// that lowers the loss by less than `lost` is rounding, too (0 where L2 holds the vector).
struct Settings {
  float weight, penalty, eta, tiny, lost;
};

// Lane i has dimension i: its gradient of the explicit part and its weight w; returns how far w moves. `matrix` are the explicit
// curvatures in shared memory, `J` (32 x 32) those of the other side's Gram, which is read only if it is `coupled`: else it is
// diagonal, with `diagonal` in this dimension.
template <bool GUARDED>
__device__ __forceinline__ float step_along(float *matrix, float gradient, float w, float product, const Settings &set, const float *__restrict__ J, float diagonal,
                                            bool coupled, int lane) {
  float explicit_part = matrix[place(lane, lane)], implicit_part = set.weight * diagonal, h = explicit_part + implicit_part;
  bool lost = h <= set.tiny * (fabsf(explicit_part) + implicit_part);
  float curvature = (lost ? 0.f : h) + set.penalty, inverse = curvature > 0.f ? set.eta / curvature : 0.f;
  float slope = (lost ? 0.f : gradient + set.weight * product) + set.penalty * w;
  float step = curvature > 0.f ? -slope * inverse : -w;  // as far as it is known
  if (lost) inverse = 0.f;                               // the moves of others do not reach it
  float least = GUARDED && curvature > 0.f ? sqrtf(set.lost / curvature) : -1.f;
  if (coupled) {
#pragma unroll
    for (int j = 0; j < PANEL; ++j) matrix[place(j, lane)] += set.weight * __ldg(J + j * PANEL + lane);
  }
#pragma unroll
  for (int j = 0; j < PANEL - 1; ++j) {
    float effect = lane > j ? -inverse * matrix[place(j, lane)] : 0.f;
    float taken = GUARDED && fabsf(step) < least ? 0.f : step;
    step = fmaf(effect, __shfl_sync(ALL, taken, j), step);
  }
  return GUARDED && fabsf(step) < least ? 0.f : step;
}

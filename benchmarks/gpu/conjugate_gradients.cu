// Alternating least squares by conjugate gradients, in the shape of a well-known solver for GPUs: a block of K threads takes a row, thread f
// has dimension f, and a product with a vector is a sum over the block. For one weight of all observed pairs.

__device__ float inner(float x, float y, float *warps) {
  float sum = x * y;
  for (int step = 16; step; step >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, step);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < K / 32 ? warps[threadIdx.x] : 0.f;
    for (int step = 16; step; step >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (threadIdx.x == 0) warps[0] = sum;
  }
  __syncthreads();
  return warps[0];
}

extern "C" __global__ void __launch_bounds__(K)
solve_rows(int n_rows, const int *__restrict__ indptr, const int *__restrict__ indices, float a, float b, const float *__restrict__ psi, const float *__restrict__ J,
           float alpha0, const float *__restrict__ penalty, float *W, int n_steps) {
  __shared__ float direction[K], warps[32];
  int f = threadIdx.x;
  for (int row = blockIdx.x; row < n_rows; row += gridDim.x) {
    int first = indptr[row], last = indptr[row + 1];
    float l2 = penalty[row], x = W[(size_t)row * K + f], residual = -l2 * x;
    __syncthreads();
    direction[f] = x;
    __syncthreads();
    for (int j = 0; j < K; ++j) residual -= alpha0 * direction[j] * J[j * K + f];
    for (int p = first; p < last; ++p) {
      float y = psi[(size_t)indices[p] * K + f];
      residual += (b - a * inner(y, x, warps)) * y;
    }
    float along = residual, size = inner(residual, residual, warps);
    __syncthreads();
    direction[f] = along;
    __syncthreads();
    for (int step = 0; step < n_steps && size > 1e-20f; ++step) {
      float product = l2 * along;
      for (int j = 0; j < K; ++j) product += alpha0 * direction[j] * J[j * K + f];
      for (int p = first; p < last; ++p) {
        float y = psi[(size_t)indices[p] * K + f];
        product += a * inner(y, along, warps) * y;
      }
      float length = size / inner(along, product, warps);
      x += length * along;
      residual -= length * product;
      float now = inner(residual, residual, warps);
      along = residual + now / size * along;
      size = now;
      __syncthreads();
      direction[f] = along;
      __syncthreads();
    }
    W[(size_t)row * K + f] = x;
  }
}

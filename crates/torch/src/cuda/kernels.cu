// Fused kernels for bf16 activations: RMSNorm, rotary embedding, SwiGLU, and the rows of the head.
//
// Compiled at run time by NVRTC (cuda.rs) for the device at hand; no header is needed, so no CUDA toolkit is either.
// Arithmetic is float32, one rounding at the end. Rows are contiguous; launch shapes are in cuda.rs.
// Each kernel is judged against torch operations on the device by tests/cuda.rs.

typedef unsigned short bf16;
// Two neighbours, moved as one word: a warp then moves 128 bytes at a time.
typedef unsigned int bf16x2;
typedef long long i64;

__device__ __forceinline__ float low(bf16x2 x) { return __uint_as_float(x << 16); }
__device__ __forceinline__ float high(bf16x2 x) { return __uint_as_float(x & 0xffff0000u); }

__device__ __forceinline__ bf16 narrow(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ bf16x2 narrow2(float low, float high) {
  bf16x2 y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

// The sum over a block of at most 1024 threads, known to all of them.
__device__ __forceinline__ float block_sum(float x, float* shared) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
  x = warp_sum(x);
  __syncthreads();
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  x = lane < warps ? shared[lane] : 0.0f;
  return warp_sum(x);
}

// Some kernels are launched so that they may begin while the one before ends (launch.rs): what others have written is not
// touched before this.
__device__ __forceinline__ void after_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// One block per row of d2 pairs.
extern "C" __global__ void norm_forward(
    const bf16x2* __restrict__ x, const bf16x2* __restrict__ w, bf16x2* __restrict__ y, float* __restrict__ scale, int d2,
    float epsilon) {
  __shared__ float shared[32];
  after_previous();
  const i64 row = blockIdx.x;
  const bf16x2* in = x + row * d2;
  float square = 0.0f;
  for (int i = threadIdx.x; i < d2; i += blockDim.x) {
    const bf16x2 v = in[i];
    square += low(v) * low(v) + high(v) * high(v);
  }
  const float s = rsqrtf(block_sum(square, shared) / (2 * d2) + epsilon);
  if (threadIdx.x == 0) scale[row] = s;
  bf16x2* out = y + row * d2;
  for (int i = threadIdx.x; i < d2; i += blockDim.x) {
    const bf16x2 v = in[i], u = w[i];
    out[i] = narrow2(low(v) * s * low(u), high(v) * s * high(u));
  }
}

// One block per row: the sum rounded to bf16, and the norm of what was rounded.
extern "C" __global__ void add_norm(
    const bf16x2* __restrict__ x, const bf16x2* __restrict__ y, const bf16x2* __restrict__ w, bf16x2* __restrict__ sum,
    bf16x2* __restrict__ normed, int d2, float epsilon) {
  __shared__ float shared[32];
  after_previous();
  const i64 from = (i64)blockIdx.x * d2;
  float square = 0.0f;
  for (int i = threadIdx.x; i < d2; i += blockDim.x) {
    const bf16x2 a = x[from + i], b = y[from + i], v = narrow2(low(a) + low(b), high(a) + high(b));
    sum[from + i] = v;
    square += low(v) * low(v) + high(v) * high(v);
  }
  const float s = rsqrtf(block_sum(square, shared) / (2 * d2) + epsilon);
  for (int i = threadIdx.x; i < d2; i += blockDim.x) {
    const bf16x2 v = sum[from + i], u = w[i];
    normed[from + i] = narrow2(low(v) * s * low(u), high(v) * s * high(u));
  }
}

// The same for rows of d8 <= PIECES * blockDim.x pieces of 16 bytes, which stay in registers between the sum and the norm.
#define PIECES 4

extern "C" __global__ void __launch_bounds__(128) add_norm_wide(
    const uint4* __restrict__ x, const uint4* __restrict__ y, const uint4* __restrict__ w, uint4* __restrict__ sum,
    uint4* __restrict__ normed, int d8, float epsilon) {
  __shared__ float shared[32];
  const i64 from = (i64)blockIdx.x * d8;
  uint4 kept[PIECES], weight[PIECES];
  // Weights are older than the kernel before.
#pragma unroll
  for (int k = 0; k < PIECES; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i < d8) weight[k] = w[i];
  }
  after_previous();
  float square = 0.0f;
#pragma unroll
  for (int k = 0; k < PIECES; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i >= d8) break;
    kept[k] = x[from + i];
    const uint4 other = y[from + i];
    bf16x2* a = reinterpret_cast<bf16x2*>(&kept[k]);
    const bf16x2* b = reinterpret_cast<const bf16x2*>(&other);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      a[j] = narrow2(low(a[j]) + low(b[j]), high(a[j]) + high(b[j]));
      square += low(a[j]) * low(a[j]) + high(a[j]) * high(a[j]);
    }
    sum[from + i] = kept[k];
  }
  const float s = rsqrtf(block_sum(square, shared) / (8 * d8) + epsilon);
#pragma unroll
  for (int k = 0; k < PIECES; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i >= d8) break;
    bf16x2* a = reinterpret_cast<bf16x2*>(&kept[k]);
    const bf16x2* u = reinterpret_cast<const bf16x2*>(&weight[k]);
#pragma unroll
    for (int j = 0; j < 4; ++j) a[j] = narrow2(low(a[j]) * s * low(u[j]), high(a[j]) * s * high(u[j]));
    normed[from + i] = kept[k];
  }
}

// Blocks stride over rows; each leaves one row of partial weight gradients, summed afterwards. dw: [gridDim.x, 2 d2].
// Shared memory: d2 float2, one column pair each; a column belongs to one thread, so nobody waits for it.
extern "C" __global__ void norm_backward(
    const bf16x2* __restrict__ g, const bf16x2* __restrict__ x, const bf16x2* __restrict__ w, const float* __restrict__ scale,
    bf16x2* __restrict__ dx, float2* __restrict__ dw, i64 rows, int d2) {
  __shared__ float shared[32];
  extern __shared__ float2 partial[];
  for (int i = threadIdx.x; i < d2; i += blockDim.x) partial[i] = make_float2(0.0f, 0.0f);
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const bf16x2* in = x + row * d2;
    const bf16x2* grad = g + row * d2;
    const float s = scale[row];
    float dot = 0.0f;
    for (int i = threadIdx.x; i < d2; i += blockDim.x) {
      const bf16x2 gi = grad[i], wi = w[i], xi = in[i];
      dot += low(gi) * low(wi) * low(xi) + high(gi) * high(wi) * high(xi);
    }
    const float c = block_sum(dot, shared) * s * s * s / (2 * d2);
    bf16x2* out = dx + row * d2;
    for (int i = threadIdx.x; i < d2; i += blockDim.x) {
      const bf16x2 gi = grad[i], wi = w[i], xi = in[i];
      out[i] = narrow2(low(gi) * low(wi) * s - low(xi) * c, high(gi) * high(wi) * s - high(xi) * c);
      partial[i].x += low(gi) * low(xi) * s;
      partial[i].y += high(gi) * high(xi) * s;
    }
  }
  for (int i = threadIdx.x; i < d2; i += blockDim.x) dw[(i64)blockIdx.x * d2 + i] = partial[i];
}

// One block per token; heads beyond `rotated` are copied. A head has 4 * quarter numbers: 2 * quarter pairs.
extern "C" __global__ void rotate(
    const bf16x2* __restrict__ x, const float2* __restrict__ cosine, const float2* __restrict__ sine, bf16x2* __restrict__ y,
    int heads, int rotated, int quarter, float direction) {
  const i64 row = blockIdx.x;
  const bf16x2* in = x + row * heads * 2 * quarter;
  bf16x2* out = y + row * heads * 2 * quarter;
  for (int i = threadIdx.x; i < heads * quarter; i += blockDim.x) {
    const int head = i / quarter, at = i % quarter, a = head * 2 * quarter + at, b = a + quarter;
    const bf16x2 u = in[a], v = in[b];
    if (head < rotated) {
      const float2 c = cosine[row * quarter + at];
      float2 s = sine[row * quarter + at];
      s.x *= direction;
      s.y *= direction;
      out[a] = narrow2(low(u) * c.x - low(v) * s.x, high(u) * c.y - high(v) * s.y);
      out[b] = narrow2(low(v) * c.x + low(u) * s.x, high(v) * c.y + high(u) * s.y);
    } else {
      out[a] = u;
      out[b] = v;
    }
  }
}

__device__ __forceinline__ float silu(float x) { return x / (1.0f + __expf(-x)); }

// One block per row; x: [rows, 2 f2] pairs, y: [rows, f2] pairs.
extern "C" __global__ void gate_forward(const bf16x2* __restrict__ x, bf16x2* __restrict__ y, int f2) {
  after_previous();
  const i64 row = blockIdx.x;
  const bf16x2* in = x + row * 2 * f2;
  for (int i = threadIdx.x; i < f2; i += blockDim.x) {
    const bf16x2 gate = in[i], up = in[i + f2];
    y[row * f2 + i] = narrow2(silu(low(gate)) * low(up), silu(high(gate)) * high(up));
  }
}

// The same for rows of f8 pieces of 16 bytes: one thread per piece of y.
extern "C" __global__ void __launch_bounds__(256) gate_forward_wide(
    const uint4* __restrict__ x, uint4* __restrict__ y, unsigned f8, unsigned pieces) {
  after_previous();
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= pieces) return;
  const i64 row = at / f8;
  const uint4* in = x + row * 2 * f8 + at % f8;
  uint4 gate = in[0];
  const uint4 up = in[f8];
  bf16x2* a = reinterpret_cast<bf16x2*>(&gate);
  const bf16x2* b = reinterpret_cast<const bf16x2*>(&up);
#pragma unroll
  for (int j = 0; j < 4; ++j) a[j] = narrow2(silu(low(a[j])) * low(b[j]), silu(high(a[j])) * high(b[j]));
  y[at] = gate;
}

__device__ __forceinline__ float silu_slope(float x) {
  const float sigma = 1.0f / (1.0f + __expf(-x));
  return sigma * (1.0f + x * (1.0f - sigma));
}

extern "C" __global__ void gate_backward(
    const bf16x2* __restrict__ g, const bf16x2* __restrict__ x, bf16x2* __restrict__ dx, int f2) {
  const i64 row = blockIdx.x;
  const bf16x2* in = x + row * 2 * f2;
  bf16x2* out = dx + row * 2 * f2;
  for (int i = threadIdx.x; i < f2; i += blockDim.x) {
    const bf16x2 gate = in[i], up = in[i + f2], grad = g[row * f2 + i];
    out[i] = narrow2(
        low(grad) * low(up) * silu_slope(low(gate)), high(grad) * high(up) * silu_slope(high(gate)));
    out[i + f2] = narrow2(low(grad) * silu(low(gate)), high(grad) * silu(high(gate)));
  }
}

// A running maximum with the sums below it: s = sum e^(x - m), t = sum e^(x - m) (x - m).
struct Running {
  float m, s, t;
};

__device__ __forceinline__ Running joined(Running a, Running b) {
  if (b.s == 0.0f) return a;
  if (a.s == 0.0f) return b;
  const float m = fmaxf(a.m, b.m), da = a.m - m, db = b.m - m, ea = expf(da), eb = expf(db);
  return {m, a.s * ea + b.s * eb, ea * (a.t + da * a.s) + eb * (b.t + db * b.s)};
}

// One block per row of float32 logits, read once.
extern "C" __global__ void head_forward(
    const float* __restrict__ logits, const i64* __restrict__ targets, float* __restrict__ logprob, float* __restrict__ entropy,
    float* __restrict__ lse, int v, float inverse_temperature) {
  __shared__ Running shared[32];
  const i64 row = blockIdx.x;
  const float* in = logits + row * v;
  Running mine = {0.0f, 0.0f, 0.0f};
  for (int i = threadIdx.x; i < v; i += blockDim.x) {
    const float x = in[i] * inverse_temperature;
    if (mine.s == 0.0f) {
      mine = {x, 1.0f, 0.0f};
    } else if (x <= mine.m) {
      const float shifted = x - mine.m, e = expf(shifted);
      mine.s += e;
      mine.t += e * shifted;
    } else {
      const float delta = mine.m - x, e = expf(delta);
      mine.t = e * (mine.t + delta * mine.s);
      mine.s = mine.s * e + 1.0f;
      mine.m = x;
    }
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    const Running other = {
        __shfl_xor_sync(0xffffffffu, mine.m, offset), __shfl_xor_sync(0xffffffffu, mine.s, offset),
        __shfl_xor_sync(0xffffffffu, mine.t, offset)};
    mine = joined(mine, other);
  }
  if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < (blockDim.x + 31) / 32; ++warp) mine = joined(mine, shared[warp]);
  const float log_sum = logf(mine.s), total = mine.m + log_sum;
  lse[row] = total;
  entropy[row] = log_sum - mine.t / mine.s;
  logprob[row] = in[targets[row]] * inverse_temperature - total;
}

__device__ __forceinline__ float head_slope(
    float logit, float inverse_temperature, float shift, float h, float gl, float ge, bool hit) {
  const float logp = logit * inverse_temperature - shift;
  return (hit ? gl : 0.0f) - expf(logp) * (gl + ge * (logp + h));
}

// The gradient of a row of logits, as bf16 for the products that follow. d_entropy may be null.
extern "C" __global__ void head_backward(
    const float* __restrict__ logits, const i64* __restrict__ targets, const float* __restrict__ lse,
    const float* __restrict__ entropy, const float* __restrict__ d_logprob, const float* __restrict__ d_entropy,
    bf16* __restrict__ out, int v, float inverse_temperature) {
  const i64 row = blockIdx.x;
  const float shift = lse[row], h = entropy[row], gl = d_logprob[row] * inverse_temperature;
  const float ge = d_entropy == nullptr ? 0.0f : d_entropy[row] * inverse_temperature;
  const i64 target = targets[row];
  for (int i = threadIdx.x; i < v; i += blockDim.x)
    out[row * v + i] = narrow(head_slope(logits[row * v + i], inverse_temperature, shift, h, gl, ge, i == target));
}

// The same in float32, over the logits.
extern "C" __global__ void head_backward_wide(
    float* __restrict__ logits, const i64* __restrict__ targets, const float* __restrict__ lse, const float* __restrict__ entropy,
    const float* __restrict__ d_logprob, const float* __restrict__ d_entropy, int v, float inverse_temperature) {
  const i64 row = blockIdx.x;
  const float shift = lse[row], h = entropy[row], gl = d_logprob[row] * inverse_temperature;
  const float ge = d_entropy == nullptr ? 0.0f : d_entropy[row] * inverse_temperature;
  const i64 target = targets[row];
  for (int i = threadIdx.x; i < v; i += blockDim.x)
    logits[row * v + i] = head_slope(logits[row * v + i], inverse_temperature, shift, h, gl, ge, i == target);
}

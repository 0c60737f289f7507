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

// One block per row: the sum rounded to bf16, and the norm of what was rounded. `scale` may be null.
extern "C" __global__ void add_norm(
    const bf16x2* __restrict__ x, const bf16x2* __restrict__ y, const bf16x2* __restrict__ w, bf16x2* __restrict__ sum,
    bf16x2* __restrict__ normed, float* __restrict__ scale, int d2, float epsilon) {
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
  if (scale != nullptr && threadIdx.x == 0) scale[blockIdx.x] = s;
  for (int i = threadIdx.x; i < d2; i += blockDim.x) {
    const bf16x2 v = sum[from + i], u = w[i];
    normed[from + i] = narrow2(low(v) * s * low(u), high(v) * s * high(u));
  }
}

// The same for rows of d8 <= PIECES * blockDim.x pieces of 16 bytes, which stay in registers between the sum and the norm.
#define PIECES 4

extern "C" __global__ void __launch_bounds__(128) add_norm_wide(
    const uint4* __restrict__ x, const uint4* __restrict__ y, const uint4* __restrict__ w, uint4* __restrict__ sum,
    uint4* __restrict__ normed, float* __restrict__ scale, int d8, float epsilon) {
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
  uint4 other[PIECES];
  // All loads before the first use.
#pragma unroll
  for (int k = 0; k < PIECES; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i >= d8) continue;
    kept[k] = x[from + i];
    other[k] = y[from + i];
  }
  float square = 0.0f;
#pragma unroll
  for (int k = 0; k < PIECES; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i >= d8) continue;
    bf16x2* a = reinterpret_cast<bf16x2*>(&kept[k]);
    const bf16x2* b = reinterpret_cast<const bf16x2*>(&other[k]);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      a[j] = narrow2(low(a[j]) + low(b[j]), high(a[j]) + high(b[j]));
      square += low(a[j]) * low(a[j]) + high(a[j]) * high(a[j]);
    }
    sum[from + i] = kept[k];
  }
  const float s = rsqrtf(block_sum(square, shared) / (8 * d8) + epsilon);
  if (scale != nullptr && threadIdx.x == 0) scale[blockIdx.x] = s;
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
// `rest`, which may be null, is the gradient that reaches x beside the norm: it is added before the one rounding.
// Shared memory: d2 float2, one column pair each; a column belongs to one thread, so nobody waits for it.
extern "C" __global__ void norm_backward(
    const bf16x2* __restrict__ g, const bf16x2* __restrict__ x, const bf16x2* __restrict__ w, const float* __restrict__ scale,
    const bf16x2* __restrict__ rest, bf16x2* __restrict__ dx, float2* __restrict__ dw, i64 rows, int d2) {
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
      const bf16x2 gi = grad[i], wi = w[i], xi = in[i], ri = rest == nullptr ? 0u : rest[row * d2 + i];
      out[i] = narrow2(
          low(gi) * low(wi) * s - low(xi) * c + low(ri), high(gi) * high(wi) * s - high(xi) * c + high(ri));
      partial[i].x += low(gi) * low(xi) * s;
      partial[i].y += high(gi) * high(xi) * s;
    }
  }
  for (int i = threadIdx.x; i < d2; i += blockDim.x) dw[(i64)blockIdx.x * d2 + i] = partial[i];
}

// The same for rows of d8 <= PIECES * T pieces of 16 bytes, T threads a row, read once and kept in registers. A block of 128
// threads has 128 / T rows at a time; where that is more than one, its weight gradients meet in shared memory, 8 d8 floats.
template <int T>
__device__ __forceinline__ void norm_backward_rows(
    const uint4* __restrict__ g, const uint4* __restrict__ x, const uint4* __restrict__ w, const float* __restrict__ scale,
    const uint4* __restrict__ rest, uint4* __restrict__ dx, float* __restrict__ dw, i64 rows, int d8) {
  __shared__ float shared[32];
  extern __shared__ float met[];
  constexpr int GROUPS = 128 / T;
  const int lane = threadIdx.x % T, group = threadIdx.x / T;
  uint4 weight[PIECES];
  float sums[PIECES][8] = {};
#pragma unroll
  for (int k = 0; k < PIECES; ++k) {
    const int i = lane + k * T;
    weight[k] = i < d8 ? w[i] : make_uint4(0u, 0u, 0u, 0u);
  }
  for (i64 row = (i64)blockIdx.x * GROUPS + group; row < rows; row += (i64)gridDim.x * GROUPS) {
    const i64 from = row * d8;
    const float s = scale[row];
    const uint4 zero = make_uint4(0u, 0u, 0u, 0u);
    uint4 grad[PIECES], in[PIECES], beside[PIECES];
    // All loads before the first use: a warp waits for memory once a row.
#pragma unroll
    for (int k = 0; k < PIECES; ++k) {
      const int i = lane + k * T;
      grad[k] = i < d8 ? g[from + i] : zero;
      in[k] = i < d8 ? x[from + i] : zero;
      beside[k] = rest != nullptr && i < d8 ? rest[from + i] : zero;
    }
    float dot = 0.0f;
#pragma unroll
    for (int k = 0; k < PIECES; ++k) {
      const bf16x2 *a = reinterpret_cast<const bf16x2*>(&grad[k]), *b = reinterpret_cast<const bf16x2*>(&in[k]),
                   *u = reinterpret_cast<const bf16x2*>(&weight[k]);
#pragma unroll
      for (int j = 0; j < 4; ++j) dot += low(a[j]) * low(u[j]) * low(b[j]) + high(a[j]) * high(u[j]) * high(b[j]);
    }
    const float c = (T == 32 ? warp_sum(dot) : block_sum(dot, shared)) * s * s * s / (8 * d8);
#pragma unroll
    for (int k = 0; k < PIECES; ++k) {
      const int i = lane + k * T;
      if (i >= d8) break;
      const bf16x2 *a = reinterpret_cast<const bf16x2*>(&grad[k]), *b = reinterpret_cast<const bf16x2*>(&in[k]),
                   *u = reinterpret_cast<const bf16x2*>(&weight[k]), *r = reinterpret_cast<const bf16x2*>(&beside[k]);
      uint4 made;
      bf16x2* out = reinterpret_cast<bf16x2*>(&made);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        out[j] = narrow2(
            low(a[j]) * low(u[j]) * s - low(b[j]) * c + low(r[j]), high(a[j]) * high(u[j]) * s - high(b[j]) * c + high(r[j]));
        sums[k][2 * j] += low(a[j]) * low(b[j]) * s;
        sums[k][2 * j + 1] += high(a[j]) * high(b[j]) * s;
      }
      dx[from + i] = made;
    }
  }
  float* out = dw + (i64)blockIdx.x * 8 * d8;
  if (GROUPS > 1) {
    for (int i = threadIdx.x; i < 8 * d8; i += 128) met[i] = 0.0f;
    __syncthreads();
  }
#pragma unroll
  for (int k = 0; k < PIECES; ++k) {
    const int i = lane + k * T;
    if (i >= d8) break;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (GROUPS > 1) atomicAdd(met + 8 * i + j, sums[k][j]);
      else out[8 * i + j] = sums[k][j];
    }
  }
  if (GROUPS > 1) {
    __syncthreads();
    for (int i = threadIdx.x; i < 8 * d8; i += 128) out[i] = met[i];
  }
}

extern "C" __global__ void __launch_bounds__(128, 3) norm_backward_short(
    const uint4* __restrict__ g, const uint4* __restrict__ x, const uint4* __restrict__ w, const float* __restrict__ scale,
    const uint4* __restrict__ rest, uint4* __restrict__ dx, float* __restrict__ dw, i64 rows, int d8) {
  norm_backward_rows<32>(g, x, w, scale, rest, dx, dw, rows, d8);
}

extern "C" __global__ void __launch_bounds__(128, 3) norm_backward_long(
    const uint4* __restrict__ g, const uint4* __restrict__ x, const uint4* __restrict__ w, const float* __restrict__ scale,
    const uint4* __restrict__ rest, uint4* __restrict__ dx, float* __restrict__ dw, i64 rows, int d8) {
  norm_backward_rows<128>(g, x, w, scale, rest, dx, dw, rows, d8);
}

// One block per token; heads beyond `rotated` are copied. A head has 4 * quarter numbers: 2 * quarter pairs. y may be x.
extern "C" __global__ void rotate(
    const bf16x2* x, const float2* __restrict__ cosine, const float2* __restrict__ sine, bf16x2* y, int heads, int rotated,
    int quarter, float direction) {
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

// The way back for heads that lie apart: gradients of queries [n, heads], keys and values [n, kv_heads] into one row a token,
// queries and keys turned the other way.
extern "C" __global__ void rotate_back(
    const bf16x2* __restrict__ q, const bf16x2* __restrict__ k, const bf16x2* __restrict__ v, const float2* __restrict__ cosine,
    const float2* __restrict__ sine, bf16x2* __restrict__ y, int heads, int kv_heads, int quarter) {
  const i64 row = blockIdx.x;
  const int width = 2 * quarter, all = heads + 2 * kv_heads;
  bf16x2* out = y + row * all * width;
  for (int i = threadIdx.x; i < all * quarter; i += blockDim.x) {
    const int head = i / quarter, at = i % quarter, a = head * width + at, b = a + quarter;
    const bf16x2* in = head < heads              ? q + (row * heads + head) * width
                       : head < heads + kv_heads ? k + (row * kv_heads + head - heads) * width
                                                 : v + (row * kv_heads + head - heads - kv_heads) * width;
    const bf16x2 p = in[at], r = in[at + quarter];
    if (head < heads + kv_heads) {
      const float2 c = cosine[row * quarter + at], s = sine[row * quarter + at];
      out[a] = narrow2(low(p) * c.x + low(r) * s.x, high(p) * c.y + high(r) * s.y);
      out[b] = narrow2(low(r) * c.x - low(p) * s.x, high(r) * c.y - high(p) * s.y);
    } else {
      out[a] = p;
      out[b] = r;
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

// The same, 16 bytes at a time; pieces: rows * f8.
extern "C" __global__ void gate_backward_wide(
    const uint4* __restrict__ g, const uint4* __restrict__ x, uint4* __restrict__ dx, int f8, int pieces) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= pieces) return;
  const i64 at = (i64)(i / f8) * 2 * f8 + i % f8;
  const uint4 gate4 = x[at], up4 = x[at + f8], grad4 = g[i];
  const bf16x2 *gate = reinterpret_cast<const bf16x2*>(&gate4), *up = reinterpret_cast<const bf16x2*>(&up4),
               *grad = reinterpret_cast<const bf16x2*>(&grad4);
  uint4 d_gate, d_up;
  bf16x2 *a = reinterpret_cast<bf16x2*>(&d_gate), *b = reinterpret_cast<bf16x2*>(&d_up);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    a[j] = narrow2(
        low(grad[j]) * low(up[j]) * silu_slope(low(gate[j])), high(grad[j]) * high(up[j]) * silu_slope(high(gate[j])));
    b[j] = narrow2(low(grad[j]) * silu(low(gate[j])), high(grad[j]) * silu(high(gate[j])));
  }
  dx[at] = d_gate;
  dx[at + f8] = d_up;
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

__device__ __forceinline__ void take(Running& mine, float x) {
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

// Eight at a time: the maximum moves at most once for all of them.
__device__ __forceinline__ void take8(Running& mine, const float* x, float inverse_temperature) {
  float m = x[0];
#pragma unroll
  for (int j = 1; j < 8; ++j) m = fmaxf(m, x[j]);
  m *= inverse_temperature;
  if (mine.s == 0.0f) {
    mine.m = m;
  } else if (m > mine.m) {
    const float delta = mine.m - m, e = expf(delta);
    mine.t = e * (mine.t + delta * mine.s);
    mine.s *= e;
    mine.m = m;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float shifted = x[j] * inverse_temperature - mine.m, e = expf(shifted);
    mine.s += e;
    mine.t += e * shifted;
  }
}

// One block per row of float32 logits, read once; 32 bytes at a time where rows begin on 16 bytes.
extern "C" __global__ void __launch_bounds__(1024) head_forward(
    const float* __restrict__ logits, const i64* __restrict__ targets, float* __restrict__ logprob, float* __restrict__ entropy,
    float* __restrict__ lse, int v, float inverse_temperature) {
  __shared__ Running shared[32];
  const i64 row = blockIdx.x;
  const float* in = logits + row * v;
  Running mine = {0.0f, 0.0f, 0.0f};
  int done = 0;
  if (v % 4 == 0) {
    done = v / 8 * 8;
    for (int i = 8 * threadIdx.x; i < done; i += 8 * blockDim.x) {
      const float4 a = *reinterpret_cast<const float4*>(in + i), b = *reinterpret_cast<const float4*>(in + i + 4);
      const float x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
      take8(mine, x, inverse_temperature);
    }
  }
  for (int i = done + threadIdx.x; i < v; i += blockDim.x) take(mine, in[i] * inverse_temperature);
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
extern "C" __global__ void __launch_bounds__(1024) head_backward(
    const float* __restrict__ logits, const i64* __restrict__ targets, const float* __restrict__ lse,
    const float* __restrict__ entropy, const float* __restrict__ d_logprob, const float* __restrict__ d_entropy,
    bf16* __restrict__ out, int v, float inverse_temperature) {
  const i64 row = blockIdx.x;
  const float shift = lse[row], h = entropy[row], gl = d_logprob[row] * inverse_temperature;
  const float ge = d_entropy == nullptr ? 0.0f : d_entropy[row] * inverse_temperature;
  const int target = (int)targets[row];
  const float* in = logits + row * v;
  bf16* to = out + row * v;
  int done = 0;
  if (v % 8 == 0) {
    done = v;
    for (int i = 8 * threadIdx.x; i < v; i += 8 * blockDim.x) {
      const float4 a = *reinterpret_cast<const float4*>(in + i), b = *reinterpret_cast<const float4*>(in + i + 4);
      const float x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
      float y[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) y[j] = head_slope(x[j], inverse_temperature, shift, h, gl, ge, i + j == target);
      *reinterpret_cast<uint4*>(to + i) =
          make_uint4(narrow2(y[0], y[1]), narrow2(y[2], y[3]), narrow2(y[4], y[5]), narrow2(y[6], y[7]));
    }
  }
  for (int i = done + threadIdx.x; i < v; i += blockDim.x)
    to[i] = narrow(head_slope(in[i], inverse_temperature, shift, h, gl, ge, i == target));
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


// AdamW over many tensors in one launch: each number's gradient, moments and master are read once and written once, and the
// rounded copy that the network computes with along with them. Appended to kernels.cu (launch.rs), whose types it uses.
// Judged against plain numbers by model/tests/cuda.rs.

// Numbers of one block; a multiple of 8, so that alignment is the tensor's.
#define PORTION 16384

typedef unsigned long long u64;

// One tensor. `start`: place of its first number among all, which is where its noise comes from.
struct Piece {
  const void* grad;
  void* first;
  void* second;
  float* master;
  bf16* rounded;  // null: no copy
  i64 start, length, first_block;
};

// What one step has in common for all numbers; written on the device, where the norm is.
struct AdamStep {
  float scale, step_size, inverse_root, beta1, rest1, beta2, rest2, decay, epsilon;
  unsigned skip;
  u64 key;
};

__device__ __forceinline__ Piece piece_of(const Piece* __restrict__ pieces, int count, i64 block) {
  int from = 0, to = count - 1;
  while (from < to) {
    const int middle = (from + to + 1) / 2;
    if (pieces[middle].first_block <= block) from = middle;
    else to = middle - 1;
  }
  return pieces[from];
}

__device__ __forceinline__ float widened(float x) { return x; }
__device__ __forceinline__ float widened(bf16 x) { return __uint_as_float((unsigned)x << 16); }

// Eight neighbours at a 16-byte boundary.
__device__ __forceinline__ void load8(const float* p, float* x) {
  const float4 a = reinterpret_cast<const float4*>(p)[0], b = reinterpret_cast<const float4*>(p)[1];
  x[0] = a.x; x[1] = a.y; x[2] = a.z; x[3] = a.w;
  x[4] = b.x; x[5] = b.y; x[6] = b.z; x[7] = b.w;
}

__device__ __forceinline__ void load8(const bf16* p, float* x) {
  const uint4 a = *reinterpret_cast<const uint4*>(p);
  x[0] = low(a.x); x[1] = high(a.x); x[2] = low(a.y); x[3] = high(a.y);
  x[4] = low(a.z); x[5] = high(a.z); x[6] = low(a.w); x[7] = high(a.w);
}

__device__ __forceinline__ void store8(float* p, const float* x) {
  reinterpret_cast<float4*>(p)[0] = make_float4(x[0], x[1], x[2], x[3]);
  reinterpret_cast<float4*>(p)[1] = make_float4(x[4], x[5], x[6], x[7]);
}

__device__ __forceinline__ void store8_nearest(bf16* p, const float* x) {
  *reinterpret_cast<uint4*>(p) =
      make_uint4(narrow2(x[0], x[1]), narrow2(x[2], x[3]), narrow2(x[4], x[5]), narrow2(x[6], x[7]));
}

// SplitMix64's number of a place: 16 bits for each moment.
__device__ __forceinline__ u64 mixed(u64 z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

__device__ __forceinline__ unsigned noise(u64 key, i64 place) {
  return (unsigned)mixed(key + (u64)(place + 1) * 0x9e3779b97f4a7c15ull);
}

// Up with the probability of the share that is cut off: right in the mean.
__device__ __forceinline__ bf16 by_chance(float x, unsigned bits) {
  return (bf16)((__float_as_uint(x) + (bits & 0xffffu)) >> 16);
}

__device__ __forceinline__ void keep(float* first, float* second, float m, float v, u64, i64) {
  *first = m;
  *second = v;
}

__device__ __forceinline__ void keep(bf16* first, bf16* second, float m, float v, u64 key, i64 place) {
  const unsigned bits = noise(key, place);
  *first = by_chance(m, bits);
  *second = by_chance(v, bits >> 16);
}

__device__ __forceinline__ void keep8(float* first, float* second, const float* m, const float* v, u64, i64) {
  store8(first, m);
  store8(second, v);
}

__device__ __forceinline__ void keep8(bf16* first, bf16* second, const float* m, const float* v, u64 key, i64 place) {
  unsigned a[4], b[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const unsigned even = noise(key, place + 2 * j), odd = noise(key, place + 2 * j + 1);
    a[j] = by_chance(m[2 * j], even) | (unsigned)by_chance(m[2 * j + 1], odd) << 16;
    b[j] = by_chance(v[2 * j], even >> 16) | (unsigned)by_chance(v[2 * j + 1], odd >> 16) << 16;
  }
  *reinterpret_cast<uint4*>(first) = make_uint4(a[0], a[1], a[2], a[3]);
  *reinterpret_cast<uint4*>(second) = make_uint4(b[0], b[1], b[2], b[3]);
}

__device__ __forceinline__ void adam_number(float g, float& m, float& v, float& p, const AdamStep& s) {
  g *= s.scale;
  m = s.beta1 * m + s.rest1 * g;
  v = s.beta2 * v + s.rest2 * g * g;
  p -= s.decay * p;
  p -= s.step_size * m / (sqrtf(v) * s.inverse_root + s.epsilon);
}

template <typename G, typename M>
__device__ __forceinline__ void adamw(const Piece* __restrict__ pieces, int count, const AdamStep* __restrict__ settings) {
  const AdamStep s = *settings;
  if (s.skip != 0) return;
  const Piece piece = piece_of(pieces, count, blockIdx.x);
  const G* grad = static_cast<const G*>(piece.grad);
  M* first = static_cast<M*>(piece.first);
  M* second = static_cast<M*>(piece.second);
  float* master = piece.master;
  bf16* rounded = piece.rounded;
  const i64 from = (blockIdx.x - piece.first_block) * PORTION;
  const i64 to = piece.length - from < PORTION ? piece.length : from + PORTION;
  const u64 places = (u64)grad | (u64)first | (u64)second | (u64)master | (u64)rounded;
  const i64 wide = (places & 15) == 0 ? from + (to - from) / 8 * 8 : from;
  for (i64 i = from + 8 * threadIdx.x; i < wide; i += 8 * blockDim.x) {
    float g[8], m[8], v[8], p[8];
    load8(grad + i, g);
    load8(first + i, m);
    load8(second + i, v);
    load8(master + i, p);
#pragma unroll
    for (int j = 0; j < 8; ++j) adam_number(g[j], m[j], v[j], p[j], s);
    keep8(first + i, second + i, m, v, s.key, piece.start + i);
    store8(master + i, p);
    if (rounded != nullptr) store8_nearest(rounded + i, p);
  }
  for (i64 i = wide + threadIdx.x; i < to; i += blockDim.x) {
    float m = widened(first[i]), v = widened(second[i]), p = master[i];
    adam_number(widened(grad[i]), m, v, p, s);
    keep(first + i, second + i, m, v, s.key, piece.start + i);
    master[i] = p;
    if (rounded != nullptr) rounded[i] = narrow(p);
  }
}

// Named by the kinds of gradients and moments.
#define ADAMW(name, G, M)                                                                                   \
  extern "C" __global__ void __launch_bounds__(256) name(                                                    \
      const Piece* __restrict__ pieces, int count, const AdamStep* __restrict__ settings) {                  \
    adamw<G, M>(pieces, count, settings);                                                                    \
  }
ADAMW(adamw_float_float, float, float)
ADAMW(adamw_float_bf16, float, bf16)
ADAMW(adamw_bf16_float, bf16, float)
ADAMW(adamw_bf16_bf16, bf16, bf16)

// The sum over a block of 256 threads, known to the first.
__device__ __forceinline__ double block_sum_wide(double x, double* shared) {
  shared[threadIdx.x] = x;
  for (int half = 128; half > 0; half >>= 1) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  return shared[0];
}

// Blocks stride over portions; each leaves one sum of squares. The number of blocks is fixed, and so is the sum's order.
template <typename G>
__device__ __forceinline__ void squares(const Piece* __restrict__ pieces, int count, i64 blocks, double* __restrict__ sums) {
  __shared__ double shared[256];
  double sum = 0.0;
  for (i64 block = blockIdx.x; block < blocks; block += gridDim.x) {
    const Piece piece = piece_of(pieces, count, block);
    const G* grad = static_cast<const G*>(piece.grad);
    const i64 from = (block - piece.first_block) * PORTION;
    const i64 to = piece.length - from < PORTION ? piece.length : from + PORTION;
    const i64 wide = ((u64)grad & 15) == 0 ? from + (to - from) / 8 * 8 : from;
    // At most PORTION / 256 numbers of a thread: float32 holds their sum.
    float square = 0.0f;
    for (i64 i = from + 8 * threadIdx.x; i < wide; i += 8 * blockDim.x) {
      float g[8];
      load8(grad + i, g);
#pragma unroll
      for (int j = 0; j < 8; ++j) square += g[j] * g[j];
    }
    for (i64 i = wide + threadIdx.x; i < to; i += blockDim.x) square += widened(grad[i]) * widened(grad[i]);
    sum += square;
  }
  sum = block_sum_wide(sum, shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(256) squares_float(
    const Piece* __restrict__ pieces, int count, i64 blocks, double* __restrict__ sums) {
  squares<float>(pieces, count, blocks, sums);
}

extern "C" __global__ void __launch_bounds__(256) squares_bf16(
    const Piece* __restrict__ pieces, int count, i64 blocks, double* __restrict__ sums) {
  squares<bf16>(pieces, count, blocks, sums);
}

// One block of 256. The norm is the root of `sums`, or the one that is `given`; where it is finite, steps are counted up.
extern "C" __global__ void adamw_begin(
    const double* __restrict__ sums, int sum_count, const float* __restrict__ given, float* __restrict__ norm_out,
    float* __restrict__ steps, int step_count, AdamStep* __restrict__ out, double lr, double beta1, double beta2,
    double weight_decay, double epsilon, double largest, i64 seed) {
  __shared__ double shared[256];
  __shared__ unsigned is_finite;
  double sum = 0.0;
  for (int i = threadIdx.x; i < sum_count; i += blockDim.x) sum += sums[i];
  sum = block_sum_wide(sum, shared);
  const float step = steps[0] + 1.0f;
  if (threadIdx.x == 0) {
    const float norm = given == nullptr ? (float)sqrt(sum) : *given;
    *norm_out = norm;
    is_finite = (__float_as_uint(norm) & 0x7f800000u) != 0x7f800000u;
    const double above = largest > 0.0 ? norm / largest : 1.0;
    out->scale = (float)(1.0 / (above > 1.0 ? above : 1.0));
    out->step_size = (float)(lr / (1.0 - pow(beta1, (double)step)));
    out->inverse_root = (float)(1.0 / sqrt(1.0 - pow(beta2, (double)step)));
    out->beta1 = (float)beta1;
    out->rest1 = (float)(1.0 - beta1);
    out->beta2 = (float)beta2;
    out->rest2 = (float)(1.0 - beta2);
    out->decay = (float)(lr * weight_decay);
    out->epsilon = (float)epsilon;
    out->skip = !is_finite;
    out->key = mixed((u64)seed + (u64)step * 0x9e3779b97f4a7c15ull);
  }
  // Nobody counts up before all have read.
  __syncthreads();
  if (is_finite)
    for (int i = threadIdx.x; i < step_count; i += blockDim.x) steps[i] = step;
}

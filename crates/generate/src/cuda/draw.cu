// Drawing tokens from rows of float32 logits, read once: temperature, Gumbel noise, log-prob; top-k and top-p where asked.
//
// Follows attention.cu in one compilation, whose small functions it uses.

#define INFINITE __int_as_float(0x7f800000)
#define LOG2_E 1.4426950408889634f

// The hash of noise.rs.
__device__ __forceinline__ unsigned mixed(unsigned x, unsigned key0, unsigned key1) {
  x = x * 0x9e3779b9u + key0;
  x = (x ^ x >> 16) * 0x21f0aaadu;
  x = (x ^ x >> 15) * 0x735a2d97u;
  x ^= x >> 15;
  x ^= key1;
  x = (x ^ x >> 17) * 0xed5ad4bbu;
  x = (x ^ x >> 11) * 0xac4c1b51u;
  x = (x ^ x >> 15) * 0x31848babu;
  return x ^ x >> 14;
}

__device__ __forceinline__ float uniform(unsigned candidate, unsigned key0, unsigned key1) {
  const float u = ((float)(int)(mixed(candidate, key0, key1) >> 1) + 0.5f) * 4.656612873077393e-10f;
  return fminf(u, 0.99999994f);
}

__device__ __forceinline__ float gumbel(unsigned candidate, unsigned key0, unsigned key1) {
  const float u = uniform(candidate, key0, key1);
  const float exponential = u < 0.01f ? u * (1.0f + u * (0.5f + u * 0.33333333f)) : -logf(1.0f - u);
  return -logf(exponential);
}

// Larger numbers have larger images.
__device__ __forceinline__ unsigned ordered(float x) {
  const unsigned bits = __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float unordered(unsigned x) {
  return __uint_as_float(x & 0x80000000u ? x & 0x7fffffffu : ~x);
}

// The largest x such that the values of at least x weigh `wanted` or more, among those of at least `floor`: four rounds of
// a histogram over eight bits. A value weighs 1 (by_mass 0) or exp((value - top) * inverse_temperature).
__device__ unsigned find_floor(
    const float* row, int v, unsigned floor, float wanted, bool by_mass, float top, float inverse_temperature, float* bins,
    unsigned* found) {
  unsigned prefix = 0;
  float above = 0.0f;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0.0f;
    __syncthreads();
    for (int i = threadIdx.x; i < v; i += blockDim.x) {
      const unsigned image = ordered(row[i]);
      const bool is_in = image >= floor && (shift == 24 || image >> (shift + 8) == prefix >> (shift + 8));
      if (is_in) atomicAdd(bins + (image >> shift & 255u), by_mass ? expf((row[i] - top) * inverse_temperature) : 1.0f);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      float sum = above;
      int bin = 255;
      // Rounding may leave the sum a hair below what is wanted: the lowest filled bin is the last resort.
      int filled = 255;
      for (; bin >= 0; --bin) {
        if (bins[bin] > 0.0f) filled = bin;
        if (sum + bins[bin] >= wanted && bins[bin] > 0.0f) break;
        sum += bins[bin];
      }
      found[0] = prefix | (unsigned)(bin >= 0 ? bin : filled) << shift;
      if (bin < 0) sum -= bins[filled];
      found[1] = __float_as_uint(sum);
    }
    __syncthreads();
    prefix = found[0];
    above = __uint_as_float(found[1]);
    __syncthreads();
  }
  return prefix;
}

// One thread per (rotation, row, frequency): the row's token, given or drawn by a row of the step before (-1 - row), its
// position, and the angle that its heads are rotated by. frequencies: [tables, half], factors: [tables];
// cosine, sine: [tables, rows, half].
extern "C" __global__ void feed(
    const int* __restrict__ given, const int* __restrict__ drawn, const int* __restrict__ positions,
    const float* __restrict__ frequencies, const float* __restrict__ factors, i64* __restrict__ tokens,
    i64* __restrict__ places, float* __restrict__ cosine, float* __restrict__ sine, int rows, int half, int tables) {
  after_previous();
  const int i = blockIdx.x * blockDim.x + threadIdx.x, table = i / (rows * half), r = i / half % rows;
  if (table >= tables) return;
  const int position = positions[r];
  const float angle = (float)position * frequencies[table * half + i % half];
  cosine[i] = cosf(angle) * factors[table];
  sine[i] = sinf(angle) * factors[table];
  if (table != 0 || i % half != 0) return;
  tokens[r] = given[r] >= 0 ? given[r] : drawn[-1 - given[r]];
  places[r] = position;
}

struct Best {
  float score;
  int id;           // of a group; greedy: of a candidate
  float top, mass;  // of the kept logits / temperature
};

// What a block leaves for `draw_join`.
struct Part {
  Best best;
  float lowest;  // logit that is kept
};

__device__ __forceinline__ Best nobody() { return {NOTHING * 2.0f, 0, NOTHING, 0.0f}; }

// The best of a warp; of equal scores the lowest id.
__device__ __forceinline__ Best joined(Best mine) {
  const float top = unordered(__reduce_max_sync(FULL, ordered(mine.top)));
  float mass = mine.mass * power((mine.top - top) * LOG2_E);
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) mass += __shfl_xor_sync(FULL, mass, offset);
  const unsigned score = __reduce_max_sync(FULL, ordered(mine.score));
  const unsigned id = __reduce_min_sync(FULL, ordered(mine.score) == score ? (unsigned)mine.id : 0xffffffffu);
  return {unordered(score), (int)id, top, mass};
}

// Four neighbours; beyond the end, and where there is no number, minus infinity.
__device__ __forceinline__ void four(const float* row, int i, int v, bool is_aligned, float* out) {
  if (is_aligned) {
    float4 x = make_float4(-INFINITE, -INFINITE, -INFINITE, -INFINITE);
    if (i < v) x = *reinterpret_cast<const float4*>(row + i);
    out[0] = x.x, out[1] = x.y, out[2] = x.z, out[3] = x.w;
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) out[k] = i + k < v ? row[i + k] : -INFINITE;
  }
}

// The lowest logit that top-k and top-p keep.
__device__ float lowest_kept(
    const float* row, int v, float top_p, int top_k, float inverse, float* bins, unsigned* found) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  unsigned floor = 0;
  if (top_k > 0 && top_k < v) floor = find_floor(row, v, 0u, (float)top_k, false, 0.0f, inverse, bins, found);
  if (top_p < 1.0f) {
    float top = NOTHING, mass = 0.0f;
    for (int i = threadIdx.x; i < v; i += blockDim.x) top = fmaxf(top, row[i]);
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) top = fmaxf(top, __shfl_xor_sync(FULL, top, offset));
    if (lane == 0) bins[warp] = top;
    __syncthreads();
    for (int w = 0; w < warps; ++w) top = fmaxf(top, bins[w]);
    __syncthreads();
    for (int i = threadIdx.x; i < v; i += blockDim.x)
      if (ordered(row[i]) >= floor) mass += expf((row[i] - top) * inverse);
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) mass += __shfl_xor_sync(FULL, mass, offset);
    if (lane == 0) bins[warp] = mass;
    __syncthreads();
    mass = 0.0f;
    for (int w = 0; w < warps; ++w) mass += bins[w];
    __syncthreads();
    floor = find_floor(row, v, floor, top_p * mass, true, top, inverse, bins, found);
  }
  return floor == 0 ? -3.4e38f : unordered(floor);
}

#define GROUPS 256            // of a tile, one per thread: a group is four neighbours and their like
#define STRIDE (4 * GROUPS)   // one, two and three strides further on
#define DRAWN_TILE (4 * STRIDE)

// One block of GROUPS threads per (row of float32 logits, split of the vocabulary). Per row of `settings`: inverse temperature
// (0: the most probable token), top_p, top_k (int), two keys. `draw_join` follows; a row with top-k or top-p is drawn whole
// by its first block.
//
// Noise is dear (a hash and two logarithms): a group of 16 is drawn first, by its mass (noise.rs), so that a candidate costs
// little more than its power. Four loads of 16 bytes per thread are under way at once.
extern "C" __global__ void __launch_bounds__(GROUPS, 6) draw(
    const float* __restrict__ logits, const int* __restrict__ settings, int* __restrict__ out, Part* __restrict__ parts,
    int rows, int v, int splits) {
  __shared__ float bins[256];
  __shared__ unsigned found[2];
  __shared__ Best shared[GROUPS / 32];
  after_previous();
  const int r = blockIdx.x / splits, split = blockIdx.x % splits, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const float* row = logits + (i64)r * v;
  const float temperature = __int_as_float(settings[5 * r]), top_p = __int_as_float(settings[5 * r + 1]);
  const int top_k = settings[5 * r + 2];
  const unsigned key0 = settings[5 * r + 3], key1 = settings[5 * r + 4];
  const bool is_greedy = temperature <= 0.0f, is_aligned = v % 4 == 0;
  const bool is_limited = !is_greedy && ((top_k > 0 && top_k < v) || top_p < 1.0f);
  const float inverse = is_greedy ? 1.0f : temperature;
  const int tiles = (v + DRAWN_TILE - 1) / DRAWN_TILE;
  int from = tiles * split / splits, to = tiles * (split + 1) / splits;
  if (is_limited) from = 0, to = split == 0 ? tiles : 0;
  const float lowest = is_limited && split == 0 ? lowest_kept(row, v, top_p, top_k, inverse, bins, found) : -3.4e38f;

  Best best = nobody();
  for (int tile = from; tile < to; ++tile) {
    const int at = tile * DRAWN_TILE + 4 * threadIdx.x;
    float x[16], largest = -INFINITE, mass = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; ++j) four(row, at + j * STRIDE, v, is_aligned, x + 4 * j);
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      x[k] = x[k] >= lowest ? x[k] * inverse : -INFINITE;
      largest = fmaxf(largest, x[k]);
    }
    if (largest == -INFINITE) continue;
    const float shift = largest * LOG2_E;
#pragma unroll
    for (int k = 0; k < 16; ++k) mass += power(x[k] * LOG2_E - shift);
    float score = largest;
    int id = tile * GROUPS + threadIdx.x;
    if (is_greedy) {
#pragma unroll
      for (int k = 15; k >= 0; --k)
        if (x[k] == largest) id = at + k / 4 * STRIDE + k % 4;
    } else {
      score += logf(mass) + gumbel(0x80000000u | id, key0, key1);
    }
    if (score > best.score) best.score = score, best.id = id;
    const float highest = fmaxf(best.top, largest);
    best.mass = best.mass * power((best.top - highest) * LOG2_E) + mass * power((largest - highest) * LOG2_E);
    best.top = highest;
  }
  best = joined(best);
  if (lane == 0) shared[warp] = best;
  __syncthreads();
  if (warp != 0) return;
  best = joined(lane < GROUPS / 32 ? shared[lane] : nobody());
  if (lane == 0) parts[blockIdx.x] = {best, lowest};
}

// One warp per row: the best of its splits (32 at most), and of that group its best candidate. out: ids, then log-probs, as
// 32-bit words.
extern "C" __global__ void draw_join(
    const float* __restrict__ logits, const int* __restrict__ settings, int* __restrict__ out, const Part* __restrict__ parts,
    int rows, int v, int splits) {
  after_previous();
  const int r = blockIdx.x, lane = threadIdx.x;
  const float* row = logits + (i64)r * v;
  const float temperature = __int_as_float(settings[5 * r]);
  const unsigned key0 = settings[5 * r + 3], key1 = settings[5 * r + 4];
  const bool is_greedy = temperature <= 0.0f;
  const float inverse = is_greedy ? 1.0f : temperature;
  const Best best = joined(lane < splits ? parts[r * splits + lane].best : nobody());
  int id = best.id;
  if (!is_greedy) {
    const int candidate = id / GROUPS * DRAWN_TILE + lane / 4 * STRIDE + id % GROUPS * 4 + lane % 4;
    float score = NOTHING * 2.0f;
    if (lane < 16 && candidate < v && row[candidate] >= parts[r * splits].lowest)
      score = row[candidate] * inverse + gumbel(candidate, key0, key1);
    const unsigned winner = __reduce_max_sync(FULL, ordered(score));
    id = __reduce_min_sync(FULL, ordered(score) == winner ? (unsigned)candidate : 0xffffffffu);
  }
  if (lane != 0) return;
  out[r] = min(id, v - 1);
  // Not a number where the logits are not: nothing was kept, or the mass is not finite.
  const float logprob = row[min(id, v - 1)] * inverse - best.top - logf(best.mass);
  out[rows + r] = __float_as_int(best.mass > 0.0f ? logprob : __int_as_float(0x7fc00000));
}

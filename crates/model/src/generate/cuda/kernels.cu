// Kernels of decoding: attention over pages, keys and values to their pages, drawing tokens.
//
// Compiled at run time by NVRTC for one model (mod.rs puts the #defines in front); no header is needed.
//   GROUP     query heads that share a key head     TILE   of those, how many one block serves (all, up to 8)
//   KV_HEADS  key heads     WIDTH  of a head (32, 64, 128 or 256)     PAGE  tokens of a page
// keys, values: [pages, KV_HEADS, PAGE, WIDTH] bf16. tables: [rows, table_stride]. Arithmetic is float32.
// Each kernel is judged on the device against torch operations or plain Rust by check.rs.

typedef unsigned short bf16;
typedef long long i64;

#define HEADS (GROUP * KV_HEADS)
#define TILES ((GROUP + TILE - 1) / TILE)
#define WARPS 4
#define LANES (WIDTH / 8)        // lanes that hold one row: 8 numbers, 16 bytes each
#define PER_WARP (32 / LANES)    // tokens that a warp looks at together
#define STEP (WARPS * PER_WARP)  // tokens that a block looks at together
#define UNROLL (TILE > 4 ? 2 : 4)
#define NOTHING (-1e30f)
#define FULL 0xffffffffu

__device__ __forceinline__ float low(unsigned x) { return __uint_as_float(x << 16); }
__device__ __forceinline__ float high(unsigned x) { return __uint_as_float(x & 0xffff0000u); }

__device__ __forceinline__ bf16 narrow(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ void widen(uint4 x, float* out) {
  out[0] = low(x.x), out[1] = high(x.x), out[2] = low(x.y), out[3] = high(x.y);
  out[4] = low(x.z), out[5] = high(x.z), out[6] = low(x.w), out[7] = high(x.w);
}

// One block per (token, key head, tile of its query heads, split of the sequence); 128 threads.
//
// A warp reads PER_WARP keys and values at a time, 16 bytes per lane, UNROLL of them in flight; each is used by all
// TILE query heads. Every group of LANES lanes keeps a softmax of its own, merged at the end. With one split the result
// is final; with more, `decode_join` merges them. Splits behind the end of a sequence cost one block that leaves at once.
extern "C" __global__ void __launch_bounds__(128) decode_attention(
    const bf16* __restrict__ q, i64 q_stride, const bf16* __restrict__ keys, const bf16* __restrict__ values,
    const int* __restrict__ tables, int table_stride, const int* __restrict__ positions, bf16* __restrict__ out,
    float* __restrict__ partial, float2* __restrict__ stats, int splits, int split_tokens, int span, float scale) {
  __shared__ float merged[WARPS][TILE][WIDTH];
  __shared__ float2 merged_stats[WARPS][TILE];
  int block = blockIdx.x;
  const int split = block % splits;
  block /= splits;
  const int tile = block % TILES;
  block /= TILES;
  const int kv = block % KV_HEADS, row = block / KV_HEADS;
  const int first = kv * GROUP + tile * TILE, heads = min(TILE, GROUP - tile * TILE);
  const int position = positions[row], start = span > 0 ? position / span * span : 0;
  const int from = max(start, split * split_tokens), to = min(position + 1, (split + 1) * split_tokens);
  const i64 slot = ((i64)row * HEADS + first) * splits + split;  // of the first head; heads are `splits` apart
  if (from >= to) {
    if (splits > 1 && threadIdx.x < heads) stats[slot + (i64)threadIdx.x * splits] = make_float2(NOTHING, 0.0f);
    return;
  }
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, at = (lane % LANES) * 8;
  const int* table = tables + (i64)row * table_stride;

  float query[TILE][8], sum[TILE][8], top[TILE], mass[TILE];
#pragma unroll
  for (int g = 0; g < TILE; ++g) {
    // Heads beyond the group repeat the first one; their results are not written.
    const bf16* source = q + row * q_stride + (first + (g < heads ? g : 0)) * WIDTH + at;
    widen(*reinterpret_cast<const uint4*>(source), query[g]);
    top[g] = NOTHING;
    mass[g] = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      query[g][i] *= scale;  // 1 / sqrt(WIDTH) and log2 e: powers are of two
      sum[g][i] = 0.0f;
    }
  }

  for (int base = from + warp * PER_WARP + lane / LANES; base - lane / LANES < to; base += UNROLL * STEP) {
    uint4 k[UNROLL], v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const int token = min(base + u * STEP, to - 1);
      const i64 place = (((i64)table[token / PAGE] * KV_HEADS + kv) * PAGE + token % PAGE) * WIDTH + at;
      k[u] = *reinterpret_cast<const uint4*>(keys + place);
      v[u] = *reinterpret_cast<const uint4*>(values + place);
    }
    float score[UNROLL][TILE];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      float key[8];
      widen(k[u], key);
#pragma unroll
      for (int g = 0; g < TILE; ++g) {
        float dot = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; ++i) dot += query[g][i] * key[i];
#pragma unroll
        for (int offset = LANES / 2; offset > 0; offset >>= 1) dot += __shfl_xor_sync(FULL, dot, offset);
        score[u][g] = base + u * STEP < to ? dot : NOTHING;
      }
    }
#pragma unroll
    for (int g = 0; g < TILE; ++g) {
      float highest = top[g];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) highest = fmaxf(highest, score[u][g]);
      const float shrink = exp2f(top[g] - highest);
      top[g] = highest;
      mass[g] *= shrink;
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[g][i] *= shrink;
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      float value[8];
      widen(v[u], value);
#pragma unroll
      for (int g = 0; g < TILE; ++g) {
        const float weight = base + u * STEP < to ? exp2f(score[u][g] - top[g]) : 0.0f;
        mass[g] += weight;
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[g][i] += weight * value[i];
      }
    }
  }

  // Over the groups of lanes of a warp, then over the warps.
#pragma unroll
  for (int g = 0; g < TILE; ++g) {
#pragma unroll
    for (int offset = LANES; offset < 32; offset <<= 1) {
      const float other = __shfl_xor_sync(FULL, top[g], offset), highest = fmaxf(top[g], other);
      const float mine = exp2f(top[g] - highest), theirs = exp2f(other - highest);
      mass[g] = mass[g] * mine + __shfl_xor_sync(FULL, mass[g], offset) * theirs;
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[g][i] = sum[g][i] * mine + __shfl_xor_sync(FULL, sum[g][i], offset) * theirs;
      top[g] = highest;
    }
    if (lane < LANES) {
#pragma unroll
      for (int i = 0; i < 8; ++i) merged[warp][g][at + i] = sum[g][i];
      if (lane == 0) merged_stats[warp][g] = make_float2(top[g], mass[g]);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < heads * WIDTH; i += blockDim.x) {
    const int g = i / WIDTH, d = i % WIDTH;
    float highest = NOTHING, total = 0.0f, all = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) highest = fmaxf(highest, merged_stats[w][g].x);
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float weight = exp2f(merged_stats[w][g].x - highest);
      total += weight * merged_stats[w][g].y;
      all += weight * merged[w][g][d];
    }
    if (splits == 1) {
      out[((i64)row * HEADS + first + g) * WIDTH + d] = narrow(all / total);
    } else {
      partial[(slot + (i64)g * splits) * WIDTH + d] = all;
      if (d == 0) stats[slot + (i64)g * splits] = make_float2(highest, total);
    }
  }
}

// One block of WIDTH threads per (token, head): merges the splits.
extern "C" __global__ void decode_join(
    const float* __restrict__ partial, const float2* __restrict__ stats, bf16* __restrict__ out, int splits) {
  const i64 head = blockIdx.x;
  const float2* mine = stats + head * splits;
  float highest = NOTHING, total = 0.0f, all = 0.0f;
  for (int s = 0; s < splits; ++s) highest = fmaxf(highest, mine[s].x);
  for (int s = 0; s < splits; ++s) {
    if (mine[s].y == 0.0f) continue;  // behind the end: nothing was written there
    const float weight = exp2f(mine[s].x - highest);
    total += weight * mine[s].y;
    all += weight * partial[(head * splits + s) * WIDTH + threadIdx.x];
  }
  out[head * WIDTH + threadIdx.x] = narrow(all / total);
}

// One block per token: its keys and values to their page, 16 bytes per thread. `rows` may be null: token i is row i.
extern "C" __global__ void append(
    const bf16* __restrict__ k, i64 k_stride, const bf16* __restrict__ v, i64 v_stride, bf16* __restrict__ keys,
    bf16* __restrict__ values, const int* __restrict__ tables, int table_stride, const int* __restrict__ rows,
    const int* __restrict__ positions) {
  const int token = blockIdx.x, row = rows == nullptr ? token : rows[token], position = positions[token];
  const i64 page = tables[(i64)row * table_stride + position / PAGE];
  for (int i = threadIdx.x; i < KV_HEADS * LANES; i += blockDim.x) {
    const int head = i / LANES, at = i % LANES * 8;
    const i64 to = ((page * KV_HEADS + head) * PAGE + position % PAGE) * WIDTH + at;
    *reinterpret_cast<uint4*>(keys + to) = *reinterpret_cast<const uint4*>(k + token * k_stride + head * WIDTH + at);
    *reinterpret_cast<uint4*>(values + to) = *reinterpret_cast<const uint4*>(v + token * v_stride + head * WIDTH + at);
  }
}

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

__device__ __forceinline__ float gumbel(unsigned candidate, unsigned key0, unsigned key1) {
  float u = ((float)(int)(mixed(candidate, key0, key1) >> 1) + 0.5f) * 4.656612873077393e-10f;
  u = fminf(u, 0.99999994f);
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

struct Best {
  float score;
  int id;
  float top, mass;  // of the kept logits / temperature
};

__device__ __forceinline__ Best better(Best a, Best b) {
  Best out = a.score > b.score || (a.score == b.score && a.id < b.id) ? a : b;
  const float top = fmaxf(a.top, b.top);
  out.mass = (a.mass > 0.0f ? a.mass * expf(a.top - top) : 0.0f) + (b.mass > 0.0f ? b.mass * expf(b.top - top) : 0.0f);
  out.top = top;
  return out;
}

__device__ __forceinline__ Best shuffled(Best a, int offset) {
  return {__shfl_xor_sync(FULL, a.score, offset), __shfl_xor_sync(FULL, a.id, offset), __shfl_xor_sync(FULL, a.top, offset),
          __shfl_xor_sync(FULL, a.mass, offset)};
}

// One block of 1024 threads per row of float32 logits. Per row of `settings`: inverse temperature (0: the most probable
// token), top_p, top_k (int), two keys. out: ids, then log-probs, as 32-bit words.
extern "C" __global__ void __launch_bounds__(1024) draw(
    const float* __restrict__ logits, const int* __restrict__ settings, int* __restrict__ out, int rows, int v) {
  __shared__ float bins[256];
  __shared__ unsigned found[2];
  __shared__ Best shared[32];
  const int r = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const float* row = logits + (i64)r * v;
  const float temperature = __int_as_float(settings[5 * r]), top_p = __int_as_float(settings[5 * r + 1]);
  const int top_k = settings[5 * r + 2];
  const unsigned key0 = settings[5 * r + 3], key1 = settings[5 * r + 4];
  const bool is_greedy = temperature <= 0.0f;
  const float inverse = is_greedy ? 1.0f : temperature;

  unsigned floor = 0;
  if (!is_greedy && top_k > 0 && top_k < v) floor = find_floor(row, v, 0u, (float)top_k, false, 0.0f, inverse, bins, found);
  if (!is_greedy && top_p < 1.0f) {
    float top = NOTHING, mass = 0.0f;
    for (int i = threadIdx.x; i < v; i += blockDim.x) top = fmaxf(top, row[i]);
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) top = fmaxf(top, __shfl_xor_sync(FULL, top, offset));
    if (lane == 0) bins[warp] = top;
    __syncthreads();
    for (int w = 0; w < 32; ++w) top = fmaxf(top, bins[w]);
    __syncthreads();
    for (int i = threadIdx.x; i < v; i += blockDim.x)
      if (ordered(row[i]) >= floor) mass += expf((row[i] - top) * inverse);
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) mass += __shfl_xor_sync(FULL, mass, offset);
    if (lane == 0) bins[warp] = mass;
    __syncthreads();
    mass = 0.0f;
    for (int w = 0; w < 32; ++w) mass += bins[w];
    __syncthreads();
    floor = find_floor(row, v, floor, top_p * mass, true, top, inverse, bins, found);
  }
  const float lowest = floor == 0 ? -3.4e38f : unordered(floor);

  Best best = {NOTHING * 2.0f, 0, NOTHING, 0.0f};
  for (int i = threadIdx.x; i < v; i += blockDim.x) {
    const float logit = row[i];
    if (!(logit >= lowest)) continue;
    const float x = logit * inverse, score = is_greedy ? x : x + gumbel(i, key0, key1);
    if (x <= best.top) {
      best.mass += expf(x - best.top);
    } else {
      best.mass = best.mass * expf(best.top - x) + 1.0f;
      best.top = x;
    }
    if (score > best.score) best.score = score, best.id = i;
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) best = better(best, shuffled(best, offset));
  if (lane == 0) shared[warp] = best;
  __syncthreads();
  if (warp != 0) return;
  best = shared[lane];
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) best = better(best, shuffled(best, offset));
  if (lane != 0) return;
  out[r] = best.id;
  // Not a number where the logits are not: nothing was kept, or the mass is not finite.
  out[rows + r] = __float_as_int(best.mass > 0.0f ? row[best.id] * inverse - best.top - logf(best.mass) : __int_as_float(0x7fc00000));
}

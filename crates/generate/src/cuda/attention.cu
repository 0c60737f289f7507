// Attention of decoding: one token per row over the pages of its sequence; keys and values to their pages.
//
// Compiled at run time by NVRTC for one model (cuda.rs puts the #defines in front); no header is needed.
//   GROUP     query heads that share a key head     TILE   of those, how many one block serves (all, up to 8)
//   KV_HEADS  key heads     WIDTH  of a head (32, 64, 128 or 256)     PAGE  tokens of a page
// keys, values: [pages, KV_HEADS, PAGE, WIDTH] bf16. tables: [rows, table_stride].
// Each kernel is judged on the device against torch operations or plain Rust by check.rs.

typedef unsigned short bf16;
typedef long long i64;

#define HEADS (GROUP * KV_HEADS)
#define TILES ((GROUP + TILE - 1) / TILE)
#define WARPS 4
#define LANES (WIDTH / 8)          // pieces of 16 bytes in a row
#define TOKENS 16                  // that a warp looks at together
#define STEP (WARPS * TOKENS)      // from there to its next ones
#define KEY_PIECES (WIDTH / 32)    // pieces of 16 bytes of one key that a lane holds
#define VALUE_WORDS (WIDTH / 16)   // words of two numbers of one value that a lane holds
#define NOTHING (-1e30f)
#define FULL 0xffffffffu

__device__ __forceinline__ float low(unsigned x) { return __uint_as_float(x << 16); }
__device__ __forceinline__ float high(unsigned x) { return __uint_as_float(x & 0xffff0000u); }

__device__ __forceinline__ bf16 narrow(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ unsigned narrow2(float low, float high) {
  unsigned y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

__device__ __forceinline__ float power(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Kernels are launched so that they may begin while the one before ends (launch.rs): nothing is touched before this.
__device__ __forceinline__ void after_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Piece `i` of a head of LANES pieces, rotated: a number of the first half against its like in the second.
__device__ __forceinline__ uint4 rotated_piece(const uint4* head, int i, const float* cosine, const float* sine) {
  const bool is_first = i < LANES / 2;
  const int at = (is_first ? i : i - LANES / 2) * 8;
  uint4 own = head[i];
  const uint4 other = head[is_first ? i + LANES / 2 : i - LANES / 2];
  unsigned* x = reinterpret_cast<unsigned*>(&own);
  const unsigned* y = reinterpret_cast<const unsigned*>(&other);
  const float2* c = reinterpret_cast<const float2*>(cosine + at);
  const float2* s = reinterpret_cast<const float2*>(sine + at);
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const float2 cos = c[w];
    float2 sin = s[w];
    if (is_first) sin.x = -sin.x, sin.y = -sin.y;
    x[w] = narrow2(low(x[w]) * cos.x + low(y[w]) * sin.x, high(x[w]) * cos.y + high(y[w]) * sin.y);
  }
  return own;
}

// c [16, 8] += a [16, 16] b [16, 8] on tensor cores. For lane = 4 g + t:
//   a  rows g, g + 8 (a0, a1) at columns 2t, 2t + 1; the same at columns + 8 (a2, a3)
//   b  rows 2t, 2t + 1 (b0), + 8 (b1) of column g     c  row g, columns 2t, 2t + 1 (c0, c1); row g + 8 (c2, c3)
__device__ __forceinline__ void multiply(
    float* c, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// What a warp needs of 16 tokens.
struct Tokens {
  uint4 key[2][KEY_PIECES];
  unsigned value[4][VALUE_WORDS];
};

// Of one key head, from `base` on, of which the first is on `page`. Tokens behind the end repeat the last one.
__device__ __forceinline__ Tokens loaded(
    const bf16* keys, const bf16* values, const int* table, int page, int kv, int base, int to, int g, int t) {
  auto place = [&](int token) -> i64 {
    token = min(token, to - 1);
#if PAGE % TOKENS != 0
    page = table[token / PAGE];
#endif
    return (((i64)page * KV_HEADS + kv) * PAGE + token % PAGE) * WIDTH;
  };
  Tokens out;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const uint4* source = reinterpret_cast<const uint4*>(keys + place(base + 8 * j + g));
#pragma unroll
    for (int c = 0; c < KEY_PIECES; ++c) out.key[j][c] = source[4 * c + t];
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const bf16* source = values + place(base + 8 * (j >> 1) + 2 * t + (j & 1));
#if WIDTH == 32
    const uint2 piece = reinterpret_cast<const uint2*>(source)[g];
    out.value[j][0] = piece.x, out.value[j][1] = piece.y;
#else
#pragma unroll
    for (int c = 0; c < WIDTH / 64; ++c) {
      const uint4 piece = reinterpret_cast<const uint4*>(source)[8 * c + g];
      out.value[j][4 * c] = piece.x, out.value[j][4 * c + 1] = piece.y;
      out.value[j][4 * c + 2] = piece.z, out.value[j][4 * c + 3] = piece.w;
    }
#endif
  }
  return out;
}

// One block per (token, key head, tile of its query heads, split of the sequence); 128 threads.
//
// A warp takes 16 tokens at a time, straight from memory into the operands of tensor cores:
//   scores [heads, tokens]   = queries x keys      rows of a are heads (8 of 16 used), columns of b tokens
//   sums   [width, heads]   += values x weights    rows of a are the width, columns of b heads
// The scores' c is, lane by lane, the weights' b. Which number of a row stands where inside the width does not matter as
// long as both operands agree: so lanes load 16 bytes at once, and every sector read is used whole. Where registers allow it
// a warp has its next 16 tokens on their way meanwhile: a long sequence among short ones waits half as often. With one split the
// result is final; with more, `decode_join` merges them. Splits behind the end of a sequence, or before the first token that
// its chunk or window lets the row see, leave at once.
//
// With angles (`cosine` is not null) q is the layer's product as it is, [rows, HEADS + 2 KV_HEADS, WIDTH]: queries are
// rotated on the way, and the warp that looks at the token itself first puts its key, rotated, and its value on their page.
// Then no other row may want that key: one row per sequence. (Tiles of one key head all write the same.) The kernel before
// has then made nothing but q: what is older is read without waiting for it.
extern "C" __global__ void __launch_bounds__(32 * WARPS, WIDTH <= 64 ? 4 : 1) decode_attention(
    const bf16* __restrict__ q, i64 q_stride, bf16* keys, bf16* values, const int* __restrict__ tables, int table_stride,
    const int* __restrict__ positions, bf16* __restrict__ out, float* __restrict__ partial, float2* __restrict__ stats,
    int splits, int split_tokens, int chunk, int window, float scale, const float* __restrict__ cosine,
    const float* __restrict__ sine) {
  __shared__ float merged[WARPS][TILE][WIDTH];
  __shared__ float2 merged_stats[WARPS][TILE];
  const bool is_rotating = cosine != nullptr;
  if (!is_rotating) after_previous();
  int block = blockIdx.x;
  const int split = block % splits;
  block /= splits;
  const int tile = block % TILES;
  block /= TILES;
  const int kv = block % KV_HEADS, row = block / KV_HEADS;
  const int first = kv * GROUP + tile * TILE, heads = min(TILE, GROUP - tile * TILE);
  const int position = positions[row];
  const int start = chunk > 0 ? position / chunk * chunk : window > 0 ? max(position + 1 - window, 0) : 0;
  const int from = max(start, split * split_tokens), to = min(position + 1, (split + 1) * split_tokens);
  const i64 slot = ((i64)row * HEADS + first) * splits + split;  // of the first head; heads are `splits` apart
  if (from >= to) {
    after_previous();
    if (splits > 1 && threadIdx.x < heads) stats[slot + (i64)threadIdx.x * splits] = make_float2(NOTHING, 0.0f);
    return;
  }
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
  const int* table = tables + (i64)row * table_stride;
  const int begin = from / TOKENS * TOKENS + warp * TOKENS;
  const float* c_row = cosine + (i64)row * (WIDTH / 2);
  const float* s_row = sine + (i64)row * (WIDTH / 2);
  const bool is_own = is_rotating && to == position + 1 && (position / TOKENS - from / TOKENS) % WARPS == warp;
  if (is_own) {
    const i64 place = (((i64)table[position / PAGE] * KV_HEADS + kv) * PAGE + position % PAGE) * WIDTH;
    after_previous();
    const uint4* key = reinterpret_cast<const uint4*>(q + row * q_stride + (HEADS + kv) * WIDTH);
    for (int i = lane; i < LANES; i += 32) {
      reinterpret_cast<uint4*>(keys + place)[i] = rotated_piece(key, i, c_row, s_row);
      reinterpret_cast<uint4*>(values + place)[i] = key[KV_HEADS * LANES + i];
    }
    __syncwarp();
  }
  int next_page = begin < to ? table[begin / PAGE] : 0;
  auto fetch = [&](Tokens& into, int base) {
    if (base >= to) return;
    into = loaded(keys, values, table, next_page, kv, base, to, g, t);
    if (base + STEP < to) next_page = table[(base + STEP) / PAGE];  // on its way before it is needed
  };
#if WIDTH <= 64
  Tokens even, odd;
  fetch(even, begin);
  fetch(odd, begin + STEP);
#endif
  if (is_rotating && !is_own) after_previous();

  // Heads beyond the group repeat the first one; their results are not written.
  uint4 query[KEY_PIECES];
  {
    const uint4* source = reinterpret_cast<const uint4*>(q + row * q_stride + (first + (g < heads ? g : 0)) * WIDTH);
#pragma unroll
    for (int c = 0; c < KEY_PIECES; ++c) {
      query[c] = is_rotating ? rotated_piece(source, 4 * c + t, c_row, s_row) : source[4 * c + t];
    }
  }
  float sum[VALUE_WORDS][4], top = NOTHING, mass = 0.0f;  // sum: see `width_of` below; top, mass: of head g
#pragma unroll
  for (int i = 0; i < VALUE_WORDS; ++i) sum[i][0] = sum[i][1] = sum[i][2] = sum[i][3] = 0.0f;

  auto weigh = [&](const Tokens& now, int base) {
    float score[2][4] = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll
    for (int c = 0; c < KEY_PIECES; ++c) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        multiply(score[j], query[c].x, 0u, query[c].y, 0u, now.key[j][c].x, now.key[j][c].y);
        multiply(score[j], query[c].z, 0u, query[c].w, 0u, now.key[j][c].z, now.key[j][c].w);
      }
    }
    float highest = top;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = base + 8 * j + 2 * t + i;
        score[j][i] = token >= from && token < to ? score[j][i] * scale : NOTHING;  // scale holds log2 e: powers are of two
        highest = fmaxf(highest, score[j][i]);
      }
    }
    highest = fmaxf(highest, __shfl_xor_sync(FULL, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(FULL, highest, 2));
    const float shrink = power(top - highest);
    top = highest;
    float weight[2][2];
#pragma unroll
    for (int j = 0; j < 2; ++j) weight[j][0] = power(score[j][0] - top), weight[j][1] = power(score[j][1] - top);
    mass = mass * shrink + (weight[0][0] + weight[0][1]) + (weight[1][0] + weight[1][1]);
    const unsigned b0 = narrow2(weight[0][0], weight[0][1]), b1 = narrow2(weight[1][0], weight[1][1]);
    // Columns of the sums are heads 2t and 2t + 1; what shrinks them is known to lanes 8t and 8t + 4.
    const float shrink0 = __shfl_sync(FULL, shrink, 8 * t), shrink1 = __shfl_sync(FULL, shrink, 8 * t + 4);
#pragma unroll
    for (int i = 0; i < VALUE_WORDS; ++i) {
      sum[i][0] *= shrink0, sum[i][1] *= shrink1, sum[i][2] *= shrink0, sum[i][3] *= shrink1;
      // Two tokens side by side: the first numbers of their words, then the second ones.
      multiply(
          sum[i], __byte_perm(now.value[0][i], now.value[1][i], 0x5410), __byte_perm(now.value[0][i], now.value[1][i], 0x7632),
          __byte_perm(now.value[2][i], now.value[3][i], 0x5410), __byte_perm(now.value[2][i], now.value[3][i], 0x7632), b0, b1);
    }
  };
#if WIDTH <= 64
  for (int base = begin; base < to; base += 2 * STEP) {
    weigh(even, base);
    fetch(even, base + 2 * STEP);
    if (base + STEP >= to) break;
    weigh(odd, base + STEP);
    fetch(odd, base + 3 * STEP);
  }
#else
  for (int base = begin; base < to; base += STEP) {
    Tokens now;
    fetch(now, base);
    weigh(now, base);
  }
#endif

  mass += __shfl_xor_sync(FULL, mass, 1);
  mass += __shfl_xor_sync(FULL, mass, 2);
  if (t == 0 && g < TILE) merged_stats[warp][g] = make_float2(top, mass);
#pragma unroll
  for (int i = 0; i < VALUE_WORDS; ++i) {
#if WIDTH == 32
    const int width_of = 4 * g + 2 * i;
#else
    const int width_of = i / 4 * 64 + 8 * g + i % 4 * 2;
#endif
    if (2 * t < TILE) merged[warp][2 * t][width_of] = sum[i][0], merged[warp][2 * t][width_of + 1] = sum[i][2];
    if (2 * t + 1 < TILE) merged[warp][2 * t + 1][width_of] = sum[i][1], merged[warp][2 * t + 1][width_of + 1] = sum[i][3];
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
  after_previous();
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
  after_previous();
  const int token = blockIdx.x, row = rows == nullptr ? token : rows[token], position = positions[token];
  const i64 page = tables[(i64)row * table_stride + position / PAGE];
  for (int i = threadIdx.x; i < KV_HEADS * LANES; i += blockDim.x) {
    const int head = i / LANES, at = i % LANES * 8;
    const i64 to = ((page * KV_HEADS + head) * PAGE + position % PAGE) * WIDTH + at;
    *reinterpret_cast<uint4*>(keys + to) = *reinterpret_cast<const uint4*>(k + token * k_stride + head * WIDTH + at);
    *reinterpret_cast<uint4*>(values + to) = *reinterpret_cast<const uint4*>(v + token * v_stride + head * WIDTH + at);
  }
}

// One block per token, for models whose heads are only rotated: queries are rotated where they are, keys rotated and values
// go to their pages. qkv: [tokens, HEADS + 2 KV_HEADS, WIDTH]; a half of a head is rotated against the other.
extern "C" __global__ void rotate_append(
    bf16* __restrict__ qkv, const float* __restrict__ cosine, const float* __restrict__ sine, bf16* __restrict__ keys,
    bf16* __restrict__ values, const int* __restrict__ tables, int table_stride, const int* __restrict__ positions) {
  after_previous();
  const int row = blockIdx.x, position = positions[row];
  const i64 page = tables[(i64)row * table_stride + position / PAGE];
  bf16* source = qkv + (i64)row * (HEADS + 2 * KV_HEADS) * WIDTH;
  const float* c_row = cosine + (i64)row * (WIDTH / 2);
  const float* s_row = sine + (i64)row * (WIDTH / 2);
  // One thread has both halves of what it rotates: it reads them before it writes.
  for (int i = threadIdx.x; i < (HEADS + KV_HEADS) * (LANES / 2); i += blockDim.x) {
    const int head = i / (LANES / 2), at = i % (LANES / 2);
    uint4* mine = reinterpret_cast<uint4*>(source + head * WIDTH);
    const uint4 a = rotated_piece(mine, at, c_row, s_row), b = rotated_piece(mine, at + LANES / 2, c_row, s_row);
    if (head >= HEADS) mine = reinterpret_cast<uint4*>(keys + ((page * KV_HEADS + head - HEADS) * PAGE + position % PAGE) * WIDTH);
    mine[at] = a;
    mine[at + LANES / 2] = b;
  }
  for (int i = threadIdx.x; i < KV_HEADS * LANES; i += blockDim.x) {
    const int head = i / LANES, at = i % LANES * 8;
    *reinterpret_cast<uint4*>(values + ((page * KV_HEADS + head) * PAGE + position % PAGE) * WIDTH + at) =
        *reinterpret_cast<const uint4*>(source + (HEADS + KV_HEADS + head) * WIDTH + at);
  }
}

// Float32 loops of generation for the CPU: attention over paged keys and values, and drawing tokens.
//
// Plain pointers to data whose shapes are checked on the Rust side (generate/loops.rs), where each loop is
// judged against the same thing in torch operations or plain Rust. A token's numbers depend on its own
// sequence alone, never on which thread computes them or what else is in the batch.
//
// Compiled with -ffast-math: no infinity is ever formed here.

#include <omp.h>

#include <cmath>
#include <cstdint>
#include <vector>

#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))

extern "C" {

// One row per token. keys, values: [pages, kv_heads, page, width]; tables: [sequences, table_stride].
struct PagedTokens {
  const float* q;
  const float* k;
  const float* v;
  int64_t q_stride, k_stride, v_stride;
  float* keys;
  float* values;
  const int32_t* tables;
  int64_t table_stride;
  const int32_t* rows;
  const int64_t* positions;
  float* out;
  int64_t tokens, heads, kv_heads, width, page;
  // Attention looks back to the last multiple of `chunk`, or over `window` tokens, the own among them; 0 is no limit.
  int64_t chunk, window;
  float scale;
};

}  // extern "C"

namespace {

constexpr int64_t SERIAL_BELOW = 1 << 14;

void append(const PagedTokens& a, int64_t r) {
  const int64_t position = a.positions[r];
  const int64_t page = a.tables[a.rows[r] * a.table_stride + position / a.page];
  for (int64_t h = 0; h < a.kv_heads; ++h) {
    const int64_t to = ((page * a.kv_heads + h) * a.page + position % a.page) * a.width;
    const float* k = a.k + r * a.k_stride + h * a.width;
    const float* v = a.v + r * a.v_stride + h * a.width;
    for (int64_t i = 0; i < a.width; ++i) a.keys[to + i] = k[i];
    for (int64_t i = 0; i < a.width; ++i) a.values[to + i] = v[i];
  }
}

// All query heads that share one key head, for one token: each key and value is read once.
// A width known to the compiler unrolls the inner loops; 0 takes any.
template <int64_t WIDTH>
inline __attribute__((always_inline)) void attend_width(const PagedTokens& a, int64_t r, int64_t head, float* scores) {
  const int64_t group = a.heads / a.kv_heads, width = WIDTH > 0 ? WIDTH : a.width, position = a.positions[r];
  const int64_t start = a.chunk > 0 ? position / a.chunk * a.chunk : a.window > 0 && position >= a.window ? position + 1 - a.window : 0;
  const int64_t count = position + 1 - start;
  const int32_t* table = a.tables + a.rows[r] * a.table_stride;
  const float* q = a.q + r * a.q_stride + head * group * width;
  float* out = a.out + (r * a.heads + head * group) * width;
  // Page by page: a division per token would cost more than its product.
  for (int64_t p = 0; p < count;) {
    const int64_t at = start + p, place = at % a.page, rest = count - p, here = rest < a.page - place ? rest : a.page - place;
    const float* k = a.keys + ((table[at / a.page] * a.kv_heads + head) * a.page + place) * width;
    for (const int64_t end = p + here; p < end; ++p, k += width) {
      for (int64_t g = 0; g < group; ++g) {
        const float* query = q + g * width;
        float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
        for (int64_t i = 0; i < width; ++i) dot += query[i] * k[i];
        scores[g * count + p] = dot * a.scale;
      }
    }
  }
  for (int64_t g = 0; g < group; ++g) {
    float* row = scores + g * count;
    float top = row[0], sum = 0.0f;
#pragma omp simd reduction(max : top)
    for (int64_t p = 0; p < count; ++p) top = row[p] > top ? row[p] : top;
#pragma omp simd reduction(+ : sum)
    for (int64_t p = 0; p < count; ++p) {
      row[p] = std::exp(row[p] - top);
      sum += row[p];
    }
    const float inverse = 1.0f / sum;
#pragma omp simd
    for (int64_t p = 0; p < count; ++p) row[p] *= inverse;
    for (int64_t i = 0; i < width; ++i) out[g * width + i] = 0.0f;
  }
  for (int64_t p = 0; p < count;) {
    const int64_t at = start + p, place = at % a.page, rest = count - p, here = rest < a.page - place ? rest : a.page - place;
    const float* v = a.values + ((table[at / a.page] * a.kv_heads + head) * a.page + place) * width;
    for (int64_t g = 0; g < group; ++g) {
      const float* weights = scores + g * count + p;
      float sum[WIDTH > 0 ? WIDTH : 1];
      if (WIDTH > 0) {
        // Sixteen rows into one sum that stays in registers.
#pragma omp simd
        for (int64_t i = 0; i < WIDTH; ++i) sum[i] = out[g * WIDTH + i];
        for (int64_t j = 0; j < here; ++j) {
#pragma omp simd
          for (int64_t i = 0; i < WIDTH; ++i) sum[i] += weights[j] * v[j * WIDTH + i];
        }
#pragma omp simd
        for (int64_t i = 0; i < WIDTH; ++i) out[g * WIDTH + i] = sum[i];
      } else {
        for (int64_t j = 0; j < here; ++j) {
          for (int64_t i = 0; i < width; ++i) out[g * width + i] += weights[j] * v[j * width + i];
        }
      }
    }
    p += here;
  }
}

CLONES void attend_32(const PagedTokens& a, int64_t r, int64_t head, float* scores) { attend_width<32>(a, r, head, scores); }
CLONES void attend_64(const PagedTokens& a, int64_t r, int64_t head, float* scores) { attend_width<64>(a, r, head, scores); }
CLONES void attend_128(const PagedTokens& a, int64_t r, int64_t head, float* scores) { attend_width<128>(a, r, head, scores); }
CLONES void attend_any(const PagedTokens& a, int64_t r, int64_t head, float* scores) { attend_width<0>(a, r, head, scores); }

// The hash of generate/noise.rs.
inline uint32_t mixed(uint32_t x, uint32_t key0, uint32_t key1) {
  x = x * 0x9e3779b9u + key0;
  x ^= x >> 16;
  x *= 0x21f0aaadu;
  x ^= x >> 15;
  x *= 0x735a2d97u;
  x ^= x >> 15;
  x ^= key1;
  x ^= x >> 17;
  x *= 0xed5ad4bbu;
  x ^= x >> 11;
  x *= 0xac4c1b51u;
  x ^= x >> 15;
  x *= 0x31848babu;
  x ^= x >> 14;
  return x;
}

// A group of candidates (generate/noise.rs): WIDE neighbours, and their like 1, 2 and 3 STRIDEs further on.
constexpr int64_t WIDE = 4, STRIDE = 1024, HIGH = 4, TILE = STRIDE * HIGH;

// Of an exponential variate that is never 0 or infinite: 1 - uniform keeps the bits of small ones.
inline float minus_log_of_exponential(uint32_t candidate, uint32_t key0, uint32_t key1) {
  float u = (static_cast<float>(static_cast<int32_t>(mixed(candidate, key0, key1) >> 1)) + 0.5f) * 4.656612873077393e-10f;
  u = u < 0.99999994f ? u : 0.99999994f;
  const float small = u * (1.0f + u * (0.5f + u * 0.33333333f));
  return -std::log(u < 0.01f ? small : -std::log(1.0f - u));
}

// Among logits of at least `floor`: the group with the largest log of its mass + noise, of that the largest
// logit * inverse_temperature + noise.
CLONES void draw_one(
    const float* row, int64_t v, float inverse_temperature, float floor, uint32_t key0, uint32_t key1, int64_t* id, float* logprob) {
  float top = row[0];
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < v; ++i) top = row[i] > top ? row[i] : top;
  float sum = 0.0f, best = -1e30f, mass[STRIDE], noisy[STRIDE / WIDE];
  int64_t winner = 0;  // the group's first candidate
  for (int64_t tile = 0; tile < v; tile += TILE) {
    const int64_t columns = v - tile < STRIDE ? v - tile : STRIDE, groups = (columns + WIDE - 1) / WIDE;
    for (int64_t i = 0; i < groups * WIDE; ++i) mass[i] = 0.0f;
    for (int64_t from = tile; from < v && from < tile + TILE; from += STRIDE) {
      const int64_t count = v - from < STRIDE ? v - from : STRIDE;
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        const float logit = row[from + i];
        mass[i] += logit >= floor ? std::exp((logit - top) * inverse_temperature) : 0.0f;
      }
    }
    float tile_best = -1e30f;
#pragma omp simd reduction(+ : sum) reduction(max : tile_best)
    for (int64_t g = 0; g < groups; ++g) {
      const float all = (mass[WIDE * g] + mass[WIDE * g + 1]) + (mass[WIDE * g + 2] + mass[WIDE * g + 3]);
      const uint32_t group = 0x80000000u | static_cast<uint32_t>(tile / TILE * (STRIDE / WIDE) + g);
      sum += all;
      // A group without mass has the logarithm of the smallest number: it never wins.
      noisy[g] = std::log(all > 1e-37f ? all : 1e-37f) + minus_log_of_exponential(group, key0, key1);
      noisy[g] = all > 0.0f ? noisy[g] : -1e30f;
      tile_best = noisy[g] > tile_best ? noisy[g] : tile_best;
    }
    if (tile_best > best) {
      best = tile_best;
      int64_t g = 0;
      while (g < groups - 1 && noisy[g] != tile_best) ++g;
      winner = tile + WIDE * g;
    }
  }
  int64_t drawn = winner;
  best = -1e30f;
  for (int64_t i = 0; i < HIGH * WIDE; ++i) {
    const int64_t candidate = winner + i / WIDE * STRIDE + i % WIDE;
    if (candidate >= v || !(row[candidate] >= floor)) continue;
    const float noise = minus_log_of_exponential(static_cast<uint32_t>(candidate), key0, key1);
    const float score = (row[candidate] - top) * inverse_temperature + noise;
    if (score > best) best = score, drawn = candidate;
  }
  *id = drawn;
  *logprob = (row[drawn] - top) * inverse_temperature - std::log(sum);
}

// The largest logit, with its log-prob at temperature 1.
CLONES void most_probable(const float* row, int64_t v, int64_t* id, float* logprob) {
  int64_t winner = 0;
  for (int64_t i = 1; i < v; ++i) winner = row[i] > row[winner] ? i : winner;
  const float top = row[winner];
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < v; ++i) sum += std::exp(row[i] - top);
  *id = winner;
  *logprob = -std::log(sum);
}

}  // namespace

extern "C" {

void scalerl_cpu_paged_attention(const PagedTokens* a) {
  int64_t work = 0, longest = 0;
  for (int64_t r = 0; r < a->tokens; ++r) {
    append(*a, r);
    work += (a->positions[r] + 1) * a->heads * a->width;
    longest = a->positions[r] > longest ? a->positions[r] : longest;
  }
  const int threads = work < SERIAL_BELOW ? 1 : omp_get_max_threads();
  const int64_t items = a->tokens * a->kv_heads;
  const auto attend = a->width == 32 ? attend_32 : a->width == 64 ? attend_64 : a->width == 128 ? attend_128 : attend_any;
#pragma omp parallel num_threads(threads)
  {
    std::vector<float> scores(static_cast<size_t>((longest + 1) * (a->heads / a->kv_heads)));
    // Lengths differ: whoever is done takes the next.
#pragma omp for schedule(dynamic, 4)
    for (int64_t item = 0; item < items; ++item) attend(*a, item / a->kv_heads, item % a->kv_heads, scores.data());
  }
}

// Per row: inverse_temperature (0: the most probable token), floor, and two keys.
void scalerl_cpu_draw(
    const float* logits, int64_t rows, int64_t v, const float* inverse_temperature, const float* floor, const uint32_t* keys,
    int64_t* ids, float* logprobs) {
  const int threads = rows * v * 8 < SERIAL_BELOW ? 1 : omp_get_max_threads();
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = logits + r * v;
    if (inverse_temperature[r] > 0.0f) {
      draw_one(row, v, inverse_temperature[r], floor[r], keys[2 * r], keys[2 * r + 1], ids + r, logprobs + r);
    } else {
      most_probable(row, v, ids + r, logprobs + r);
    }
  }
}

}  // extern "C"

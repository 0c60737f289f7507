// Fused float32 loops for the CPU: RMSNorm, rotary embedding, SwiGLU and the rows of the head.
//
// Each replaces three to eight passes over memory by one. They take plain pointers to contiguous
// data; shapes are checked on the Rust side (ops.rs, head.rs), where each loop is also judged
// against the same formula written in torch operations. Rows are shared out statically, so the
// same number of threads gives the same bits.
//
// Built for three instruction sets; the loader picks one. Compiled with -ffast-math so that exp
// is vectorised: NaN and infinity are looked for elsewhere (the gradient norm), not here.

#include <omp.h>

#include <cmath>
#include <cstdint>
#include <vector>

#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))

namespace {

// Threads cost about 5 microseconds to wake; below this much work one is faster.
constexpr int64_t SERIAL_BELOW = 1 << 14;

int threads_for(int64_t work) { return work < SERIAL_BELOW ? 1 : omp_get_max_threads(); }

template <typename Body>
void share(int64_t rows, int64_t work, Body body) {
  const int threads = threads_for(work);
  if (threads == 1) {
    body(0, 0, rows);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const int64_t count = omp_get_num_threads(), index = omp_get_thread_num();
    body(static_cast<int>(index), rows * index / count, rows * (index + 1) / count);
  }
}

CLONES void norm_rows(const float* x, const float* w, float* y, float* scale, int64_t from, int64_t to, int64_t d, float eps) {
  for (int64_t r = from; r < to; ++r) {
    const float* row = x + r * d;
    float square = 0.0f;
#pragma omp simd reduction(+ : square)
    for (int64_t i = 0; i < d; ++i) square += row[i] * row[i];
    const float s = 1.0f / std::sqrt(square / static_cast<float>(d) + eps);
    scale[r] = s;
    float* out = y + r * d;
#pragma omp simd
    for (int64_t i = 0; i < d; ++i) out[i] = row[i] * s * w[i];
  }
}

CLONES void norm_rows_backward(
    const float* g, const float* x, const float* w, const float* scale, float* dx, float* dw, int64_t from, int64_t to, int64_t d) {
  for (int64_t r = from; r < to; ++r) {
    const float* row = x + r * d;
    const float* grad = g + r * d;
    const float s = scale[r];
    float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < d; ++i) dot += grad[i] * w[i] * row[i];
    const float c = dot * s * s * s / static_cast<float>(d);
    float* out = dx + r * d;
#pragma omp simd
    for (int64_t i = 0; i < d; ++i) {
      out[i] = grad[i] * w[i] * s - row[i] * c;
      dw[i] += grad[i] * row[i] * s;
    }
  }
}

CLONES void rotate_rows(
    const float* x, const float* cosine, const float* sine, float* y, int64_t from, int64_t to, int64_t heads, int64_t rotated,
    int64_t width, float direction) {
  const int64_t half = width / 2;
  for (int64_t r = from; r < to; ++r) {
    const float* c = cosine + r * half;
    const float* s = sine + r * half;
    for (int64_t h = 0; h < heads; ++h) {
      const float* a = x + (r * heads + h) * width;
      float* out = y + (r * heads + h) * width;
      if (h >= rotated) {
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) out[i] = a[i];
        continue;
      }
#pragma omp simd
      for (int64_t i = 0; i < half; ++i) {
        const float u = a[i], v = a[i + half], si = s[i] * direction;
        out[i] = u * c[i] - v * si;
        out[i + half] = v * c[i] + u * si;
      }
    }
  }
}

CLONES void gate_rows(const float* x, float* y, int64_t from, int64_t to, int64_t f) {
  for (int64_t r = from; r < to; ++r) {
    const float* gate = x + r * 2 * f;
    const float* up = gate + f;
    float* out = y + r * f;
#pragma omp simd
    for (int64_t i = 0; i < f; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  }
}

CLONES void gate_rows_backward(const float* g, const float* x, float* dx, int64_t from, int64_t to, int64_t f) {
  for (int64_t r = from; r < to; ++r) {
    const float* gate = x + r * 2 * f;
    const float* up = gate + f;
    const float* grad = g + r * f;
    float* dgate = dx + r * 2 * f;
    float* dup = dgate + f;
#pragma omp simd
    for (int64_t i = 0; i < f; ++i) {
      const float sigma = 1.0f / (1.0f + std::exp(-gate[i]));
      const float silu = gate[i] * sigma;
      dup[i] = grad[i] * silu;
      dgate[i] = grad[i] * up[i] * (sigma + silu * (1.0f - sigma));
    }
  }
}

CLONES void head_rows(
    const float* logits, const int64_t* targets, float* logprob, float* entropy, float* lse, int64_t from, int64_t to, int64_t v,
    float inverse_temperature) {
  for (int64_t r = from; r < to; ++r) {
    const float* row = logits + r * v;
    float top = row[0];
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < v; ++i) top = row[i] > top ? row[i] : top;
    top *= inverse_temperature;
    float sum = 0.0f, weighted = 0.0f;
#pragma omp simd reduction(+ : sum, weighted)
    for (int64_t i = 0; i < v; ++i) {
      const float shifted = row[i] * inverse_temperature - top;
      const float e = std::exp(shifted);
      sum += e;
      weighted += e * shifted;
    }
    const float log_sum = std::log(sum);
    lse[r] = log_sum + top;
    entropy[r] = log_sum - weighted / sum;
    logprob[r] = row[targets[r]] * inverse_temperature - lse[r];
  }
}

CLONES void head_rows_backward(
    float* logits, const int64_t* targets, const float* lse, const float* entropy, const float* d_logprob, const float* d_entropy,
    int64_t from, int64_t to, int64_t v, float inverse_temperature) {
  for (int64_t r = from; r < to; ++r) {
    float* row = logits + r * v;
    const float shift = lse[r], h = entropy[r];
    const float gl = d_logprob[r] * inverse_temperature, ge = d_entropy[r] * inverse_temperature;
#pragma omp simd
    for (int64_t i = 0; i < v; ++i) {
      const float logp = row[i] * inverse_temperature - shift;
      row[i] = -std::exp(logp) * (gl + ge * (logp + h));
    }
    row[targets[r]] += gl;
  }
}

}  // namespace

extern "C" {

void scalerl_cpu_norm(const float* x, const float* w, float* y, float* scale, int64_t rows, int64_t d, float eps) {
  share(rows, rows * d, [=](int, int64_t from, int64_t to) { norm_rows(x, w, y, scale, from, to, d, eps); });
}

void scalerl_cpu_norm_backward(
    const float* g, const float* x, const float* w, const float* scale, float* dx, float* dw, int64_t rows, int64_t d) {
  const int threads = threads_for(rows * d);
  std::vector<float> parts(static_cast<size_t>(threads * d), 0.0f);
  float* partial = parts.data();
  share(rows, rows * d, [=](int index, int64_t from, int64_t to) {
    norm_rows_backward(g, x, w, scale, dx, partial + index * d, from, to, d);
  });
  for (int64_t i = 0; i < d; ++i) {
    float sum = 0.0f;
    for (int t = 0; t < threads; ++t) sum += partial[t * d + i];
    dw[i] = sum;
  }
}

void scalerl_cpu_rotate(
    const float* x, const float* cosine, const float* sine, float* y, int64_t rows, int64_t heads, int64_t rotated, int64_t width,
    float direction) {
  share(rows, rows * heads * width, [=](int, int64_t from, int64_t to) {
    rotate_rows(x, cosine, sine, y, from, to, heads, rotated, width, direction);
  });
}

void scalerl_cpu_gate(const float* x, float* y, int64_t rows, int64_t f) {
  share(rows, rows * f * 4, [=](int, int64_t from, int64_t to) { gate_rows(x, y, from, to, f); });
}

void scalerl_cpu_gate_backward(const float* g, const float* x, float* dx, int64_t rows, int64_t f) {
  share(rows, rows * f * 4, [=](int, int64_t from, int64_t to) { gate_rows_backward(g, x, dx, from, to, f); });
}

void scalerl_cpu_head(
    const float* logits, const int64_t* targets, float* logprob, float* entropy, float* lse, int64_t rows, int64_t v,
    float inverse_temperature) {
  share(rows, rows * v * 4, [=](int, int64_t from, int64_t to) {
    head_rows(logits, targets, logprob, entropy, lse, from, to, v, inverse_temperature);
  });
}

void scalerl_cpu_head_backward(
    float* logits, const int64_t* targets, const float* lse, const float* entropy, const float* d_logprob, const float* d_entropy,
    int64_t rows, int64_t v, float inverse_temperature) {
  share(rows, rows * v * 4, [=](int, int64_t from, int64_t to) {
    head_rows_backward(logits, targets, lse, entropy, d_logprob, d_entropy, from, to, v, inverse_temperature);
  });
}

}  // extern "C"

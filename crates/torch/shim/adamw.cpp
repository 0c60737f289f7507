// AdamW with moments in bf16, for the CPU: the same arithmetic and the same chances as cuda/adamw.cu.
//
// Compiled with -ffast-math: a gradient that is not finite is looked for before (the norm), not here.

#include <omp.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

struct Settings {
  float scale, step_size, inverse_root, beta1, beta2, decay, epsilon;
  uint64_t key;
};

// Threads cost about 5 microseconds to wake; below this much work one is faster.
constexpr int64_t SERIAL_BELOW = 1 << 14;

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

float widened(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float y;
  std::memcpy(&y, &bits, sizeof y);
  return y;
}

float widened(float x) { return x; }

uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Up with the probability of the share that is cut off.
uint16_t by_chance(float x, uint32_t bits) { return static_cast<uint16_t>((bits_of(x) + (bits & 0xffffu)) >> 16); }

template <typename G>
void numbers(const G* grad, uint16_t* first, uint16_t* second, float* master, int64_t place, int64_t length, const Settings& s) {
#pragma omp parallel for schedule(static) if (length >= SERIAL_BELOW)
  for (int64_t i = 0; i < length; ++i) {
    const float g = widened(grad[i]) * s.scale;
    const float m = s.beta1 * widened(first[i]) + (1.0f - s.beta1) * g;
    const float v = s.beta2 * widened(second[i]) + (1.0f - s.beta2) * g * g;
    const uint32_t bits = static_cast<uint32_t>(mixed(s.key + static_cast<uint64_t>(place + i + 1) * 0x9e3779b97f4a7c15ull));
    first[i] = by_chance(m, bits);
    second[i] = by_chance(v, bits >> 16);
    const float p = master[i] - s.decay * master[i];
    master[i] = p - s.step_size * m / (std::sqrt(v) * s.inverse_root + s.epsilon);
  }
}

}  // namespace

extern "C" void scalerl_cpu_adamw(
    const void* grad, int is_grad_narrow, uint16_t* first, uint16_t* second, float* master, int64_t place, int64_t length,
    const Settings* settings) {
  if (is_grad_narrow != 0)
    numbers(static_cast<const uint16_t*>(grad), first, second, master, place, length, *settings);
  else
    numbers(static_cast<const float*>(grad), first, second, master, place, length, *settings);
}

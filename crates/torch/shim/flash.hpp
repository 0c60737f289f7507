// How far back and forward flash attention looks, from the number of tokens that a query sees, itself among them; 0 is no limit.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

inline std::pair<std::optional<int64_t>, std::optional<int64_t>> flash_window(int64_t window) {
  if (window <= 0) return {std::nullopt, std::nullopt};
  return {window - 1, 0};
}

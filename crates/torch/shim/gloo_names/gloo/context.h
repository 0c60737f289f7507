// Stand-in, see algorithm.h. No object of this type is ever made on our side.
#pragma once
#include <chrono>
#include <memory>
namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};
}  // namespace gloo

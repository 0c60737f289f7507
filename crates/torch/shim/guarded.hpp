// No C++ exception crosses into Rust: a body that throws leaves a sentence for scalerl_last_error() (shim.cpp).
#pragma once

#include <c10/util/Exception.h>

#include <exception>

extern "C" void scalerl_set_error(const char* text);

template <typename Body>
int guarded(Body&& body) {
  try {
    body();
    return 0;
  } catch (const c10::Error& error) {
    scalerl_set_error(error.what_without_backtrace());
  } catch (const std::exception& error) {
    scalerl_set_error(error.what());
  } catch (...) {
    scalerl_set_error("an unknown C++ exception");
  }
  return 1;
}

// The files that call libtorch, compiled as one.
#include "c10d.cpp"
#include "counting.cpp"
#include "graph.cpp"
#include "shim.cpp"

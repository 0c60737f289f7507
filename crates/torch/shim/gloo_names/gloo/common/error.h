// Stand-in, see ../algorithm.h.
#pragma once

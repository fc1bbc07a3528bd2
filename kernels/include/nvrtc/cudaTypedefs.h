// Types of host functions, of which device code takes none; the rest is cuda.h.
#pragma once
#include <cuda.h>

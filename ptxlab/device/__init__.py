"""The worker process that alone loads CUDA. Jobs go in, arrays and timings come out."""

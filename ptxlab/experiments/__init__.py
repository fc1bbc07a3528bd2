"""Experiments: a kernel, a prediction and a claim. Probes and GEMM stages, found in folders."""

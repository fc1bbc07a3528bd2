"""The external tools (NVRTC, ptxas, nvdisasm, cuobjdump, ncu) and the compile cache."""

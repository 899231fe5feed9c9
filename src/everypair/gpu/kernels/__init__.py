"""CUDA sources; :mod:`everypair.gpu.sources` reads them."""

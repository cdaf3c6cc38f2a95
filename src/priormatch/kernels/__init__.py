"""CUDA graphs and Triton kernels; everything here has a plain counterpart in `models` or `decoding`."""

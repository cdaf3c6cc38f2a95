"""CUDA graphs and Triton kernels; each has a plain PyTorch counterpart in `models` or `decoding`."""

"""The chunked form on a GPU, by Triton (CUDA.md)."""

"""What tests share: streams, equations, and ways to run kernels."""

"""What every test of the package needs before NumPy is imported."""

import os

# Workers share the cores: threads of their matrix products would wait for each other, each with a core to itself.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

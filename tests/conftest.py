"""Hypothesis draws the same examples every time, without a deadline: kernels compile on first use."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "emphatic",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("emphatic")

"""The data that comes with the package; README.md beside this file says where it is from."""

from pathlib import Path

__all__ = ["household"]


def household() -> Path:
    """One household's electric power, seven signals a minute for ninety days, as a Parquet file.

    2007-02-01 to 2007-05-01, both included: 129,600 rows, 3,726 of them without readings.
    Hebrail & Bérard, UCI data set 235, CC BY 4.0.

    >>> household().name
    'household.parquet'
    """
    return Path(__file__).parent / "household.parquet"

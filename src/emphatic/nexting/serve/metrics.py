"""What a service tells Prometheus of itself, in its text format."""

from __future__ import annotations

import math
import platform
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from emphatic.nexting.serve.status import ConnectionStatus

if TYPE_CHECKING:
    from emphatic.nexting.serve.service import Service

__all__ = ["Histogram", "write_metrics"]

#: The upper ends of the buckets of a histogram, in seconds.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Histogram:
    """How many durations were at most as long as each bucket, and their sum. One thread writes it.

    >>> histogram = Histogram()
    >>> histogram.observe(0.004)
    >>> list(histogram.lines("wait"))[1:4]
    ['wait_bucket{le="0.0025"} 0', 'wait_bucket{le="0.005"} 1', 'wait_bucket{le="0.01"} 1']
    """

    def __init__(self) -> None:
        self._counts = [0] * (len(_SECONDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(_SECONDS, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str) -> Iterator[str]:
        """The samples, as Prometheus reads them."""
        counts, total = list(self._counts), 0
        for end, count in zip((*map(str, _SECONDS), "+Inf"), counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{end}"}} {total}'
        yield f"{name}_sum {self._sum}"
        yield f"{name}_count {total}"


class _Metric(NamedTuple):
    """A metric of a service: its kind, what it is, and its value."""

    kind: str
    text: str
    value: float


#: What is known of each source or publisher: the name of the metric, its kind, its text, and its value.
_OF_A_CONNECTION: tuple[tuple[str, str, str, Callable[[ConnectionStatus], float | None]], ...] = (
    ("connected", "gauge", "1 while it is connected, or has ended normally.", lambda status: int(status.is_well)),
    ("lag", "gauge", "Messages that wait to be read.", lambda status: status.lag),
    ("messages_total", "counter", "Messages since the service started.", lambda status: status.messages),
    ("last_message_seconds", "gauge", "When the last message was, in Unix time.", lambda status: status.last_message),
    ("lost_total", "counter", "Messages that were lost, as far as they can be counted.", lambda status: status.lost),
    ("losses_total", "counter", "How often messages were lost.", lambda status: status.losses),
    ("skipped_total", "counter", "Predictions that came back, and were skipped.", lambda status: status.skipped),
)


def _connection_metrics(kind: str, statuses: Sequence[ConnectionStatus]) -> Iterator[str]:
    for name, type_, text, value in _OF_A_CONNECTION:
        values = {status.name: value(status) for status in statuses}
        if any(number is not None for number in values.values()):
            yield from _head(f"{kind}_{name}", type_, text)
        for address, number in values.items():
            if number is not None:
                yield f'emphatic_{kind}_{name}{{{kind}="{_label(address)}"}} {number}'


def write_metrics(service: Service, wrong_tokens: int = 0, failed_logins: int = 0) -> str:
    """The answer to ``/metrics``, in the text format of Prometheus.

    Args:
        service: The service.
        wrong_tokens: The requests and logins with a wrong token.
        failed_logins: The logins among them.
    """
    rate, lag = service.traffic.rate_and_lag()
    journal = service.journal_state()
    metrics = {
        "readings_total": _Metric("counter", "Readings accepted since the service started.", service.readings),
        "repeated_total": _Metric(
            "counter", "Readings with a known id, which were not learned from again.", service.repeated
        ),
        "malformed_total": _Metric("counter", "Readings that could not be used.", service.malformed),
        "wrong_tokens_total": _Metric("counter", "Requests and logins with a wrong token.", wrong_tokens),
        "failed_logins_total": _Metric("counter", "Logins on the page with a wrong token.", failed_logins),
        "queue": _Metric("gauge", "Readings that wait.", len(service.inbox)),
        "lag_seconds": _Metric("gauge", "The longest wait of a reading in the last five seconds.", lag),
        "step": _Metric("gauge", "Readings that the model has learned from.", service.step),
        "saved_step": _Metric("gauge", "Readings that the saved model has learned from.", service.saved_step),
        "saved_seconds": _Metric("gauge", "When the model was last saved, in Unix time.", service.saved_at),
        "unacknowledged": _Metric("gauge", "Readings that are not on the disk yet.", service.unacknowledged),
        "journal_bytes": _Metric("gauge", "The size of the journal.", journal.size),
        "journal_torn": _Metric("gauge", "1 if a crash interrupted the last write.", int(journal.is_torn)),
        "journal_lost": _Metric("gauge", "Readings that a repair of the journal could not save.", journal.lost),
        "rate": _Metric("gauge", "Readings per second, over the last five seconds.", rate),
        "warming_up": _Metric("gauge", "1 while there is no model yet.", int(service.warming_up)),
        "trouble": _Metric("gauge", "1 while the disk cannot be written.", int(bool(service.trouble))),
    }
    lines = [*_head("build_info", "gauge", "The version that runs; always 1.")]
    about = {"version": version("emphatic"), "python": platform.python_version()}
    lines.append(f"emphatic_build_info{{{_labels(about)}}} 1")
    for name, metric in metrics.items():
        lines += [*_head(name, metric.kind, metric.text), f"emphatic_{name} {metric.value}"]
    for name, text, histogram in (
        ("latency_seconds", "From the arrival of a reading until it is safe, and answered.", service.latency),
        ("reading_lag_seconds", "From the arrival of a reading until it is learned from.", service.lag),
    ):
        lines += [*_head(name, "histogram", text), *histogram.lines(f"emphatic_{name}")]
    lines += _connection_metrics("source", service.sources)
    lines += _connection_metrics("publisher", service.publishers)
    errors = [({"signal": name, "horizon": horizon}, error) for name, horizon, error in service.rmse()]
    lines += _samples("rmse", "Root mean square error of the predictions so far.", errors)
    lines += _prediction_metrics(service)
    return "\n".join(lines) + "\n"


def _prediction_metrics(service: Service) -> Iterator[str]:
    """The latest predictions, the ends of their intervals, anomaly scores and alarms."""
    latest = service.latest
    if latest is None:
        return
    keys = [{"signal": name, "horizon": horizon} for name, horizon in latest.format.keys]
    kinds = (("prediction", "The latest prediction."), ("interval_low", "The lower bound of its interval."))
    for place, (name, text) in enumerate((*kinds, ("interval_high", "The upper bound of its interval."))):
        yield from _samples(name, text, zip(keys, latest.values[:, place].tolist(), strict=True))
    if latest.said is not None:
        signals = [{"signal": name} for name in latest.format.signals]
        scores, alarms = latest.said.anomaly.tolist(), (latest.said.why > 0).astype(float).tolist()
        yield from _samples("anomaly_score", "How unusual the latest value is.", zip(signals, scores, strict=True))
        yield from _samples("alarm", "1 in an alarm.", zip(signals, alarms, strict=True))


def _samples(name: str, text: str, values: Iterable[tuple[Mapping[str, str], float | None]]) -> Iterator[str]:
    """The samples of a gauge, without those that are not known."""
    lines = [
        f"emphatic_{name}{{{_labels(labels)}}} {value}"
        for labels, value in values
        if value is not None and math.isfinite(value)
    ]
    if lines:
        yield from _head(name, "gauge", text)
        yield from lines


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP emphatic_{name} {text}"
    yield f"# TYPE emphatic_{name} {kind}"


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_label(text)}"' for name, text in labels.items())


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

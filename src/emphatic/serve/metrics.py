"""What a service tells Prometheus of itself, in its text format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from emphatic.serve.service import Service
from emphatic.serve.status import ConnectionStatus

__all__ = ["write_metrics"]

#: What is known of each source or publisher: the name of the metric, its kind, its text, and its value.
_OF_A_CONNECTION: tuple[tuple[str, str, str, Callable[[ConnectionStatus], float | None]], ...] = (
    ("connected", "gauge", "1 while it is connected.", lambda status: int(status.state == "connected")),
    ("lag", "gauge", "Messages that are still to be taken.", lambda status: status.lag),
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
            yield f"# HELP emphatic_{kind}_{name} {text}"
            yield f"# TYPE emphatic_{kind}_{name} {type_}"
        for address, number in values.items():
            if number is not None:
                yield f'emphatic_{kind}_{name}{{{kind}="{_label(address)}"}} {number}'


def write_metrics(service: Service, wrong_tokens: int = 0) -> str:
    """The answer to ``/metrics``, in the text format of Prometheus."""
    rate, lag = service.traffic.rate_and_lag()
    metrics = {
        "readings_total": ("counter", "Readings taken since the service started.", service.readings),
        "repeated_total": ("counter", "Readings that were known, and not learned from again.", service.repeated),
        "malformed_total": ("counter", "Readings that could not be used.", service.malformed),
        "wrong_tokens_total": ("counter", "Requests and logins with a wrong token.", wrong_tokens),
        "queue": ("gauge", "Readings that wait.", len(service.inbox)),
        "lag_seconds": ("gauge", "The longest wait of a reading in the last five seconds.", lag),
        "step": ("gauge", "Readings that the model has learned from.", service.step),
        "saved_step": ("gauge", "Readings that the saved model has learned from.", service.saved_step),
        "unacknowledged": ("gauge", "Readings that are not on the disk yet.", service.unacknowledged),
        "rate": ("gauge", "Readings a second, over the last five seconds.", rate),
        "warming_up": ("gauge", "1 while there is no model yet.", int(service.warming_up)),
        "trouble": ("gauge", "1 while the disk takes nothing.", int(bool(service.trouble))),
    }
    lines = []
    for name, (kind, text, value) in metrics.items():
        lines += [f"# HELP emphatic_{name} {text}", f"# TYPE emphatic_{name} {kind}", f"emphatic_{name} {value}"]
    lines += _connection_metrics("source", service.sources)
    lines += _connection_metrics("publisher", service.publishers)
    errors = [(_label(name), _label(horizon), error) for name, horizon, error in service.rmse() if error is not None]
    if errors:
        lines += ["# HELP emphatic_rmse Root mean square error of recent predictions.", "# TYPE emphatic_rmse gauge"]
    lines += [f'emphatic_rmse{{signal="{name}",horizon="{horizon}"}} {error}' for name, horizon, error in errors]
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

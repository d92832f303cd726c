"""What a service tells of itself: signals, status, metrics, and the description of its interface."""

from __future__ import annotations

from typing import Any

from emphatic.nexting.predictor import ENDS, OF_A_SIGNAL
from emphatic.serve.service import Service

__all__ = ["describe_interface", "describe_signals", "describe_status", "write_metrics"]


def describe_signals(service: Service) -> dict[str, Any]:
    """The answer to ``/signals``."""
    recent, latest = service.recent, service.latest
    format = recent.format if recent is not None else None if latest is None else latest.format
    predicted = {} if format is None else {name: list(at) for name, at in format.places.items()}
    return {
        "signals": list(predicted) if recent is None else list(recent.names),
        "predicted": predicted,
        "time": service.predictor.clock is not None,
        "warming_up": service.warming_up,
        "waiting": service.waiting,
        "warm_up": service.warm_up,
        "step": service.step,
        "learning": service.learn,
    }


def describe_status(service: Service, signal: str | None = None) -> dict[str, Any]:
    """How the service does; with a signal, the error of its predictions too."""
    rate, lag = service.traffic.rate_and_lag()
    status = {
        "step": service.step,
        "readings": service.readings,
        "malformed": service.malformed,
        "rate": round(rate, 3),
        "lag": round(lag, 4),
        "queue": len(service.inbox),
        "saved_step": service.saved_step,
        "warming_up": service.warming_up,
        "waiting": service.waiting,
        "warm_up": service.warm_up,
        "trouble": service.trouble,
    }
    if signal is not None:
        status["error"] = {horizon: error for name, horizon, error in service.rmse() if name == signal}
    return status


def write_metrics(service: Service) -> str:
    """The answer to ``/metrics``, in the text format of Prometheus."""
    rate, lag = service.traffic.rate_and_lag()
    numbers = {
        "readings_total": ("counter", "Readings taken since the service started.", service.readings),
        "malformed_total": ("counter", "Readings that could not be used.", service.malformed),
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
    for name, (kind, text, value) in numbers.items():
        lines += [f"# HELP emphatic_{name} {text}", f"# TYPE emphatic_{name} {kind}", f"emphatic_{name} {value}"]
    errors = [each for each in service.rmse() if each[2] is not None]
    if errors:
        lines += ["# HELP emphatic_rmse Root mean square error of recent predictions.", "# TYPE emphatic_rmse gauge"]
    lines += [f'emphatic_rmse{{signal="{_label(n)}",horizon="{_label(h)}"}} {error}' for n, h, error in errors]
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def describe_interface(version: str) -> dict[str, Any]:
    """The answer to ``/openapi.json``."""
    error = {"$ref": "#/components/schemas/Error"}
    line = {"$ref": "#/components/schemas/Prediction"}
    reading = {"$ref": "#/components/schemas/Reading"}

    def answer(text: str, schema: Any = None, kind: str = "application/json") -> dict[str, Any]:
        return {"description": text} if schema is None else {"description": text, "content": {kind: {"schema": schema}}}

    def get(text: str, kind: str, schema: Any, **others: Any) -> dict[str, Any]:
        return {"get": {"summary": text, "responses": {"200": answer(text, schema, kind), **others}}}

    by_horizon = {"type": "object", "additionalProperties": {"type": "object"}}
    taken = {"type": "object", "properties": {"taken": {"type": "integer"}}}
    anything = {"type": "object"}
    refusals = {
        "400": answer("The body is not JSON, or the Host header names another service.", error),
        "401": answer("A token is required.", error),
        "408": answer("The body took too long.", error),
        "413": answer("The body is longer than 1 MiB.", error),
        "415": answer("The body is of another type.", error),
        "422": answer("A single reading that cannot be used, and why; nothing is learned from it.", error),
        "503": answer("The queue is full: so many readings were taken. Send the rest again later.", taken),
    }
    forms = {
        "application/json": {"schema": {"oneOf": [reading, {"type": "array", "items": reading}]}},
        "application/x-ndjson": {"schema": {"type": "string", "description": "one JSON object a line"}},
    }
    lines = answer("The predictions; of a list or of lines, a line for each reading.", line)
    lines["content"]["application/x-ndjson"] = {"schema": {"type": "string", "description": "a Prediction a line"}}
    post = {
        "summary": "Learn from readings; a line for each, once it is safe.",
        "requestBody": {"required": True, "content": forms},
        "responses": {"200": lines, **refusals},
    }
    which = {"name": "signal", "in": "query", "required": False, "schema": {"type": "string"}}
    stream = get("Rows and status as they come: server-sent events.", "text/event-stream", {"type": "string"})
    stream["get"]["parameters"] = [which]
    stream["get"]["responses"] |= {"404": answer("No such signal.", error), "503": answer("Too many streams.", error)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "emphatic serve", "version": version, "summary": "Predictions of readings, learned online."},
        "paths": {
            "/readings": {"post": post},
            "/predictions": get("The latest predictions.", "application/json", line),
            "/stream": stream,
            "/signals": get("What is read and what is predicted.", "application/json", anything),
            "/healthz": get("The service is alive.", "application/json", anything, **{"503": answer("It is not.")}),
            "/readyz": get("There is a model.", "application/json", anything, **{"503": answer("It is warming up.")}),
            "/metrics": get("Metrics, for Prometheus.", "text/plain", {"type": "string"}),
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Reading": {
                    "type": "object",
                    "description": "names and readings; null or absent is missing",
                    "additionalProperties": {"type": ["number", "string", "boolean", "null"]},
                },
                "Prediction": {
                    "type": "object",
                    "properties": {
                        "step": {"type": ["integer", "null"]},
                        "time": {"description": "as it was written"},
                        "predictions": by_horizon,
                        **dict.fromkeys(ENDS, by_horizon),
                        **{kind: {"type": "object"} for kind in OF_A_SIGNAL},
                    },
                },
                "Error": {"type": "object", "properties": {"error": {"type": "string"}}},
            },
        },
        "security": [{}, {"token": []}],
    }  # fmt: skip

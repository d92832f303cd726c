"""Readings from standard input, in JSON lines or CSV, as ``emphatic nexting -`` reads them."""

from __future__ import annotations

import logging
import os
import threading

from emphatic.serve.inbox import Incoming
from emphatic.serve.service import Service
from emphatic.tables.delimited import LOOK_LINES
from emphatic.tables.pipe import JSON, Malformed, Reading, Readings, TextForm, line_blocks
from emphatic.tables.table_errors import TableError

__all__ = ["StandardInput"]

logger = logging.getLogger("emphatic.serve")


class StandardInput:
    """A thread that reads lines, and no further than there is room. At the end of the input the service goes on."""

    def __init__(self, service: Service, descriptor: int = 0) -> None:
        self._service, self._descriptor = service, descriptor
        self._wake, self._waker = os.pipe()
        self._thread = threading.Thread(target=self._run, name="emphatic standard input", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        os.write(self._waker, b"x")
        self._thread.join(2.0)

    def _run(self) -> None:
        predictor = self._service.predictor
        look = min(LOOK_LINES, self._service.warm_up)
        readings = Readings((), predictor.columns, predictor.delimiter, look, predictor.header)
        try:
            for lines in line_blocks(self._descriptor, self._wake):
                for _, reading in readings.feed(lines):
                    self._put(reading, readings.form)
            for _, reading in readings.finish():
                self._put(reading, readings.form)
            logger.info("standard input has ended.")
        except (TableError, OSError) as error:
            logger.error("standard input is read no further: %s", error)

    def _put(self, reading: Reading | Malformed, form: TextForm) -> None:
        origin = None if form == JSON else {"delimiter": form.delimiter, "unnamed": list(form.unnamed)}
        self._service.inbox.put(Incoming(reading, origin=origin))

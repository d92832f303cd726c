"""Where experience comes from: tables (``emphatic.tables``), and environments beside an agent (``gymnasium``)."""

from emphatic.tables import Block, Clock, Hold, Table, TableError, open_table

__all__ = ["Block", "Clock", "Hold", "Table", "TableError", "open_table"]

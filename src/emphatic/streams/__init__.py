"""Sources of experience: tables (``emphatic.tables``), and environments with an agent (``gymnasium``)."""

from emphatic.tables import Block, Clock, Hold, Table, TableError, open_table

__all__ = ["Block", "Clock", "Hold", "Table", "TableError", "open_table"]

"""Where experience comes from: tables in files and frames.

>>> import emphatic
>>> table = emphatic.nexting.tables.open_table(emphatic.nexting.data.household())
>>> table.names[:3], table.time, table.rows
(('Global_active_power', 'Global_reactive_power', 'Voltage'), 'time', 129600)
>>> clock, hold = table.clock(), emphatic.nexting.tables.Hold(len(table.names))
>>> for block in table.blocks():
...     gap = clock.find_gaps(block.time)
...     values, missing = hold.fill(block.values)
>>> clock.step, clock.gaps, hold.missing[0].item(), hold.longest[0].item()
(60.0, 0, 3726, 3723)
"""

from emphatic.nexting.tables.clock import Clock, Hold
from emphatic.nexting.tables.guard import ReadingGuard
from emphatic.nexting.tables.table import Block, Table, TableError, open_table

__all__ = ["Block", "Clock", "Hold", "ReadingGuard", "Table", "TableError", "open_table"]

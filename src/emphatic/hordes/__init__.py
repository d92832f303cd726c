"""Hordes: many questions of one stream, on rows of a log or beside an agent."""

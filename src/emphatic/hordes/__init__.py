"""Hordes: many questions about one stream, from the rows of a log or the transitions of an agent."""

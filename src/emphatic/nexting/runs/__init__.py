"""A run on a table: settings, learning, scores and the report."""

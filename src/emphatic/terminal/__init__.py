"""What the commands show in a terminal: progress with the time left, short tables, and errors in a line."""

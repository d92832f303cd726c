"""What every package may use: files written whole or not at all, unknown names, versions."""

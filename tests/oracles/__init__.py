"""Published numbers, and the forward view."""

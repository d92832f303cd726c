"""One answer to each question about the future, from one mechanism. ``ANSWERS.md`` has the derivation."""

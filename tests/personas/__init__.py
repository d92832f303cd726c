"""What eleven users do, each as a script of its own that knows only what the documentation says.

A script runs in an empty folder and fails by an exception. ``test_personas`` runs all of them.
"""

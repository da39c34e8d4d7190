"""Callbacks and wrappers for training frameworks. Each imports its framework only when it is used."""

"""Metrics of tasks, as pure functions."""

"""Formats of the tasks' files."""

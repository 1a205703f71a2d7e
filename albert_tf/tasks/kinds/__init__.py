"""Kinds of tasks: what an example is, and how it is scored."""

"""Batches as pure functions of the step."""

"""Weights: names, files, config.json, conversion."""

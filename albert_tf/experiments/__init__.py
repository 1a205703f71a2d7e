"""Searches and tables of experiments, as data."""

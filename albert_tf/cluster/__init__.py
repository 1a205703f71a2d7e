"""Replicas, workers and hardware."""

"""Tools for shards: inspect, verify, import."""

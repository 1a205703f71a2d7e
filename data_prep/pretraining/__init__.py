"""Documents -> pretraining shards."""

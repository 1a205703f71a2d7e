"""Records: schemas, wire format, shards, masking, random numbers."""

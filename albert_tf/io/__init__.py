"""Files: on disks and in buckets, JSON, encodings."""

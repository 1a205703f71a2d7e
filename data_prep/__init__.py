"""Offline jobs: corpora, vocabularies, shards."""

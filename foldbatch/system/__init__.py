"""Helpers that know nothing of models: files, caches, locks, processes, terminals."""

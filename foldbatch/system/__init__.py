"""What knows nothing of models: files, caches, locks, processes, terminals."""

"""From the integers of examples to the launches of a batch: one text of loops, for all engines."""

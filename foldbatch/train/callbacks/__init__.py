"""Callbacks of a `foldbatch.train.Trainer`."""

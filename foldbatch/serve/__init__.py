"""A server of predictions: requests of many clients in, batches through one engine, answers out."""

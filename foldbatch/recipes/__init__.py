"""Recipes: from a configuration to a model that is trained, tested and saved."""

"""Attacks: files of models with other settings, loaded and run where everything that could be harm is noticed."""

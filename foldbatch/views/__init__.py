"""Views: cells explained in text and drawings, batches drawn as pictures.

Nothing that compiles or runs a model imports from here.
"""

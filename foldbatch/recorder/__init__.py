"""The recorder of both doors: the lists to which calls of cells are appended."""

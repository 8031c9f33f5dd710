"""Exporting: a trained model as a file that other runtimes read."""

from foldbatch.exporting.exporter import Exporter, to_onnx
from foldbatch.exporting.graph import Tables

__all__ = ["Exporter", "Tables", "to_onnx"]

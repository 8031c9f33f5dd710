"""Exporting: a trained model as a file that other runtimes read."""

from foldbatch.exporting.exporter import Exporter, Tables, to_onnx

__all__ = ["Exporter", "Tables", "to_onnx"]

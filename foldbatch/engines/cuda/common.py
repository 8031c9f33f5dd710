"""Kernels that every program needs, by name; each is a text in the language of ``device.h``."""

from __future__ import annotations

COMMON: dict[str, str] = {}

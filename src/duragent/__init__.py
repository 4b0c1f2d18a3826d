"""Agents are files: read them from any of four formats, check them, convert them, run them."""

__version__ = "0.1.0"

"""MirrorMaker 2 for the Python and Spark world."""

__version__ = "0.1.0"

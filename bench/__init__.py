"""
The benchmark: the same work through mm2py and through Java MirrorMaker 2, in one run on the same two brokers.

Started as ``python -m bench``. What is measured and how to read it is in this directory's README.md.
"""

"""The status page: its files, and its live view."""

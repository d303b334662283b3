"""The status page: its files, and the view that it is sent."""

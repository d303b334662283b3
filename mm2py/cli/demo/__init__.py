"""The demo: see it work on this machine before trusting it with yours."""

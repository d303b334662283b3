"""Decisions: values in, values out. No asyncio, no I/O, no clock, no logging."""

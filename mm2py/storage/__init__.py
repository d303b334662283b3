"""Internal topics: what a flow keeps in them, and how they are created and read."""

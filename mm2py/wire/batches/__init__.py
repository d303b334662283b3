"""Record batches, and records where they have to be opened."""

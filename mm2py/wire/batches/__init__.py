"""Record batches, and records if they have to be decoded."""

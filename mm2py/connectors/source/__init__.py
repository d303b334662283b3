"""The source task group: what it copies, epoch after epoch, and what it does when the source's history broke."""

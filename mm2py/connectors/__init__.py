"""The task groups of a flow, as loops around core and pipeline."""

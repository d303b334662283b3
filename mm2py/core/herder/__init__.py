"""The effect of operators' changes on a flow."""

"""What operators' changes make of a flow."""

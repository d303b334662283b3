"""What answers each route."""

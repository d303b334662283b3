"""Values of nodes, of what each runs, and of what operators ask for."""

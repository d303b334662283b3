"""Who may do what over REST."""

"""Tasks: where episodes begin, what is observed, what is good."""

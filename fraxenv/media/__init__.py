"""What is looked at: figures and films."""

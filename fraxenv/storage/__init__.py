"""What lies on disk: files, states of environments, configurations, and where numbers come from."""

"""What is left behind: an export that runs."""

"""What was ever done with a problem: marks in one append-only file of the project."""

"""The blinded read: pairs of answers that a rater compares without knowing whose they are, and what its ratings come to."""

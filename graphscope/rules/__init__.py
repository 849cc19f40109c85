"""Each file here is one rule: its explanation, its examples and its logic."""

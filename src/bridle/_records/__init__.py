"""What the public records are made of: raw lines, checked fields, matchers."""

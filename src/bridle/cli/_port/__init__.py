"""What ``bridle port`` knows: the native names, and how to rewrite uses of the official SDK."""

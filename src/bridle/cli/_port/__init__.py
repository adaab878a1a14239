"""What ``bridle port`` knows: the native names, and how to find the uses of the official SDK."""

"""What Bridle costs, side by side with the official SDK and with the floor: ``python -m bench``."""

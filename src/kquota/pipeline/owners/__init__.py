"""Who used how much: usage by owner and day."""

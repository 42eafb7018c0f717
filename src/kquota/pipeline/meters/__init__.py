"""How close each meter comes to its limit, and who was throttled."""

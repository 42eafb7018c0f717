"""Commands that listen: serve, gateway."""

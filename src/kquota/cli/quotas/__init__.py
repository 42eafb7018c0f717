"""Commands about quotas as they are set: describe, resolve, alter, export, lint, history, backup, restore."""

"""Commands about quotas as they are meant: plan, apply, rollback."""

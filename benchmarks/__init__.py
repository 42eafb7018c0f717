"""Benchmarks of kquota: what is claimed, measured beside named baselines. See README.md."""

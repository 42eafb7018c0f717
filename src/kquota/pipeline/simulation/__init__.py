"""Kafka's statistics over traffic that has already been: what a broker did with it, or would do."""

"""Kafka's own arithmetic on the log, held against the throttle times that the broker returned."""

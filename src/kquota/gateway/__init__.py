"""The gateway: a proxy that enforces Kafka's quotas in front of any Kafka cluster."""

"""Brokers' metrics, by JMX and Prometheus: from readings to usage."""

"""Apache Kafka's client-quota system, usable on its own."""

__version__ = "0.1.0"

"""The messages of the APIs that kquota ends, one module for each API. Names are Kafka's, fields in its order."""

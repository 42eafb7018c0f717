"""Listening for Kafka clients with asyncio: connections, TLS, frames, order of answers, backpressure."""

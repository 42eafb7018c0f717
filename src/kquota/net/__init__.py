"""Listening for Kafka clients with asyncio: connections, frames, order of answers, backpressure."""

"""Kafka's wire for the APIs that kquota ends: bytes to values and back. Pure: no socket, no clock.

- :mod:`~kquota.wire.frames` cuts a stream into frames;
- :mod:`~kquota.wire.apis` reads and writes requests and responses by API key and version;
- :mod:`~kquota.wire.messages` holds the messages, written in the notation of :mod:`~kquota.wire.schema`.
"""

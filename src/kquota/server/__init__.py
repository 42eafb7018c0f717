"""The quota server: Kafka's quota APIs, KIP-546's resolve among them, for unmodified Kafka clients.

:mod:`~kquota.server.app` runs it; :mod:`~kquota.server.answering` turns a request into its answer, with one module for
each API in :mod:`~kquota.server.handlers`.
"""

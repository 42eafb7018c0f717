"""Kafka's request log: from lines to what they were charged, to cells of one second."""

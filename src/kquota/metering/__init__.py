"""What happens when traffic arrives: statistics, limits, throttle times. Pure: time is an argument, in milliseconds.

The numbers are the broker's own. Sources: ``org.apache.kafka.common.metrics`` and ``org.apache.kafka.server.quota``.
"""

from tests.kit.kafka import broker

__all__ = ["broker"]

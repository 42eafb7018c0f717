from tests.kit.kafka import broker
from tests.real.both_servers import both

__all__ = ["both", "broker"]

from tests.kit.go_programs import go_programs
from tests.kit.kafka import broker, three_brokers
from tests.real.both_servers import both

__all__ = ["both", "broker", "go_programs", "three_brokers"]

from tests.kit.go_programs import go_programs
from tests.kit.kafka import broker, three_brokers
from tests.real.both_servers import both
from tests.real.gateways import lone_broker

__all__ = ["both", "broker", "go_programs", "lone_broker", "three_brokers"]

from pathlib import Path

import pytest

from tests.kit.go_programs import go_programs
from tests.kit.kafka import NEW, broker, needs_compiler, needs_kafka, three_brokers
from tests.kit.workload import Programs
from tests.real.both_servers import both
from tests.real.gateways import lone_broker

__all__ = ["both", "broker", "go_programs", "lone_broker", "programs", "three_brokers"]


@pytest.fixture(scope="session")
def programs(go_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Programs:
    needs_compiler()
    return Programs.build(needs_kafka(NEW), go_programs, tmp_path_factory.mktemp("workload-client"))

import os

from hypothesis import HealthCheck, settings

from tests.kit.s3 import s3_program, s3_server

__all__ = ["s3_program", "s3_server"]

# The default is quick and tries the same examples every time; `KQUOTA_HYPOTHESIS=exhaustive` looks further, each time
# elsewhere.
# No deadline: how long an example takes says more about the machine than about the code.
settings.register_profile("quick", max_examples=100, derandomize=True, database=None, deadline=None)
settings.register_profile(
    "exhaustive", max_examples=5_000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("KQUOTA_HYPOTHESIS", "quick"))

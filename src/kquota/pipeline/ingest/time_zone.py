"""Names of time zones."""

from zoneinfo import ZoneInfo

from kquota.errors import InputError

__all__ = ["check_time_zone"]


def check_time_zone(name: str) -> str:
    """Check an IANA zone name.

    :raises InputError: there is no such zone.
    """
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InputError(
            f"`timezone` {name}: no such time zone: give an IANA name such as UTC, Europe/Berlin or America/New_York"
        ) from None
    return name

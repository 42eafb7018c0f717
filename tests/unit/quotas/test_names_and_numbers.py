"""Sanitizer, HashMap order, addresses, and numbers as text."""

import json
import math
import re
import struct
from pathlib import Path
from urllib.parse import unquote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kquota.errors import IllegalArgumentError
from kquota.quotas import (
    canonical_ip,
    desanitize,
    format_number,
    host_address,
    is_literal_ip,
    jmx_sanitize,
    parse_quantity,
    sanitize,
)
from kquota.quotas.java_map import hash_map_order, string_hash_code
from tests.kit.strategies import any_names

JVM = json.loads((Path(__file__).parents[2] / "data" / "jvm_facts.json").read_text())


@pytest.mark.parametrize(
    "name, sanitized",
    [
        ("O=A client,CN=localhost", "O%3DA%20client%2CCN%3Dlocalhost"),
        ("<default>", "%3Cdefault%3E"),
        ("user with spaces", "user%20with%20spaces"),
        ("~*+", "%7E%2A%2B"),
        ("azAZ09.-_", "azAZ09.-_"),
        ("é😀", "%C3%A9%F0%9F%98%80"),
        ("\ud800", "%3F"),
        ("", ""),
    ],
)
def test_sanitize(name: str, sanitized: str) -> None:
    assert sanitize(name) == sanitized


@given(any_names)
def test_sanitized_names_round_trip_and_are_harmless(name: str) -> None:
    """Only [A-Za-z0-9._-%] is left, which JMX never quotes (upstream: SanitizerTest)."""
    sanitized = sanitize(name)
    assert desanitize(sanitized) == name
    assert re.fullmatch(r"[A-Za-z0-9._%-]*", sanitized)
    assert jmx_sanitize(sanitized) == sanitized


@given(st.text(st.sampled_from("ab+%2AéZ0Cc39"), max_size=12))
def test_desanitize_is_url_decoding(text: str) -> None:
    """A ``+`` is a space; a malformed % raises; bytes that are not UTF-8 become U+FFFD."""
    if re.fullmatch(r"(?:[^%]|%[0-9A-Fa-f]{2})*", text):
        assert desanitize(text) == unquote_plus(text)
    else:
        with pytest.raises(IllegalArgumentError):
            desanitize(text)


def test_jmx_sanitize_leaves_exactly_68_characters_unquoted() -> None:
    """Of the 65536 characters of the basic plane (upstream: SanitizerTest.testJmxSanitize)."""
    assert sum(jmx_sanitize(chr(code)) == chr(code) for code in range(65536)) == 68


@pytest.mark.parametrize("value, quoted", [('a*"?\\\n', '"a\\*\\"\\?\\\\\\n"'), ("a,b", '"a,b"'), ("a b", "a b")])
def test_jmx_sanitize_quotes_like_object_name(value: str, quoted: str) -> None:
    assert jmx_sanitize(value) == quoted


@pytest.mark.parametrize("inserted, order", JVM["hash_map_order"])
def test_hash_map_order_is_the_jvms(inserted: list[str], order: list[str]) -> None:
    """The expectations were printed by a JDK 17."""
    assert hash_map_order(inserted) == order


def test_a_map_that_was_made_for_more_has_a_larger_table() -> None:
    """A 4.3.0 printed these: an entity of nine parts, six of which are client ids, and one of six."""
    assert hash_map_order(["client-id", "user", "ip\0"]) == ["client-id", "ip\0", "user"]
    assert hash_map_order(["client-id", "user", "ip\0"], made_for=8) == ["ip\0", "client-id", "user"]
    assert hash_map_order(["user", "client-id", "clientid"], made_for=6) == ["clientid", "client-id", "user"]


@given(st.text(min_size=60, max_size=700))
def test_a_long_hash_code_is_summed_in_steps(text: str) -> None:
    """It is Java's definition, unit by unit."""
    raw = text.encode("utf-16-be")
    code = 0
    for unit in struct.unpack(f">{len(raw) // 2}H", raw):
        code = (31 * code + unit) & 0xFFFFFFFF
    assert string_hash_code(text) == code


def test_string_hash_code_is_javas() -> None:
    assert string_hash_code("") == 0
    assert string_hash_code("hello") == 99162322
    assert string_hash_code("polygenelubricants") == 2**31  # Integer.MIN_VALUE


@pytest.mark.parametrize("name, address", JVM["inet_address"])
def test_literal_addresses_are_those_of_the_jvm(name: str, address: str | None) -> None:
    """``InetAddress.getByName`` of a JDK 17 was asked, without a name server."""
    assert is_literal_ip(name) == (address is not None)
    canonical = canonical_ip(name)
    if address is not None:
        assert canonical is not None
        assert canonical_ip(address) == canonical
        assert host_address(canonical) == address


@pytest.mark.parametrize(
    "name", ["fe80::1%2147483648", "fe80::1%99999999999", "fe80::1%" + "9" * 5000, "::ffff:10.0.0.1%1", "fe80::1%"]
)
def test_scopes_that_a_broker_does_not_read(name: str) -> None:
    """Beyond an int, none at all, and of an address that is IPv4 in truth. A 4.3.0 was asked."""
    assert not is_literal_ip(name)


@pytest.mark.parametrize(
    "name", ["localhost", "example.invalid", "a name with spaces", "RFC2606.invalid", "fe80::1%eth0", "", "[::1"]
)
def test_host_names_are_not_literal(name: str) -> None:
    assert not is_literal_ip(name)


@pytest.mark.parametrize("name", ["example.invalid", "1:2", "", "fe80:0:0:0:0:0:0:1%eth0"])
def test_what_is_no_address_is_its_own(name: str) -> None:
    """Nobody is asked for another."""
    assert host_address(name) == name


@pytest.mark.parametrize(
    "text, value",
    [
        ("1048576", 1048576),
        ("12.5", 12.5),
        (".5", 0.5),
        ("1e6", 1e6),
        ("-3", -3),
        ("10B", 10),
        ("1KiB", 1024),
        ("10MiB", 10 * 2**20),
        ("2GiB", 2**31),
        ("1TiB", 2**40),
        ("1Ki", 1024),
        ("10 MiB", 10 * 2**20),
        ("10MiB/s", 10 * 2**20),
        (" 10MB ", 10_000_000),
        ("1kB", 1000),
        ("1KB", 1000),
        ("1k", 1000),
        ("1K", 1000),
        ("10M", 10_000_000),
        ("3G", 3_000_000_000),
        ("1TB", 10**12),
        ("2.3MB", 2_300_000),
        ("0.1MiB", 104857.6),
        ("-1K", -1000),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("1" + "0" * 310 + "K", math.inf),
    ],
)
def test_parse_quantity(text: str, value: float) -> None:
    assert parse_quantity(text) == value


def test_parse_quantity_reads_nan() -> None:
    assert math.isnan(parse_quantity("NaN"))


@pytest.mark.parametrize(
    "text",
    ["", "x", "10mb", "10Mb", "10m", "10XB", "1_000", "1,000", "0x10", "nan", "inf", "10MiB/h", "1 e3", "٣", "9" * 500],
)
def test_parse_quantity_says_what_it_takes(text: str) -> None:
    with pytest.raises(IllegalArgumentError, match="is not a number; write digits, or a size such as 10MiB"):
        parse_quantity(text)


@pytest.mark.parametrize(
    "value, text",
    [
        (1048576.0, "1048576"),
        (1e22, "10000000000000000000000"),
        (2.0**63, "9223372036854775808"),
        (12.5, "12.5"),
        (1e-7, "0.0000001"),
        (-1.25e-9, "-0.00000000125"),
        (5, "5"),
        (0.0, "0"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_format_number(value: float, text: str) -> None:
    assert format_number(value) == text


@given(st.floats(allow_nan=False))
@example(5e-324)
@example(1.7976931348623157e308)
def test_numbers_round_trip_without_exponents(value: float) -> None:
    text = format_number(value)
    assert float(text) == value
    assert "e" not in text.lower().replace("infinity", "")
    if len(text) <= 400:
        assert parse_quantity(text) == value

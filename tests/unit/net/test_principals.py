"""Names of certificates and rules for them; ``tests/real/test_principal_differential.py`` asks Java."""

from __future__ import annotations

import contextlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from kquota.errors import InputError, MalformedMessageError, ProtocolError
from kquota.net.principals import PrincipalRules, distinguished_name, principal_of_certificate
from tests.kit.principals import certificate_of
from tests.kit.tls import Authority

DEFAULT = PrincipalRules()


def name_of(*names: list[tuple[x509.ObjectIdentifier, str]]) -> str:
    given_names = [x509.RelativeDistinguishedName([x509.NameAttribute(*one) for one in name]) for name in names]
    return distinguished_name(certificate_of(x509.Name(given_names).public_bytes()))


def test_a_certificate_has_the_name_of_its_subject() -> None:
    der = Authority().issue("alice, of \u00e4").certificate.public_bytes(serialization.Encoding.DER)
    assert principal_of_certificate(der, DEFAULT) == "CN=alice\\, of \u00e4"
    assert principal_of_certificate(None, DEFAULT) == "ANONYMOUS"


def test_a_name_is_written_as_java_does() -> None:
    assert name_of() == ""
    assert (
        name_of(
            [(NameOID.COUNTRY_NAME, "DE")],
            [(NameOID.ORGANIZATION_NAME, ' "A"+B; <C>=#\\ ')],
            [(NameOID.COMMON_NAME, "x"), (NameOID.USER_ID, "y")],
            [(NameOID.EMAIL_ADDRESS, "a@b")],
        )
        == r"1.2.840.113549.1.9.1=#1603614062,CN=x+UID=y,O=\ \"A\"\+B\; \<C\>\=\#\\\ ,C=DE"
    )


@given(st.binary(max_size=80))
def test_what_is_no_certificate_is_malformed(raw: bytes) -> None:
    for der in (raw, certificate_of(raw)):
        with contextlib.suppress(MalformedMessageError):
            assert isinstance(distinguished_name(der), str)
    with pytest.raises(MalformedMessageError):
        distinguished_name(raw[:5])


@pytest.mark.parametrize(
    "rules, name, principal",
    [
        # KIP-371's own examples.
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=serviceuser,OU=ServiceUsers,O=Unknown,C=US", "serviceuser"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L", "CN=A,OU=B,O=C,L=D,ST=E,C=F", "a@b"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U", "O=x,cn=bob,OU=y", "BOB"),
        ("RULE:^CN=x$/y/,DEFAULT", "CN=z", "CN=z"),
        (r"RULE:CN=([^,]+)(?:,.*)?/a,\/$1/ , DEFAULT", "CN=b,O=c", "a,/b"),
        ("RULE:(.*)/x$1/", "CN=b", "xCN=bx"),
        ("RULE:(CN)=(.*)/$2$3/", "CN=b", "b$3"),
        ("RULE:CN=(?<who>.*)/${who}/", "CN=b", "b"),
    ],
)
def test_rules(rules: str, name: str, principal: str) -> None:
    assert PrincipalRules.parse(rules).principal(name) == principal


def test_who_no_rule_applies_to_is_not_let_in() -> None:
    for rules in ("RULE:^CN=a$/b/", ""):
        with pytest.raises(ProtocolError, match=r"no rule of ssl\.principal\.mapping\.rules applies .* CN=aa"):
            PrincipalRules.parse(rules).principal("CN=aa")


def test_a_line_end_in_a_name_is_no_end_of_it() -> None:
    """Of Java's kinds; a dot does not match one of them either."""
    for end in "\n\r\u0085\u2028":
        assert PrincipalRules.parse("RULE:CN=.*/x/,DEFAULT").principal(f"CN=a{end}b") == f"CN=a{end}b"


@pytest.mark.parametrize(
    "rules",
    [
        "RULE:a/b/X", "RULE:a/b", "CN=x", "default", "RULE:(a/b/", r"RULE:\p{Lu}/b/", "RULE:[a-z&&[^b]]/b/",
        "RULE:a/$1/", "RULE:[a[b]]/b/", "RULE:(?s)./b/", r"RULE:\Qa\E/b/", "RULE:a/b$/", "RULE:(?<a>x)/${b}/",
        "DEFAULT;DEFAULT",
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(InputError, match=r"^ssl\.principal\.mapping\.rules: "):
        PrincipalRules.parse(rules)

"""Whom a SASL exchange authenticates, as the gateway reads it."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.errors import ProtocolError
from kquota.gateway.identity.principals import AuthenticationContext
from kquota.gateway.identity.sasl_observer import IdentitySettings, SaslObserver
from kquota.metering.callback import KafkaPrincipal
from tests.kit.sasl_exchanges import (
    Client,
    OAuthBearerServer,
    PlainServer,
    ScramServer,
    Server,
    authenticate,
    authenticate_request,
    authenticate_response,
    escaped,
    handshake,
    jwt,
    oauth_client,
    plain_client,
    scram_client,
)

CONTEXT = AuthenticationContext("SASL", "SASL_PLAINTEXT", "192.0.2.7")
ALICE = KafkaPrincipal("User", "alice")
UNKNOWN = KafkaPrincipal("User", "unknown")
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40) | st.text(
    ",=23CDn", min_size=1
)
FRAMINGS = [{"version": 0}, {"version": 1}, {"version": 2}, {"raw": True}]


def observer(settings: IdentitySettings | None = None) -> SaslObserver:
    return SaslObserver(settings or IdentitySettings(), CONTEXT)


def alice_by(mechanism: str, password: str = "secret") -> tuple[Client, Server]:
    passwords = {"alice": "secret"}
    if mechanism == "PLAIN":
        return plain_client("alice", password), PlainServer(passwords)
    if mechanism == "OAUTHBEARER":
        token = jwt({"sub": "alice", "key": password})
        return oauth_client(token), OAuthBearerServer({jwt({"sub": "alice", "key": "secret"}): "alice"}.get)
    return scram_client("alice", password, mechanism), ScramServer(passwords, mechanism)


MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_is_believed_when_the_broker_has_accepted_it(mechanism: str, framing: dict[str, int]) -> None:
    """And not a token before: :func:`authenticate` checks that on its way."""
    seen = observer()
    assert authenticate(seen, mechanism, *alice_by(mechanism), **framing)  # type: ignore[arg-type]
    assert seen.principal == ALICE
    assert seen.principal is not None
    assert not seen.expects_raw_tokens


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_that_the_broker_refuses_is_nobody(mechanism: str, framing: dict[str, int]) -> None:
    seen = observer()
    assert not authenticate(seen, mechanism, *alice_by(mechanism, "wrong"), **framing)  # type: ignore[arg-type]
    assert seen.principal is None
    assert seen.principal is None


@given(NAMES)
def test_every_name_is_read_from_plain_as_it_was_sent(name: str) -> None:
    seen = observer()
    server = PlainServer({name: "secret"})
    assert authenticate(seen, "PLAIN", plain_client(name, "secret"), server)
    assert seen.principal == KafkaPrincipal("User", server.user or "")


@given(NAMES)
def test_every_name_is_read_from_scram_as_it_was_sent(name: str) -> None:
    seen = observer()
    server = ScramServer({name: "secret"})
    assert authenticate(seen, "SCRAM-SHA-256", scram_client(escaped(name), "secret"), server)
    assert seen.principal == KafkaPrincipal("User", name)
    assert server.user == name


@given(NAMES.filter(lambda name: name.strip("".join(map(chr, range(33)))) != ""), st.booleans())
def test_every_name_is_read_from_an_unsecured_token_as_it_was_sent(name: str, padding: bool) -> None:
    seen = observer()
    client = oauth_client(jwt({"sub": name, "exp": 9e9}, padding=padding), traceId="7")
    assert authenticate(seen, "OAUTHBEARER", client, OAuthBearerServer(lambda _: name))
    assert seen.principal == KafkaPrincipal("User", name)


@pytest.mark.parametrize(
    "token, user",
    [
        (b"\0alice\0secret", "alice"),
        (b"alice\0alice\0secret", "alice"),
        (b"\0\xff\0secret", "\ufffd"),
        (b"bob\0alice\0secret", None),
        (b"\0\0secret", None),
        (b"\0alice", None),
        (b"alice", None),
        (b"", None),
        (b"\0alice\0sec\0ret", None),
    ],
)
def test_the_name_in_a_token_of_plain(token: bytes, user: str | None) -> None:
    """Where there is none, the broker refuses the client; one that did not would be no reason to believe it."""
    assert believed("PLAIN", token) == user


@pytest.mark.parametrize(
    "token, user",
    [
        (b"n,,n=alice,r=x", "alice"),
        (b"n,a=alice,n=alice,r=x", "alice"),
        (b"n,a=a=2Cb,n=a=2Cb,r=x", "a,b"),
        (b"n,,m=later,n=alice,r=x", "alice"),
        (b"n,,n=alice,r=n=bob", "alice"),
        (b"n,,n=alice,r=x,n=bob", "alice"),
        (b"n,,n=alice,r=x,tokenauth=false", "alice"),
        (b"n,,n=alice,r=x,tokenauth=true,tokenauth=no", "alice"),
        (b"n,,n==3D2C,r=x", "=2C"),
        (b"n,a=bob,n=alice,r=x", None),
        (b"n,,n=,r=x", None),
        (b"n,,n=a=2c,r=x", None),
        (b"n,,n=a=b,r=x", None),
        (b"n,,n=alice", None),
        (b"n,,r=x,n=alice", None),
        (b"y,,n=alice,r=x", None),
        (b"p=tls-unique,,n=alice,r=x", None),
        (b"n,alice,n=alice,r=x", None),
        (b"", None),
    ],
)
def test_the_name_in_a_first_token_of_scram(token: bytes, user: str | None) -> None:
    assert believed("SCRAM-SHA-256", token) == user


@pytest.mark.parametrize(
    "before, after, user",
    [
        (b"n,,\x01auth=Bearer ", b"\x01\x01", "alice"),
        (b"n,,\x01auth=bearer  ", b"\x01\x01", "alice"),
        (b"n,a=alice,\x01auth=Bearer ", b"\x01\x01", "alice"),
        (b"n,,\x01host=h\x01auth=Bearer ", b"\x01port=1\x01\x01", "alice"),
        (b"n,,\x01auth=Bearer nothing\x01auth=Bearer ", b"\x01\x01", "alice"),
        (b"n,a=bob,\x01auth=Bearer ", b"\x01\x01", None),
        (b"n,,\x01auth=Basic ", b"\x01\x01", None),
        (b"n,,\x01Auth=Bearer ", b"\x01\x01", None),
        (b"n,,\x01auth=Bearer ", b"\x01", None),
        (b"n,\x01auth=Bearer ", b"\x01\x01", None),
        (b"n,,auth=Bearer ", b"\x01\x01", None),
        (b"n,,\x01auth=Bearer ", b"\x01port\x01\x01", None),
        (b"", b"", None),
    ],
)
def test_the_bearer_token_in_a_token_of_oauthbearer(before: bytes, after: bytes, user: str | None) -> None:
    assert believed("OAUTHBEARER", before + jwt({"sub": "alice"}).encode() + after) == user


def believed(mechanism: str, token: bytes) -> str | None:
    """Whom one believes that a broker accepts at once; None where the observer refuses to believe anyone."""
    seen = observer()
    handshake(seen, mechanism)
    seen.authenticate_request(authenticate_request(token), 2)
    if mechanism.startswith("SCRAM"):
        seen.authenticate_response(authenticate_response(b"r=xy,s=c2FsdA==,i=4096"), 2)
        seen.authenticate_request(authenticate_request(b"c=biws,r=xy,p=cHJvb2Y="), 2)
    final = authenticate_response(b"v=c2ln" if mechanism.startswith("SCRAM") else b"")
    with contextlib.suppress(ProtocolError):
        seen.authenticate_response(final, 2)
    return None if seen.principal is None else seen.principal.name


@pytest.mark.parametrize(
    "token, user",
    [
        (jwt({"sub": "alice"}, alg="RS256", signature="c2ln"), "alice"),
        (jwt({"sub": " alice\t"}, alg="RS256", signature="c2ln"), "alice"),  # as BrokerJwtValidator trims it
        (jwt({"sub": " alice\t"}), " alice\t"),  # as OAuthBearerUnsecuredJws does not
        (jwt({"sub": "alice"}).removesuffix("."), "alice"),
        (jwt({"sub": "zo\u00eb", "nested": {"sub": "bob"}}), "zo\u00eb"),
        ("eyJhbGciOiJub25lIn0.eyJzdWIiOiJib2IiLCJzdWIiOiJhbGljZSJ9.", "alice"),  # the last of two counts
        (jwt({"sub": ""}), None),
        (jwt({"sub": "  "}), None),
        (jwt({"sub": 7}), None),
        (jwt({"sub": None}), None),
        (jwt({"sub": "\ud800"}), None),
        (jwt({"name": "alice"}), None),
        (jwt({"sub": "alice"}) + "x.y", None),
        (jwt({"sub": "alice"}) + "x.y.z", None),
        ("opaque", None),
        ("e30.e30", None),
        ("!!!.!!!.", None),
        ("", None),
        (".eyJzdWIiOiJhbGljZSJ9.", None),
        ("eyJhbGciOiJub25lIn0." + "W1tb" * 20_000 + ".", None),
    ],
)
def test_the_name_in_a_bearer_token(token: str, user: str | None) -> None:
    """One that cannot be read, or names nobody, has an unknown principal."""
    seen = observer(IdentitySettings(unknown_principal=UNKNOWN))
    assert authenticate(seen, "OAUTHBEARER", oauth_client(token), OAuthBearerServer(lambda _: "whoever"))
    assert seen.principal == (UNKNOWN if user is None else KafkaPrincipal("User", user))


def test_the_claim_that_names_the_user_is_a_setting() -> None:
    seen = observer(IdentitySettings(sub_claim_name="email"))
    client = oauth_client(jwt({"sub": "alice", "email": "alice@example"}))
    assert authenticate(seen, "OAUTHBEARER", client, OAuthBearerServer(lambda _: "alice@example"))
    assert seen.principal == KafkaPrincipal("User", "alice@example")


def test_after_an_error_another_bearer_token_may_be_accepted() -> None:
    """No client does so, but a broker would take it; the name is then the second token's."""
    seen = observer()
    handshake(seen, "OAUTHBEARER")
    for name, answer in (("bob", b'{"status":"invalid_token"}'), ("alice", b"")):
        token = f"n,,\x01auth=Bearer {jwt({'sub': name})}\x01\x01".encode()
        pass_on(seen, token, answer)
    assert seen.principal == ALICE


def test_a_bearer_token_that_was_refused_is_not_believed_by_a_later_success() -> None:
    seen = observer()
    handshake(seen, "OAUTHBEARER")
    token = f"n,,\x01auth=Bearer {jwt({'sub': 'bob'})}\x01\x01".encode()
    seen.authenticate_request(authenticate_request(token), 2)
    seen.authenticate_response(authenticate_response(b"{}"), 2)
    seen.authenticate_request(authenticate_request(b"\x01"), 2)
    with pytest.raises(ProtocolError, match="nobody is believed"):
        seen.authenticate_response(authenticate_response(b""), 2)
    assert seen.principal is None


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(
    "mechanism, tokens",
    [
        ("PLAIN", [(b"\0alice\0secret", b"welcome")]),
        ("SCRAM-SHA-256", [(b"n,,n=alice,r=x", b"v=c2ln")]),
        ("SCRAM-SHA-256", [(b"n,,n=alice,r=x", b"")]),
        ("SCRAM-SHA-256", [(b"n,,n=alice,r=x", b"r=xy,s=c2FsdA==,i=1"), (b"c=biws,r=xy,p=cA==", b"")]),
        ("SCRAM-SHA-256", [(b"n,,n=alice,r=x", b"r=xy,s=c2FsdA==,i=1"), (b"c=biws,r=xy,p=cA==", b"r=xy,s=,i=1")]),
    ],
)
def test_an_answer_that_the_mechanism_does_not_have_is_an_error(
    mechanism: str, tokens: list[tuple[bytes, bytes]], raw: bool
) -> None:
    seen = observer()
    handshake(seen, mechanism, version=0 if raw else 1)
    *before, last = tokens
    for token, answer in before:
        pass_on(seen, token, answer, raw=raw)
    with pytest.raises(ProtocolError, match=r"which is to be empty|is not what SCRAM has there"):
        pass_on(seen, *last, raw=raw)
    assert seen.principal is None


def pass_on(seen: SaslObserver, token: bytes, answer: bytes, *, raw: bool = False) -> None:
    if raw:
        seen.raw_request(token)
        seen.raw_response(answer)
    else:
        seen.authenticate_request(authenticate_request(token), 2)
        seen.authenticate_response(authenticate_response(answer), 2)


@pytest.mark.parametrize(
    "tokens",
    [
        [(b"n,,n=alice,r=x", b"e=unknown-user")],
        [(b"n,,n=alice,r=x", b"r=xy,s=c2FsdA==,i=1"), (b"c=biws,r=xy,p=cA==", b"e=invalid-proof")],
    ],
)
def test_a_failure_of_scram_in_words_is_a_failure(tokens: list[tuple[bytes, bytes]]) -> None:
    """``e=`` in place of ``v=``, even with an error code of 0."""
    seen = observer()
    handshake(seen, "SCRAM-SHA-512")
    for token, answer in tokens:
        pass_on(seen, token, answer)
    assert seen.principal is None
    with pytest.raises(ProtocolError, match="out of turn"):
        seen.authenticate_response(authenticate_response(b"v=c2ln"), 2)


def test_a_delegation_token_is_an_unknown_principal() -> None:
    seen = observer(IdentitySettings(unknown_principal=UNKNOWN))
    handshake(seen, "SCRAM-SHA-256")
    seen.authenticate_request(authenticate_request(b"n,,n=tokenid,r=x,tokenauth=TRUE"), 2)
    seen.authenticate_response(authenticate_response(b"r=xy,s=c2FsdA==,i=4096"), 2)
    assert seen.principal is None
    seen.authenticate_request(authenticate_request(b"c=biws,r=xy,p=cHJvb2Y="), 2)
    seen.authenticate_response(authenticate_response(b"v=c2ln"), 2)
    assert seen.principal == UNKNOWN


def test_gssapi_ends_with_an_empty_token() -> None:
    seen = observer(IdentitySettings(unknown_principal=UNKNOWN))
    handshake(seen, "GSSAPI")
    for token, answer in ((b"\x60ticket", b"\x60reply"), (b"", b"layers")):
        pass_on(seen, token, answer)
        assert seen.principal is None
    seen.authenticate_request(authenticate_request(b"layer"), 2)
    seen.authenticate_response(authenticate_response(b""), 2)
    assert seen.principal == UNKNOWN


def test_a_mechanism_of_somebodys_own_ends_with_its_first_answer() -> None:
    seen = observer(IdentitySettings(unknown_principal=UNKNOWN))
    handshake(seen, "AWS_MSK_IAM")
    seen.authenticate_request(authenticate_request(b"{}"), 2)
    seen.authenticate_response(authenticate_response(b'{"version":"2020_10_22"}'), 2)
    assert seen.principal == UNKNOWN


def test_mutual_tls_below_sasl_changes_no_principal() -> None:
    """As in Kafka's default builder."""
    context = replace(CONTEXT, security_protocol="SASL_SSL", ssl_principal=KafkaPrincipal("User", "CN=host"))
    seen = SaslObserver(IdentitySettings(), context)
    authenticate(seen, "PLAIN", *alice_by("PLAIN"))
    assert seen.principal == ALICE

"""The order of an exchange, what is refused, that nothing secret is kept, and hostile bytes."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from types import ModuleType, TracebackType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.errors import InputError, ProtocolError, UnsupportedVersionError
from kquota.gateway.identity.principals import AuthenticationContext, PrincipalRefusedError
from kquota.gateway.identity.sasl_frames import MAX_SASL_FRAME_BYTES
from kquota.gateway.identity.sasl_observer import (
    IdentitySettings,
    SaslObserver,
    check_first_frame,
    load_identity_settings,
)
from kquota.metering.callback import KafkaPrincipal
from tests.kit.sasl_exchanges import (
    CORRELATION_ID,
    Client,
    OAuthBearerServer,
    PlainServer,
    ScramServer,
    Server,
    authenticate,
    authenticate_request,
    authenticate_response,
    handshake,
    handshake_request,
    handshake_response,
    jwt,
    oauth_client,
    plain_client,
    read_authenticate_response,
    read_handshake_response,
    scram_client,
)

CONTEXT = AuthenticationContext("SASL", "SASL_PLAINTEXT", "192.0.2.7")
ALICE = KafkaPrincipal("User", "alice")
UNKNOWN = KafkaPrincipal("User", "unknown")
CHARGE_UNKNOWN = IdentitySettings(unknown_principal=UNKNOWN)
SECRET = "TOPSECRET-7f3a"


def observer(settings: IdentitySettings | None = None) -> SaslObserver:
    return SaslObserver(settings or IdentitySettings(), CONTEXT)


def log_in(seen: SaslObserver, user: str = "alice", password: str = "secret") -> bool:
    return authenticate(seen, "PLAIN", plain_client(user, password), PlainServer({user: "secret"}))


class TestOrder:
    """Frames are taken in the order of SASL, and no other."""

    def test_a_client_without_a_client_id(self) -> None:
        seen = observer()
        seen.handshake_request(handshake_request("PLAIN", client_id=None), 1)
        seen.handshake_response(handshake_response(), 1)
        seen.authenticate_request(authenticate_request(b"\0alice\0secret", client_id=None), 2)
        seen.authenticate_response(authenticate_response(b""), 2)
        assert seen.principal == ALICE

    @pytest.mark.parametrize("code", [33, 34])
    def test_a_handshake_that_the_broker_refuses_begins_nothing(self, code: int) -> None:
        """33: a mechanism that it does not have; 34: a connection that needs no authentication, or no other one."""
        seen = observer()
        handshake(seen, "GSSAPI", code=code)
        assert not seen.expects_raw_tokens
        assert log_in(seen)

    def test_tokens_without_a_handshake_are_left_to_the_broker_to_refuse(self) -> None:
        seen = observer()
        seen.authenticate_request(authenticate_request(b"\0alice\0secret"), 2)
        seen.authenticate_response(authenticate_response(b"", 34), 2)
        assert seen.principal is None

    def test_success_without_a_handshake_is_no_success(self) -> None:
        seen = observer()
        seen.authenticate_request(authenticate_request(b"\0alice\0secret"), 2)
        with pytest.raises(ProtocolError, match="out of turn"):
            seen.authenticate_response(authenticate_response(b""), 2)
        assert seen.principal is None

    def test_success_before_a_token_is_no_success(self) -> None:
        seen = observer()
        handshake(seen, "PLAIN")
        with pytest.raises(ProtocolError, match="out of turn"):
            seen.authenticate_response(authenticate_response(b""), 2)
        assert seen.principal is None

    def test_a_second_token_waits_for_the_answer_to_the_first(self) -> None:
        """Otherwise the name could be one token's, and the success another's."""
        seen = observer()
        handshake(seen, "OAUTHBEARER")
        seen.authenticate_request(authenticate_request(b"n,,\x01auth=Bearer x.y\x01"), 2)
        with pytest.raises(ProtocolError, match="out of turn"):
            seen.authenticate_request(authenticate_request(b"n,,\x01auth=Bearer x.y\x01"), 2)

    def test_a_handshake_within_an_exchange_is_an_error(self) -> None:
        seen = observer()
        handshake(seen, "PLAIN")
        with pytest.raises(ProtocolError, match="within an exchange"):
            seen.handshake_request(handshake_request("SCRAM-SHA-256"), 1)

    def test_a_handshake_response_to_no_request_is_an_error(self) -> None:
        with pytest.raises(ProtocolError, match="to no request"):
            observer().handshake_response(handshake_response(), 1)

    def test_bare_tokens_are_taken_after_a_handshake_v0_alone(self) -> None:
        seen = observer()
        handshake(seen, "PLAIN")
        with pytest.raises(ProtocolError, match="out of turn"):
            seen.raw_request(b"\0alice\0secret")
        seen = observer()
        handshake(seen, "PLAIN", version=0)
        with pytest.raises(ProtocolError, match="out of turn"):
            seen.authenticate_request(authenticate_request(b"\0alice\0secret"), 2)

    def test_versions_that_are_not_known_are_refused(self) -> None:
        with pytest.raises(UnsupportedVersionError):
            observer().handshake_request(handshake_request("PLAIN"), 2)
        with pytest.raises(UnsupportedVersionError):
            observer().authenticate_request(authenticate_request(b""), 3)
        with pytest.raises(UnsupportedVersionError):
            observer().authenticate_response(authenticate_response(b""), 3)

    def test_a_gssapi_token_without_a_handshake_is_not_supported(self) -> None:
        with pytest.raises(ProtocolError, match=r"GSSAPI token.*Kafka 0\.9"):
            check_first_frame(b"\x60\x82\x02\x06ticket")
        check_first_frame(handshake_request("PLAIN"))
        check_first_frame(b"")


class TestReauthentication:
    """KIP-368."""

    def test_the_principal_stays_the_same_object(self) -> None:
        seen = observer()
        log_in(seen)
        principal = seen.principal
        assert log_in(seen)
        assert seen.principal is principal

    def test_the_principal_stays_where_it_fails(self) -> None:
        """The broker closes the connection; responses before that are still alice's."""
        seen = observer()
        log_in(seen)
        assert not log_in(seen, password="wrong")
        assert seen.principal == ALICE

    def test_nobody_becomes_another_one(self) -> None:
        seen = observer()
        log_in(seen)
        with pytest.raises(ProtocolError, match="as another principal"):
            log_in(seen, "bob")
        assert seen.principal == ALICE

    def test_a_handshake_on_a_session_that_does_not_end_changes_nothing(self) -> None:
        """A broker answers with ILLEGAL_SASL_STATE, and the connection goes on."""
        seen = observer()
        log_in(seen)
        handshake(seen, "PLAIN", code=34)
        assert seen.principal == ALICE
        assert not seen.expects_raw_tokens


class TestUnknownPrincipals:
    """Where the exchange does not show who the client is."""

    @pytest.mark.parametrize("version", [0, 1])
    @pytest.mark.parametrize("mechanism", ["GSSAPI", "AWS_MSK_IAM", "plain"])
    def test_a_mechanism_that_shows_no_name_is_refused_at_the_handshake(self, mechanism: str, version: int) -> None:
        """The client is answered with the mechanisms that the broker has and the gateway can read."""
        seen = observer()
        seen.handshake_request(handshake_request(mechanism, version), version)
        with pytest.raises(
            PrincipalRefusedError, match=f"SASL mechanism {mechanism}: .*gateway.unknown.principal"
        ) as e:
            seen.handshake_response(handshake_response(0, version, ("GSSAPI", "SCRAM-SHA-512", "PLAIN")), version)
        assert read_handshake_response(e.value.answer, version) == (CORRELATION_ID, 33, ("SCRAM-SHA-512", "PLAIN"))
        assert not seen.expects_raw_tokens

    def test_it_is_refused_without_kafkas_headers_in_any_case(self) -> None:
        """The end of GSSAPI is then no bytes at all."""
        seen = observer(CHARGE_UNKNOWN)
        with pytest.raises(PrincipalRefusedError, match="SaslHandshake v0"):
            handshake(seen, "GSSAPI", version=0)
        assert not seen.expects_raw_tokens

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_a_delegation_token_is_refused_before_it_is_forwarded(self, version: int) -> None:
        """With the code at which clients give up."""
        seen = observer()
        handshake(seen, "SCRAM-SHA-256")
        frame = authenticate_request(b"n,,n=id,r=x,tokenauth=true", version)
        with pytest.raises(PrincipalRefusedError, match="SCRAM-SHA-256: a delegation token") as refused:
            seen.authenticate_request(frame, version)
        correlation_id, code, message, token = read_authenticate_response(refused.value.answer, version)
        assert (correlation_id, code, token) == (CORRELATION_ID, 58, b"")
        assert "Authentication failed" in message

    def test_a_bearer_token_that_cannot_be_read_is_refused_before_it_is_forwarded(self) -> None:
        seen = observer()
        handshake(seen, "OAUTHBEARER", version=0)
        with pytest.raises(PrincipalRefusedError, match="OAUTHBEARER: the bearer token is not a JWT") as refused:
            seen.raw_request(b"n,,\x01auth=Bearer opaque\x01\x01")
        assert refused.value.answer is None, "there is no error in bare tokens"

    def test_they_are_charged_to_a_principal_that_is_configured(self) -> None:
        seen = observer(CHARGE_UNKNOWN)
        assert authenticate(seen, "OAUTHBEARER", oauth_client("opaque"), OAuthBearerServer(lambda _: "whoever"))
        assert seen.principal is UNKNOWN

    def test_a_builder_that_fails_refuses_the_client_in_place_of_the_brokers_success(self) -> None:
        def build(context: AuthenticationContext) -> KafkaPrincipal:
            raise RuntimeError(SECRET)

        seen = observer(IdentitySettings(principal_builder=build))
        with pytest.raises(PrincipalRefusedError, match="PLAIN: the principal builder failed: RuntimeError") as refused:
            log_in(seen)
        assert read_authenticate_response(refused.value.answer, 2)[:2] == (CORRELATION_ID, 58)
        assert SECRET not in "".join(traceback.format_exception(refused.value))
        assert seen.principal is None

    def test_a_builder_is_asked_once_for_each_success(self) -> None:
        asked: list[AuthenticationContext] = []

        def build(context: AuthenticationContext) -> KafkaPrincipal:
            asked.append(context)
            return KafkaPrincipal("Group", "all")

        seen = observer(IdentitySettings(principal_builder=build))
        log_in(seen, password="wrong")
        assert asked == []
        log_in(seen)
        assert seen.principal == KafkaPrincipal("Group", "all")
        assert [(one.mechanism, one.sasl_principal, one.client_address) for one in asked] == [
            ("PLAIN", ALICE, "192.0.2.7")
        ]


def unreadable_by_the_gateway(seen: SaslObserver) -> None:
    handshake(seen, "OAUTHBEARER")
    seen.authenticate_request(authenticate_request(f"n,,\x01auth=Bearer {SECRET}\x01\x01".encode()), 2)


def malformed(seen: SaslObserver) -> None:
    handshake(seen, "PLAIN")
    seen.authenticate_request(authenticate_request(f"\0alice\0{SECRET}".encode())[:-3], 2)


def malformed_after_tags(seen: SaslObserver) -> None:
    handshake(seen, "PLAIN")
    seen.authenticate_request(b"\0\x24\0\x02\0\0\0\x01\xff\xff\xff\xff\xff\xff\xff\x7f" + SECRET.encode(), 2)


def out_of_turn(seen: SaslObserver) -> None:
    handshake(seen, "PLAIN")
    seen.raw_request(f"\0alice\0{SECRET}".encode())


def third_token(seen: SaslObserver) -> None:
    handshake(seen, "PLAIN")
    seen.authenticate_request(authenticate_request(f"\0alice\0{SECRET}".encode()), 2)
    seen.authenticate_request(authenticate_request(f"\0alice\0{SECRET}".encode()), 2)


def unknown_version(seen: SaslObserver) -> None:
    seen.authenticate_request(authenticate_request(f"\0alice\0{SECRET}".encode()), 99)


class TestSecrets:
    """A token passes by, and nothing of it stays."""

    @pytest.mark.parametrize("accepted", [True, False])
    @pytest.mark.parametrize("raw", [False, True])
    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
    def test_nothing_secret_is_reachable_from_an_observer(self, mechanism: str, raw: bool, accepted: bool) -> None:
        """Not after a success, not after a failure, and not while the broker thinks about it."""
        seen = observer(CHARGE_UNKNOWN)
        token = jwt({"sub": "alice", "key": SECRET}, signature=SECRET)
        servers: dict[str, Server] = {
            "PLAIN": PlainServer({"alice": SECRET if accepted else "other"}),
            "SCRAM-SHA-256": ScramServer({"alice": SECRET if accepted else "other"}),
            "OAUTHBEARER": OAuthBearerServer(lambda _: "alice" if accepted else None),
        }
        clients: dict[str, Client] = {
            "PLAIN": plain_client("alice", SECRET),
            "SCRAM-SHA-256": scram_client("alice", SECRET),
            "OAUTHBEARER": oauth_client(token),
        }
        sent: list[bytes] = []

        class WatchedClient:
            """Looks at the observer before each token and after it."""

            def auth_bytes(self) -> bytes:
                sent.append(clients[mechanism].auth_bytes())
                return sent[-1]

            def receive(self, answer: bytes) -> object:
                check_memory(seen, sent)
                return clients[mechanism].receive(answer)

            def is_done(self) -> bool:
                return clients[mechanism].is_done()

        class WatchedServer:
            user: str | None = None

            def answer(self, token: bytes) -> bytes:
                check_memory(seen, sent)
                return servers[mechanism].answer(token)

        assert authenticate(seen, mechanism, WatchedClient(), WatchedServer(), raw=raw) is accepted
        check_memory(seen, sent)
        assert sent
        assert SECRET not in repr(seen)

    @pytest.mark.parametrize(
        "way", [unreadable_by_the_gateway, malformed, malformed_after_tags, out_of_turn, third_token, unknown_version]
    )
    def test_no_error_carries_a_token(self, way: Callable[[SaslObserver], None]) -> None:
        """Neither in its text nor among the variables of our functions, which some logs print."""
        seen = observer()
        with pytest.raises((ProtocolError, PrincipalRefusedError)) as raised:
            way(seen)
        error = raised.value
        assert SECRET not in f"{error} {error!r} {vars(error)}"
        assert error.__context__ is None
        assert SECRET not in "".join(ours(error.__traceback__))
        assert ours(error.__traceback__), "otherwise nothing was looked at"
        check_memory(seen, [SECRET.encode()])

    def test_the_search_finds_what_it_looks_for(self) -> None:
        seen = observer()
        seen._asked = SECRET
        with pytest.raises(AssertionError):
            check_memory(seen, [SECRET.encode()])


def ours(at: TracebackType | None) -> list[str]:
    """The variables of the gateway's functions in a traceback."""
    found = []
    while at is not None:
        if "/kquota/gateway/" in at.tb_frame.f_code.co_filename:
            found.append(repr({name: one for name, one in at.tb_frame.f_locals.items() if name != "at"}))
        at = at.tb_next
    return found


def check_memory(root: object, secrets: list[bytes]) -> None:
    """No text or bytes that can be reached from `root` has the secret, or is a token that was sent."""
    seen: set[int] = set()
    waiting: list[object] = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (type, ModuleType)) or callable(one):
            continue
        seen.add(id(one))
        if isinstance(one, (str, bytes, bytearray, memoryview)):
            data = one.encode("utf-8", "surrogatepass") if isinstance(one, str) else bytes(one)
            assert SECRET.encode() not in data
            assert not any(len(secret) > 1 and secret in data for secret in secrets)
        waiting.extend(gc.get_referents(one))


class TestHostileBytes:
    """Any bytes give a principal, none, or one of two errors."""

    @given(
        st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI"]),
        st.lists(
            st.tuples(
                st.sampled_from(["handshake", "authenticate", "raw"]),
                st.sampled_from(["request", "response"]),
                st.integers(-1, 3),
                st.binary(max_size=60),
                st.booleans(),
            ),
            max_size=8,
        ),
        st.booleans(),
    )
    def test_of_any_frames_in_any_order(
        self, mechanism: str, frames: list[tuple[str, str, int, bytes, bool]], is_refused: bool
    ) -> None:
        seen = observer(None if is_refused else CHARGE_UNKNOWN)
        handshake(observer(CHARGE_UNKNOWN), mechanism)
        try:
            for kind, side, version, data, wrapped in frames:
                well_formed = {
                    "handshake_request": handshake_request(mechanism),
                    "handshake_response": handshake_response(),
                    "authenticate_request": authenticate_request(data),
                    "authenticate_response": authenticate_response(data),
                }
                name = f"{kind}_{side}"
                frame = well_formed.get(name, data) if wrapped else data
                getattr(seen, name)(*[frame] if kind == "raw" else [frame, version])
        except (ProtocolError, PrincipalRefusedError):
            pass
        assert seen.principal is None or seen.principal.principal_type == "User"

    @given(
        st.sampled_from(["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"]),
        st.binary()
        | st.text("n,ary=\x01\0uth Be.23CD").map(str.encode)
        | st.binary().map(lambda data: b"n,,\x01auth=Bearer e30." + data + b".\x01\x01"),
        st.binary() | st.sampled_from([b"", b"v=", b"r="]),
    )
    def test_of_any_tokens(self, mechanism: str, token: bytes, answer: bytes) -> None:
        seen = observer(CHARGE_UNKNOWN)
        handshake(seen, mechanism, version=0)
        try:
            seen.raw_request(token)
            seen.raw_response(answer)
        except ProtocolError:
            assert seen.principal is None

    @pytest.mark.parametrize(
        "token",
        [
            b"," * MAX_SASL_FRAME_BYTES,
            b"n,,n=" + b"=2C" * (MAX_SASL_FRAME_BYTES // 3) + b",r=x",
            b"n,,n=a,r=x" + b",a=b" * (MAX_SASL_FRAME_BYTES // 4),
            b"n,,\x01" + b"a=b\x01" * (MAX_SASL_FRAME_BYTES // 4) + b"\x01",
            b"n,,\x01auth=Bearer " + b"." * MAX_SASL_FRAME_BYTES + b"\x01\x01",
            b"n,,\x01auth=Bearer e30." + b"W1tb" * (MAX_SASL_FRAME_BYTES // 4) + b".\x01\x01",
            b"\0" * MAX_SASL_FRAME_BYTES,
            b"\xff" * MAX_SASL_FRAME_BYTES + b"\0a\0b",
        ],
        ids=["commas", "escapes", "extensions", "pairs", "dots", "nested", "nulls", "no UTF-8"],
    )
    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
    def test_of_the_largest_tokens(self, mechanism: str, token: bytes) -> None:
        seen = observer(CHARGE_UNKNOWN)
        handshake(seen, mechanism, version=0)
        seen.raw_request(token)
        assert seen.principal is None


class TestSettings:
    def test_the_defaults_refuse(self) -> None:
        assert (
            load_identity_settings({})
            == IdentitySettings()
            == load_identity_settings({"gateway.unknown.principal": "refuse"})
        )

    def test_they_are_read_from_properties(self) -> None:
        found = load_identity_settings(
            {"gateway.unknown.principal": " User:a:b ", "sasl.oauthbearer.sub.claim.name": "email"}
        )
        assert found == IdentitySettings(KafkaPrincipal("User", "a:b"), "email")

    @pytest.mark.parametrize(
        "properties, reason",
        [
            ({"gateway.unknown.principle": "refuse"}, "no such setting"),
            ({"gateway.unknown.principal": "unknown"}, "write refuse, or the principal"),
            ({"gateway.unknown.principal": ""}, "write refuse, or the principal"),
            ({"gateway.unknown.principal": "User:"}, "write refuse, or the principal"),
            ({"sasl.oauthbearer.sub.claim.name": ""}, "is empty"),
            ({"principal.builder.x": "1"}, "principal.builder.class names none"),
            ({"principal.builder.class": "nowhere:f"}, "there is no such callable"),
        ],
    )
    def test_what_cannot_be_used_is_refused(self, properties: dict[str, str], reason: str) -> None:
        with pytest.raises(InputError, match=reason):
            load_identity_settings(properties)


def test_a_mechanism_that_the_listener_does_not_offer_is_refused_before_the_broker_hears_of_it() -> None:
    settings = IdentitySettings(mechanisms=("SCRAM-SHA-512",))
    observer = SaslObserver(settings, AuthenticationContext("L", "SASL_PLAINTEXT", "127.0.0.1"))
    frame = b"\0\x11\0\1\0\0\0\7\0\1c\0\5PLAIN"
    with pytest.raises(PrincipalRefusedError, match="SASL mechanism PLAIN: not among") as refused:
        observer.handshake_request(frame, 1)
    assert refused.value.answer is not None
    assert refused.value.answer[4:] == b"\0\0\0\7\0\x21\0\0\0\1\0\x0dSCRAM-SHA-512"

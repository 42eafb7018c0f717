"""Who a connection's client is: SASL read in passing, and believed once the broker has agreed.

Sans-I/O. The broker authenticates; the gateway forwards every token as it is, and reads the name. The relay hands over
each whole frame of an exchange before it forwards it, without its size: a request, then its response, then the next
request. It treats no frame in between as part of an exchange, and passes none larger than
:data:`~kquota.gateway.identity.sasl_frames.MAX_SASL_FRAME_BYTES`.

No token is kept: an observer has the name alone, and drops it when the exchange fails. An error that is raised carries
neither a token nor the frames of the functions that saw one.
Source: Kafka's ``SaslServerAuthenticator``; KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn, TypeVar

from kquota.errors import InputError, KafkaErrorCode, KquotaError, ProtocolError
from kquota.gateway.identity.principals import (
    BUILDER_SETTING,
    AuthenticationContext,
    PrincipalBuilder,
    PrincipalRefusedError,
    build_principal,
    load_principal_builder,
    parse_principal,
)
from kquota.gateway.identity.sasl import (
    READABLE_MECHANISMS,
    Exchange,
    Progress,
    UnknownUser,
    exchange_of,
)
from kquota.gateway.identity.sasl_frames import (
    is_gssapi_token,
    read_authenticate_request,
    read_authenticate_response,
    read_handshake_request,
    read_handshake_response,
    write_authenticate_refusal,
    write_handshake_refusal,
)
from kquota.metering.callback import KafkaPrincipal
from kquota.printable import printable

__all__ = [
    "BUILDER_SETTINGS",
    "IDENTITY_SETTINGS",
    "SUB_CLAIM_SETTING",
    "UNKNOWN_PRINCIPAL_SETTING",
    "IdentitySettings",
    "SaslObserver",
    "check_first_frame",
    "load_identity_settings",
]

UNKNOWN_PRINCIPAL_SETTING: Final = "gateway.unknown.principal"
SUB_CLAIM_SETTING: Final = "sasl.oauthbearer.sub.claim.name"
BUILDER_SETTINGS: Final = "principal.builder."
IDENTITY_SETTINGS: Final = (UNKNOWN_PRINCIPAL_SETTING, SUB_CLAIM_SETTING, BUILDER_SETTING)
_REFUSE: Final = "refuse"
_MAX_SHOWN_MECHANISM: Final = 40

T = TypeVar("T", bound=KquotaError)


@dataclass(frozen=True, slots=True)
class IdentitySettings:
    """How clients become principals."""

    unknown_principal: KafkaPrincipal | None = None
    """Who is charged for clients whose name the exchange does not show: those of GSSAPI and of mechanisms that Kafka
    does not have, of delegation tokens, and of bearer tokens that are no JWT. By default they are refused.
    """
    sub_claim_name: str = "sub"
    """The claim of a bearer token that names its user."""
    mechanisms: tuple[str, ...] = ()
    """The SASL mechanisms that clients may use, of those that the brokers offer (``sasl.enabled.mechanisms`` of the
    gateway's listener); empty: all.
    """
    principal_builder: PrincipalBuilder = field(default=AuthenticationContext.default_principal, repr=False)


def load_identity_settings(properties: Mapping[str, str]) -> IdentitySettings:
    """The settings of the identity of clients.

    ``gateway.unknown.principal`` is ``refuse``, which is the default, or a principal such as ``User:unknown``;
    ``sasl.oauthbearer.sub.claim.name``, ``principal.builder.class`` and what begins with ``principal.builder.`` are as
    in Kafka.

    :raises InputError: for another setting, a value that cannot be used, and a builder that cannot be loaded.
    """
    unknown_principal, sub_claim_name = None, "sub"
    builder_name, builder_configs = "", {}
    for name, text in properties.items():
        value = text.strip()
        if name == UNKNOWN_PRINCIPAL_SETTING:
            unknown_principal = None if value == _REFUSE else _unknown_principal(value)
        elif name == SUB_CLAIM_SETTING:
            if not value:
                raise InputError(f"{SUB_CLAIM_SETTING} is empty; it is the name of a claim, such as sub")
            sub_claim_name = value
        elif name == BUILDER_SETTING:
            builder_name = value
        elif name.startswith(BUILDER_SETTINGS):
            builder_configs[name] = text
        else:
            raise InputError(f"{name}: the identity of clients has no such setting")
    if builder_name:
        builder = load_principal_builder(builder_name, builder_configs)
        return IdentitySettings(unknown_principal, sub_claim_name, principal_builder=builder)
    if builder_configs:
        raise InputError(
            f"{min(builder_configs)} is a setting of a principal builder, and {BUILDER_SETTING} names none"
        )
    return IdentitySettings(unknown_principal, sub_claim_name)


def _unknown_principal(value: str) -> KafkaPrincipal:
    try:
        return parse_principal(value)
    except InputError:
        raise InputError(
            f"{UNKNOWN_PRINCIPAL_SETTING}={value}: write refuse, or the principal to charge, such as User:unknown"
        ) from None


def check_first_frame(frame: bytes) -> None:
    """Refuse the first frame of a connection where it is a bare GSSAPI token, without a handshake (Kafka 0.9).

    :raises ProtocolError: it is one.
    """
    if is_gssapi_token(frame):
        raise ProtocolError(
            "the first frame is a GSSAPI token without a handshake, as clients of Kafka 0.9 send it: not supported"
        )


class SaslObserver:
    """The authentications of one connection of a SASL listener, the first one and those that renew it.

    All methods raise :class:`~kquota.errors.ProtocolError` where a frame is malformed or comes out of turn, and
    :class:`PrincipalRefusedError` where the client cannot be charged to anybody. After either the connection is closed.
    """

    __slots__ = (
        "_asked",
        "_awaits_response",
        "_context",
        "_correlation_id",
        "_exchange",
        "_raw",
        "_settings",
        "principal",
    )

    def __init__(self, settings: IdentitySettings, context: AuthenticationContext) -> None:
        """Of a connection; `context` is what is known before its client authenticates."""
        self.principal: KafkaPrincipal | None = None
        """Who the client is; None before the first success. It stays, the same object, while a client authenticates
        anew.
        """
        self._settings = settings
        self._context = context
        self._asked: str | None = None
        """The mechanism of a handshake that is not answered yet."""
        self._exchange: Exchange | None = None
        self._raw = False
        self._awaits_response = False
        self._correlation_id = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}(principal={self.principal!r})"

    @property
    def mechanism(self) -> str:
        """That of the last handshake that the broker agreed to, safe to show; empty before."""
        return _shown(self._context.mechanism)

    @property
    def expects_raw_tokens(self) -> bool:
        """Whether the next frames, both ways, are bare tokens: from a handshake of version 0 to its success."""
        return self._exchange is not None and self._raw

    def handshake_request(self, frame: bytes, version: int) -> None:
        """Take a SaslHandshake request, with its header."""
        if self._asked is not None or self._exchange is not None:
            self._fail(ProtocolError("a SaslHandshake within an exchange"))
        self._correlation_id, mechanism = read_handshake_request(frame, version)
        enabled = self._settings.mechanisms
        if enabled and mechanism not in enabled:
            raise PrincipalRefusedError(
                "not among sasl.enabled.mechanisms of the gateway's listener",
                mechanism=_shown(mechanism),
                answer=write_handshake_refusal(self._correlation_id, list(enabled)),
            )
        self._asked = mechanism

    def handshake_response(self, frame: bytes, version: int) -> None:
        """Take its response. A client whose mechanism shows no name is refused here, before it sends any token."""
        mechanism, self._asked = self._asked, None
        if mechanism is None:
            raise ProtocolError("a SaslHandshake response to no request")
        code, mechanisms = read_handshake_response(frame)
        if code != KafkaErrorCode.NONE:
            return
        exchange, raw = exchange_of(mechanism, self._settings.sub_claim_name), version == 0
        reason = ""
        if isinstance(exchange.identity, UnknownUser) and self._settings.unknown_principal is None:
            reason = self._unknown(exchange.identity)
        elif isinstance(exchange.identity, UnknownUser) and raw:
            reason = "without Kafka's headers (SaslHandshake v0) its exchange has no end that can be seen"
        if reason:
            offered = [one for one in mechanisms if one in READABLE_MECHANISMS]
            raise PrincipalRefusedError(
                reason, mechanism=_shown(mechanism), answer=write_handshake_refusal(self._correlation_id, offered)
            )
        self._exchange, self._raw, self._awaits_response = exchange, raw, False
        self._context = replace(self._context, mechanism=mechanism)

    def authenticate_request(self, frame: bytes, version: int) -> None:
        """Take a SaslAuthenticate request, with its header. Without a handshake before it the broker refuses it."""
        error = self._authenticate_request(frame, version)
        del frame  # no log of the error may show it among the variables
        if error is not None:
            self._fail(error)

    def authenticate_response(self, frame: bytes, version: int) -> Progress:
        """Take its response: where it completes the exchange, :attr:`principal` is there when this returns."""
        code, token = read_authenticate_response(frame, version)
        if code != KafkaErrorCode.NONE:
            self._end()
            return Progress.FAILED
        return self._response(token, version)

    def raw_request(self, token: bytes) -> None:
        """Take a bare token of the client."""
        error = self._token(token, raw=True, version=None)
        del token
        if error is not None:
            self._fail(error)

    def raw_response(self, token: bytes) -> Progress:
        """Take a bare token of the broker; it answers a failure by closing the connection."""
        return self._response(token, None)

    def _authenticate_request(self, frame: bytes, version: int) -> KquotaError | None:
        try:
            self._correlation_id, token = read_authenticate_request(frame, version)
        except ProtocolError as error:
            return _bare(error)
        if self._exchange is None:
            return None  # the broker answers with ILLEGAL_SASL_STATE
        return self._token(token, raw=False, version=version)

    def _token(self, token: bytes, *, raw: bool, version: int | None) -> KquotaError | None:
        """The error, where there is one: raised here it would carry this frame, and the token with it."""
        exchange = self._exchange
        if exchange is None or raw is not self._raw or self._awaits_response:
            return ProtocolError("a SASL token out of turn")
        try:
            exchange.client_token(token)
        except ProtocolError as error:
            return _bare(error)
        self._awaits_response = True
        if isinstance(exchange.identity, UnknownUser) and self._settings.unknown_principal is None:
            return self._refusal(self._unknown(exchange.identity), version)
        return None

    def _response(self, token: bytes, version: int | None) -> Progress:
        exchange = self._exchange
        if exchange is None or not self._awaits_response or (version is None) is not self._raw:
            self._fail(ProtocolError("the broker's SASL token comes out of turn"))
        self._awaits_response = False
        try:
            progress = exchange.server_token(token)
        except ProtocolError:
            self._end()
            raise
        if progress is Progress.CONTINUES:
            return progress
        self._end()
        if progress is Progress.SUCCEEDED:
            self._believe(exchange, version)
        return progress

    def _believe(self, exchange: Exchange, version: int | None) -> None:
        match exchange.identity:
            case None:
                raise ProtocolError(
                    f"the broker took a {_shown(self._context.mechanism)} token that cannot be read: nobody is believed"
                )
            case UnknownUser():
                sasl_principal = self._settings.unknown_principal
                assert sasl_principal is not None
            case user:
                sasl_principal = KafkaPrincipal("User", user)
        context = replace(self._context, sasl_principal=sasl_principal)
        try:
            principal = build_principal(self._settings.principal_builder, context)
        except PrincipalRefusedError as error:
            reason = error.reason
        else:
            if self.principal is None:
                self.principal = principal
            elif principal != self.principal:
                raise ProtocolError("a client authenticated anew as another principal")
            return
        raise self._refusal(reason, version)

    def _refusal(self, reason: str, version: int | None) -> PrincipalRefusedError:
        answer = None
        if version is not None:
            message = "Authentication failed: the gateway cannot tell which principal to charge"
            answer = write_authenticate_refusal(self._correlation_id, version, message)
        return PrincipalRefusedError(reason, mechanism=_shown(self._context.mechanism), answer=answer)

    def _unknown(self, identity: UnknownUser) -> str:
        return (
            f"{identity.reason}; {UNKNOWN_PRINCIPAL_SETTING} is {_REFUSE}, and may name a principal to charge instead"
        )

    def _end(self) -> None:
        """Forget the exchange, and what was read in it."""
        self._exchange, self._raw, self._awaits_response = None, False, False

    def _fail(self, error: KquotaError) -> NoReturn:
        self._end()
        self._asked = None
        raise error


def _bare(error: T) -> T:
    """Without the frames that it was raised in, and the errors that led to it."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _shown(mechanism: str | None) -> str:
    return printable((mechanism or "")[:_MAX_SHOWN_MECHANISM])

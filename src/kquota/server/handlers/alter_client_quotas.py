"""AlterClientQuotas (KIP-546). Source: ``AlterClientQuotasRequest``, ``ClientQuotaControlManager``."""

from kquota.errors import ApiError, StoreError
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity
from kquota.server.context import ServerContext
from kquota.server.messages import Messages, failure, sendable_name
from kquota.server.writer import Alterations, Results
from kquota.wire.messages.client_quotas import (
    AlterationResult,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityPart,
)

__all__ = ["alterations", "answer", "refused", "results"]

Op = ClientQuotaAlteration.Op


def alterations(request: AlterClientQuotasRequest) -> list[ClientQuotaAlteration]:
    """What is asked for."""
    return [
        ClientQuotaAlteration(
            ClientQuotaEntity.of_parts([(part.entity_type, part.entity_name) for part in entry.entity]),
            tuple(Op(op.key, None if op.remove else op.value) for op in entry.ops),
        )
        for entry in request.entries
    ]


async def results(asked: Alterations, context: ServerContext, *, validate_only: bool, principal: str) -> Results:
    """One result for each entity, once what was accepted is kept, also through a power cut."""
    try:
        return await context.writer.alter(asked, validate_only=validate_only, principal=principal)
    except StoreError as error:
        return dict.fromkeys((alteration.entity for alteration in asked.alterations), failure(error))


def answer(found: Results) -> AlterClientQuotasResponse:
    """The results as they are sent."""
    messages = Messages()
    return AlterClientQuotasResponse(
        0,
        [
            AlterationResult(
                error.code if error else 0,
                messages.sendable(error.message) if error else None,
                [EntityPart(sendable_name(kind), sendable_name(name)) for kind, name in entity.entries.items()],
            )
            for entity, error in found.items()
        ],
    )


def refused(request: AlterClientQuotasRequest, error: ApiError) -> AlterClientQuotasResponse:
    """The same for each entity, as often as it is named. Source: ``AlterClientQuotasRequest.getErrorResponse``."""
    messages = Messages()
    return AlterClientQuotasResponse(
        0,
        [
            AlterationResult(
                error.code,
                messages.sendable(error.message),
                [EntityPart(sendable_name(part.entity_type), sendable_name(part.entity_name)) for part in entry.entity],
            )
            for entry in request.entries
        ],
    )

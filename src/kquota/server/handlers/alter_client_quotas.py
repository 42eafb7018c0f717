"""AlterClientQuotas (KIP-546). Source: ``AlterClientQuotasRequest``, ``ClientQuotaControlManager``."""

from kquota.errors import StoreError
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity
from kquota.server.context import ServerContext
from kquota.server.messages import failure, sendable
from kquota.server.writer import Results
from kquota.wire.messages.client_quotas import (
    AlterationResult,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityPart,
)

__all__ = ["handle"]

Op = ClientQuotaAlteration.Op


async def handle(
    request: AlterClientQuotasRequest, context: ServerContext, principal: str
) -> AlterClientQuotasResponse:
    """One result for each entity; an answer means that it is kept, also through a power cut."""
    alterations = [
        ClientQuotaAlteration(
            ClientQuotaEntity.of_parts([(part.entity_type, part.entity_name) for part in entry.entity]),
            tuple(Op(op.key, None if op.remove else op.value) for op in entry.ops),
        )
        for entry in request.entries
    ]
    results: Results
    try:
        results = await context.writer.alter(alterations, validate_only=request.validate_only, principal=principal)
    except StoreError as error:
        results = dict.fromkeys((alteration.entity for alteration in alterations), failure(error))
    return AlterClientQuotasResponse(
        0,
        [
            AlterationResult(
                error.code if error else 0,
                sendable(error.message) if error else None,
                [EntityPart(sendable(kind), sendable(name)) for kind, name in entity.entries.items()],
            )
            for entity, error in results.items()
        ],
    )

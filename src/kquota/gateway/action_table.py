"""The APIs that the gateway forwards. Written by ``tools/action_table.py``: change that, and run it.

A row: API key, name, first version, last version; then versions *since* which, None for never: requests and responses
are flexible, response headers have a tag section, responses have ``throttle_time_ms``; its place; then the version
since which Kafka's Java client waits by itself (``AbstractResponse.shouldClientThrottle``).
"""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["ROWS", "Row"]

Place = Literal["first", "after error code", "last"]
Row = tuple[int, str, int, int, int | None, int | None, int | None, Place, int | None]

# fmt: off
ROWS: Final[tuple[Row, ...]] = (
    (0, "Produce", 0, 13, 9, 9, 1, "last", 6),
    (1, "Fetch", 0, 15, 12, 12, 1, "first", 8),
    (2, "ListOffsets", 0, 11, 6, 6, 2, "first", 3),
    (3, "Metadata", 0, 13, 9, 9, 3, "first", 6),
    (8, "OffsetCommit", 0, 10, 8, 8, 3, "first", 4),
    (9, "OffsetFetch", 0, 10, 6, 6, 3, "first", 4),
    (10, "FindCoordinator", 0, 6, 3, 3, 1, "first", 2),
    (11, "JoinGroup", 0, 9, 6, 6, 2, "first", 3),
    (12, "Heartbeat", 0, 4, 4, 4, 1, "first", 2),
    (13, "LeaveGroup", 0, 5, 4, 4, 1, "first", 2),
    (14, "SyncGroup", 0, 5, 4, 4, 1, "first", 2),
    (15, "DescribeGroups", 0, 6, 5, 5, 1, "first", 2),
    (16, "ListGroups", 0, 5, 3, 3, 1, "first", 2),
    (17, "SaslHandshake", 0, 1, None, None, None, "first", None),
    (18, "ApiVersions", 0, 4, 3, None, 1, "last", 2),
    (19, "CreateTopics", 0, 7, 5, 5, 2, "first", 3),
    (20, "DeleteTopics", 0, 6, 4, 4, 1, "first", 2),
    (21, "DeleteRecords", 0, 2, 2, 2, 0, "first", 1),
    (22, "InitProducerId", 0, 6, 2, 2, 0, "first", 1),
    (23, "OffsetForLeaderEpoch", 0, 4, 4, 4, 2, "first", None),
    (24, "AddPartitionsToTxn", 0, 5, 3, 3, 0, "first", 1),
    (25, "AddOffsetsToTxn", 0, 4, 3, 3, 0, "first", 1),
    (26, "EndTxn", 0, 5, 3, 3, 0, "first", 1),
    (27, "WriteTxnMarkers", 0, 2, 1, 1, None, "first", None),
    (28, "TxnOffsetCommit", 0, 5, 3, 3, 0, "first", 1),
    (29, "DescribeAcls", 0, 3, 2, 2, 0, "first", 1),
    (30, "CreateAcls", 0, 3, 2, 2, 0, "first", 1),
    (31, "DeleteAcls", 0, 3, 2, 2, 0, "first", 1),
    (32, "DescribeConfigs", 0, 4, 4, 4, 0, "first", 2),
    (33, "AlterConfigs", 0, 2, 2, 2, 0, "first", 1),
    (34, "AlterReplicaLogDirs", 0, 2, 2, 2, 0, "first", 1),
    (35, "DescribeLogDirs", 0, 5, 2, 2, 0, "first", 1),
    (36, "SaslAuthenticate", 0, 2, 2, 2, None, "first", None),
    (37, "CreatePartitions", 0, 3, 2, 2, 0, "first", 1),
    (38, "CreateDelegationToken", 0, 3, 2, 2, 0, "last", 1),
    (39, "RenewDelegationToken", 0, 2, 2, 2, 0, "last", 1),
    (40, "ExpireDelegationToken", 0, 2, 2, 2, 0, "last", 1),
    (41, "DescribeDelegationToken", 0, 3, 2, 2, 0, "last", 1),
    (42, "DeleteGroups", 0, 2, 2, 2, 0, "first", 1),
    (43, "ElectLeaders", 0, 2, 2, 2, 0, "first", 0),
    (44, "IncrementalAlterConfigs", 0, 1, 1, 1, 0, "first", 0),
    (45, "AlterPartitionReassignments", 0, 1, 0, 0, 0, "first", 0),
    (46, "ListPartitionReassignments", 0, 0, 0, 0, 0, "first", 0),
    (47, "OffsetDelete", 0, 0, None, None, 0, "after error code", 0),
    (48, "DescribeClientQuotas", 0, 1, 1, 1, 0, "first", None),
    (49, "AlterClientQuotas", 0, 1, 1, 1, 0, "first", None),
    (50, "DescribeUserScramCredentials", 0, 0, 0, 0, 0, "first", 0),
    (51, "AlterUserScramCredentials", 0, 0, 0, 0, 0, "first", 0),
    (55, "DescribeQuorum", 0, 2, 0, 0, None, "first", None),
    (57, "UpdateFeatures", 0, 2, 0, 0, 0, "first", None),
    (60, "DescribeCluster", 0, 2, 0, 0, 0, "first", None),
    (61, "DescribeProducers", 0, 0, 0, 0, 0, "first", None),
    (64, "UnregisterBroker", 0, 0, 0, 0, 0, "first", 0),
    (65, "DescribeTransactions", 0, 0, 0, 0, 0, "first", None),
    (66, "ListTransactions", 0, 2, 0, 0, 0, "first", None),
    (68, "ConsumerGroupHeartbeat", 0, 1, 0, 0, 0, "first", None),
    (69, "ConsumerGroupDescribe", 0, 1, 0, 0, 0, "first", None),
    (71, "GetTelemetrySubscriptions", 0, 0, 0, 0, 0, "first", None),
    (72, "PushTelemetry", 0, 0, 0, 0, 0, "first", None),
    (74, "ListConfigResources", 0, 1, 0, 0, 0, "first", None),
    (75, "DescribeTopicPartitions", 0, 0, 0, 0, 0, "first", 0),
    (76, "ShareGroupHeartbeat", 0, 1, 0, 0, 0, "first", None),
    (77, "ShareGroupDescribe", 0, 1, 0, 0, 0, "first", None),
    (80, "AddRaftVoter", 0, 1, 0, 0, 0, "first", None),
    (81, "RemoveRaftVoter", 0, 0, 0, 0, 0, "first", None),
    (88, "StreamsGroupHeartbeat", 0, 0, 0, 0, 0, "first", None),
    (89, "StreamsGroupDescribe", 0, 0, 0, 0, 0, "first", None),
    (90, "DescribeShareGroupOffsets", 0, 1, 0, 0, 0, "first", None),
    (91, "AlterShareGroupOffsets", 0, 0, 0, 0, 0, "first", None),
    (92, "DeleteShareGroupOffsets", 0, 0, 0, 0, 0, "first", None),
    (10546, "ResolveQuotas", 0, 0, 0, 0, 0, "first", None),
)

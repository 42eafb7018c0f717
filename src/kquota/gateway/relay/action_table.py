"""The APIs that the gateway forwards. Written by ``tools/action_table.py``: change that, and run it.

A row: API key, name, first version, last version; then versions *since* which, None for never: requests and responses
are flexible, response headers have a tag section, responses have ``throttle_time_ms``; and its place.
"""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["ROWS", "Row"]

Place = Literal["first", "after error code", "last"]
Row = tuple[int, str, int, int, int | None, int | None, int | None, Place]

# fmt: off
ROWS: Final[tuple[Row, ...]] = (
    (0, "Produce", 0, 13, 9, 9, 1, "last"),
    (1, "Fetch", 0, 15, 12, 12, 1, "first"),
    (2, "ListOffsets", 0, 11, 6, 6, 2, "first"),
    (3, "Metadata", 0, 13, 9, 9, 3, "first"),
    (8, "OffsetCommit", 0, 10, 8, 8, 3, "first"),
    (9, "OffsetFetch", 0, 10, 6, 6, 3, "first"),
    (10, "FindCoordinator", 0, 6, 3, 3, 1, "first"),
    (11, "JoinGroup", 0, 9, 6, 6, 2, "first"),
    (12, "Heartbeat", 0, 4, 4, 4, 1, "first"),
    (13, "LeaveGroup", 0, 5, 4, 4, 1, "first"),
    (14, "SyncGroup", 0, 5, 4, 4, 1, "first"),
    (15, "DescribeGroups", 0, 6, 5, 5, 1, "first"),
    (16, "ListGroups", 0, 5, 3, 3, 1, "first"),
    (17, "SaslHandshake", 0, 1, None, None, None, "first"),
    (18, "ApiVersions", 0, 4, 3, None, 1, "last"),
    (19, "CreateTopics", 0, 7, 5, 5, 2, "first"),
    (20, "DeleteTopics", 0, 6, 4, 4, 1, "first"),
    (21, "DeleteRecords", 0, 2, 2, 2, 0, "first"),
    (22, "InitProducerId", 0, 6, 2, 2, 0, "first"),
    (23, "OffsetForLeaderEpoch", 0, 4, 4, 4, 2, "first"),
    (24, "AddPartitionsToTxn", 0, 5, 3, 3, 0, "first"),
    (25, "AddOffsetsToTxn", 0, 4, 3, 3, 0, "first"),
    (26, "EndTxn", 0, 5, 3, 3, 0, "first"),
    (27, "WriteTxnMarkers", 0, 2, 1, 1, None, "first"),
    (28, "TxnOffsetCommit", 0, 5, 3, 3, 0, "first"),
    (29, "DescribeAcls", 0, 3, 2, 2, 0, "first"),
    (30, "CreateAcls", 0, 3, 2, 2, 0, "first"),
    (31, "DeleteAcls", 0, 3, 2, 2, 0, "first"),
    (32, "DescribeConfigs", 0, 4, 4, 4, 0, "first"),
    (33, "AlterConfigs", 0, 2, 2, 2, 0, "first"),
    (34, "AlterReplicaLogDirs", 0, 2, 2, 2, 0, "first"),
    (35, "DescribeLogDirs", 0, 5, 2, 2, 0, "first"),
    (36, "SaslAuthenticate", 0, 2, 2, 2, None, "first"),
    (37, "CreatePartitions", 0, 3, 2, 2, 0, "first"),
    (38, "CreateDelegationToken", 0, 3, 2, 2, 0, "last"),
    (39, "RenewDelegationToken", 0, 2, 2, 2, 0, "last"),
    (40, "ExpireDelegationToken", 0, 2, 2, 2, 0, "last"),
    (41, "DescribeDelegationToken", 0, 3, 2, 2, 0, "last"),
    (42, "DeleteGroups", 0, 2, 2, 2, 0, "first"),
    (43, "ElectLeaders", 0, 2, 2, 2, 0, "first"),
    (44, "IncrementalAlterConfigs", 0, 1, 1, 1, 0, "first"),
    (45, "AlterPartitionReassignments", 0, 1, 0, 0, 0, "first"),
    (46, "ListPartitionReassignments", 0, 0, 0, 0, 0, "first"),
    (47, "OffsetDelete", 0, 0, None, None, 0, "after error code"),
    (48, "DescribeClientQuotas", 0, 1, 1, 1, 0, "first"),
    (49, "AlterClientQuotas", 0, 1, 1, 1, 0, "first"),
    (50, "DescribeUserScramCredentials", 0, 0, 0, 0, 0, "first"),
    (51, "AlterUserScramCredentials", 0, 0, 0, 0, 0, "first"),
    (55, "DescribeQuorum", 0, 2, 0, 0, None, "first"),
    (57, "UpdateFeatures", 0, 2, 0, 0, 0, "first"),
    (60, "DescribeCluster", 0, 2, 0, 0, 0, "first"),
    (61, "DescribeProducers", 0, 0, 0, 0, 0, "first"),
    (64, "UnregisterBroker", 0, 0, 0, 0, 0, "first"),
    (65, "DescribeTransactions", 0, 0, 0, 0, 0, "first"),
    (66, "ListTransactions", 0, 2, 0, 0, 0, "first"),
    (68, "ConsumerGroupHeartbeat", 0, 1, 0, 0, 0, "first"),
    (69, "ConsumerGroupDescribe", 0, 1, 0, 0, 0, "first"),
    (71, "GetTelemetrySubscriptions", 0, 0, 0, 0, 0, "first"),
    (72, "PushTelemetry", 0, 0, 0, 0, 0, "first"),
    (74, "ListConfigResources", 0, 1, 0, 0, 0, "first"),
    (75, "DescribeTopicPartitions", 0, 0, 0, 0, 0, "first"),
    (76, "ShareGroupHeartbeat", 0, 1, 0, 0, 0, "first"),
    (77, "ShareGroupDescribe", 0, 1, 0, 0, 0, "first"),
    (80, "AddRaftVoter", 0, 1, 0, 0, 0, "first"),
    (81, "RemoveRaftVoter", 0, 0, 0, 0, 0, "first"),
    (88, "StreamsGroupHeartbeat", 0, 0, 0, 0, 0, "first"),
    (89, "StreamsGroupDescribe", 0, 0, 0, 0, 0, "first"),
    (90, "DescribeShareGroupOffsets", 0, 1, 0, 0, 0, "first"),
    (91, "AlterShareGroupOffsets", 0, 0, 0, 0, 0, "first"),
    (92, "DeleteShareGroupOffsets", 0, 0, 0, 0, 0, "first"),
    (10546, "ResolveQuotas", 0, 0, 0, 0, 0, "first"),
)

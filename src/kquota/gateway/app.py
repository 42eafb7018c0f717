"""Running the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Self

import structlog

from kquota.admin.client import AsyncQuotaAdmin
from kquota.config import BrokerConfig, ConnectionLimits
from kquota.errors import InputError, KquotaError, ProtocolError
from kquota.gateway.broker_quotas import BrokerQuotas, Change
from kquota.gateway.client_connection import ClientConnection
from kquota.gateway.relay import Relay
from kquota.gateway.settings import GatewaySettings
from kquota.gateway.topology import Node, Topology
from kquota.metering.cluster import Cluster
from kquota.net.addresses import Address, is_connectable, is_loopback, is_unspecified
from kquota.net.listener import Listener, Peer
from kquota.net.log import LineLimit

__all__ = ["Gateway", "run"]

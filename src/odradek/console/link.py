"""The cluster as the console reaches it: Kafka's protocol, and its brokers' HTTP listeners.

Reading goes out as client id `odradek-console`, so that quotas can bind it. A change goes out as
`odradek-console/<user>`, so that the controller's journal names the user.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping

from odradek.client.acls import Acls
from odradek.client.admin import Admin
from odradek.client.client import Client
from odradek.client.groups import Groups
from odradek.client.quotas import Quotas
from odradek.client.users import Users
from odradek.operations.broker_http import HTTP_LISTENER, HttpAddress, http_address
from odradek.wire.errors import KafkaError
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

CLIENT_ID = "odradek-console"
BROKER_RESOURCE = 4
# Clients of users that have changed something lately.
CLIENTS_MAX = 16
CLIENT_ID_MAX = 200


class Api:
    """Every verb there is, on one client."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.admin = Admin(client)
        self.groups = Groups(client)
        self.quotas = Quotas(client)
        self.users = Users(client)
        self.acls = Acls(client)


class Link:
    """The client that reads, those that change, and where brokers listen for HTTP."""

    def __init__(
        self, bootstrap: str, security: Mapping[str, str], *, timeout_s: float, token: str | None
    ) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._timeout_s = timeout_s
        self.token = token
        self.api = Api(self._client(CLIENT_ID))
        self._by_user: OrderedDict[str, Api] = OrderedDict()
        self._http: dict[int, tuple[str, int, HttpAddress | None]] = {}

    @property
    def client(self) -> Client:
        return self.api.client

    def _client(self, client_id: str) -> Client:
        return Client(
            self._bootstrap,
            client_id=client_id,
            timeout_s=self._timeout_s,
            security=self._security,
        )

    def open(self, client_id: str) -> Client:
        """A further client, which the caller closes."""
        return self._client(client_id)

    async def for_user(self, user: str) -> Api:
        """What makes the changes of one user."""
        name = "".join(each if each.isprintable() else "?" for each in user)[:CLIENT_ID_MAX]
        if name not in self._by_user:
            self._by_user[name] = Api(self._client(f"{CLIENT_ID}/{name}"))
            if len(self._by_user) > CLIENTS_MAX:
                _, oldest = self._by_user.popitem(last=False)
                await oldest.client.close()
        self._by_user.move_to_end(name)
        return self._by_user[name]

    async def close(self) -> None:
        clients = [self.client, *(api.client for api in self._by_user.values())]
        await asyncio.gather(*(client.close() for client in clients), return_exceptions=True)

    # Where brokers listen for HTTP

    async def find_http(self) -> None:
        """Ask the brokers that are new, or have restarted elsewhere, where they listen."""
        nodes = self.client.metadata.nodes
        for id in [id for id in self._http if id not in nodes]:
            del self._http[id]
        unknown = [
            node for node in nodes.values() if self._http.get(node.id, ("", 0))[:2] != node[1:3]
        ]
        found = await asyncio.gather(
            *(self._ask_http(node.id, node.host) for node in unknown), return_exceptions=True
        )
        for node, address in zip(unknown, found, strict=True):
            if not isinstance(address, BaseException):
                self._http[node.id] = (node.host, node.port, address)

    def forget_http(self, broker: int) -> None:
        """A listener that does not answer may be another one next time."""
        self._http.pop(broker, None)

    def http(self) -> dict[int, HttpAddress]:
        return {id: address for id, (_, _, address) in self._http.items() if address is not None}

    async def _ask_http(self, broker: int, host: str) -> HttpAddress | None:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=BROKER_RESOURCE,
                    resource_name=str(broker),
                    configuration_keys=[HTTP_LISTENER],
                )
            ]
        )
        response = await self.client.ask(broker, request, timeout=5.0)
        for result in response.results:
            for config in result.configs:
                if config.name == HTTP_LISTENER:
                    return http_address(config.value, host)
        return None


# What can go wrong with a question to the cluster that is not our own mistake.
FAILURES = (KafkaError, OSError, TimeoutError)

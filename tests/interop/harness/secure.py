"""A mixed cluster whose brokers log in to each other with SCRAM over TLS, and know their clients.

Each member has two listeners: PLAINTEXT, over which the harness looks at it (ANONYMOUS is a super
user), and SECURE, SASL_SSL, for brokers and clients.
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from kazoo.client import KazooClient
from tests.interop.harness.kafka import QUICK_START, KafkaBroker
from tests.interop.harness.mixed import OURS, Kind, MixedCluster
from tests.interop.harness.ours import OurBroker
from tests.interop.harness.processes import Member

from odradek.broker.first_users import write_users
from odradek.security.development import DevelopmentSecurity
from odradek.security.jaas import Module, jaas_text
from odradek.testing.cluster import _free_ports as free_ports

PASSWORDS = {"broker": "of-brokers", "admin": "of-admin", "alice": "of-alice"}
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class SecureMixedCluster(MixedCluster):
    def __init__(
        self,
        zookeeper: str,
        directory: Path,
        members: Mapping[int, Kind],
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.files = DevelopmentSecurity(directory / "security")
        self.files.create_in(self.files.directory, ["localhost", "127.0.0.1"])
        ports = free_ports(2 * len(members))
        self.secure_ports = dict(zip(members, ports[len(members) :], strict=True))
        store = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.files.directory / "broker.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.files.authority_file,
        }
        own = jaas_text(Module.SCRAM, username="broker", password=PASSWORDS["broker"])
        super().__init__(
            zookeeper,
            directory,
            members,
            {
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
                "inter.broker.listener.name": "SECURE",
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                "sasl.mechanism.inter.broker.protocol": MECHANISMS[0],
                **{
                    f"listener.name.secure.{mechanism.lower()}.sasl.jaas.config": own
                    for mechanism in MECHANISMS
                },
                **{f"listener.name.secure.{name}": value for name, value in store.items()},
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": "User:ANONYMOUS;User:broker;User:admin",
                "delegation.token.secret.key": "the-same-on-every-broker",
                **(settings or {}),
            },
            ports[: len(members)],
        )
        self._add_users()

    def _add_users(self) -> None:
        """Before the first broker starts: they log in to each other."""
        hosts, _, chroot = self.zookeeper.partition("/")
        nodes = KazooClient(hosts=hosts)
        nodes.start()
        nodes.ensure_path(f"/{chroot}")
        nodes.stop()
        nodes.close()
        asyncio.run(write_users(f"zookeeper://{self.zookeeper}", PASSWORDS, os.urandom))

    def _member(self, broker: int, kind: Kind) -> Member:
        port, home = self.ports[broker], self.directory_of(broker)
        listeners = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},"
            f"SECURE://127.0.0.1:{self.secure_ports[broker]}"
        }
        settings = {**self._settings, **listeners}
        if kind is OURS:
            return OurBroker(broker, port, self.zookeeper, home, settings)
        return KafkaBroker(broker, port, self.zookeeper, home, settings, jvm=QUICK_START)

    def secure_address(self, broker: int) -> str:
        return f"127.0.0.1:{self.secure_ports[broker]}"

    def client_file(self, user: str, password: str = "", **options: str) -> str:
        """A properties file for Kafka's tools, and ours."""
        path = self.directory / f"{user}-{len(options)}.properties"
        jaas = jaas_text(
            Module.SCRAM, username=user, password=password or PASSWORDS[user], **options
        )
        path.write_text(
            "security.protocol=SASL_SSL\n"
            f"sasl.mechanism={MECHANISMS[0]}\n"
            f"sasl.jaas.config={jaas}\n"
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.files.authority_file}\n"
        )
        return str(path)

    def librdkafka(self, broker: int, user: str, password: str = "") -> dict[str, str]:
        settings = self.files.librdkafka(user, password or PASSWORDS[user])
        return {"bootstrap.servers": self.secure_address(broker), "log_level": "2", **settings}

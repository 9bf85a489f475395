"""What a broker follows in the store while it runs: features, ACLs and delegation tokens."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from odradek.broker.acl_follower import AclFollower
from odradek.broker.config import BrokerConfig
from odradek.broker.features import FeatureFollower
from odradek.broker.security import BrokerSecurity
from odradek.store.cluster import ClusterStore

if TYPE_CHECKING:
    from odradek.broker.delegation_tokens import TokenFollower

__all__ = ["Followers"]


class Followers:
    """ACLs are None without an authorizer, tokens without a secret key."""

    def __init__(
        self,
        config: BrokerConfig,
        store: ClusterStore,
        security: BrokerSecurity,
        *,
        clock: Callable[[], int],
        rng: Random,
    ) -> None:
        self._has_features = config.protocol.enables_features
        self._security = security
        authorizer = security.authorizer
        self.features = FeatureFollower(store)
        self.acls = None if authorizer is None else AclFollower(store, authorizer, rng)
        self.tokens = _token_follower(config, store, security, clock, rng)

    async def start(self, is_controller: Callable[[], bool]) -> None:
        """Returns when everything was read once."""
        if self._has_features:
            await self.features.start()
        if self.acls is not None:
            await self.acls.start()
            self._security.check_own_permission()
        if self.tokens is not None:
            await self.tokens.start(is_controller)

    async def stop(self) -> None:
        await self.features.stop()
        if self.acls is not None:
            await self.acls.stop()
        if self.tokens is not None:
            await self.tokens.stop()


def _token_follower(
    config: BrokerConfig,
    store: ClusterStore,
    security: BrokerSecurity,
    clock: Callable[[], int],
    rng: Random,
) -> "TokenFollower | None":
    if security.tokens is None:
        return None
    from odradek.broker.delegation_tokens import TokenFollower, TokenLimits

    limits = TokenLimits(
        config.integer("delegation.token.max.lifetime.ms"),
        config.integer("delegation.token.expiry.time.ms"),
        config.integer("delegation.token.expiry.check.interval.ms"),
    )
    return TokenFollower(store, security.tokens, limits, clock, rng.randbytes)

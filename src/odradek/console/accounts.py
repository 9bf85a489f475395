"""Who may log in: a token, users of a file, or users that a proxy names; and what each may do."""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**14, 8, 1
SALT_BYTES = 16
OWNER_ONLY = 0o600


class Right(StrEnum):
    """What a route needs."""

    NONE = "none"  # also without a login
    READ = "read"
    RECORDS = "records"
    OPERATE = "operate"
    ADMINISTER = "administer"


RIGHTS: Mapping[str, frozenset[Right]] = {
    "viewer": frozenset({Right.READ}),
    "operator": frozenset({Right.READ, Right.OPERATE}),
    "admin": frozenset({Right.READ, Right.OPERATE, Right.ADMINISTER}),
}


@dataclass(frozen=True, slots=True)
class Account:
    """A user: the role, and the prefixes of the topics whose records may be read ("" is all)."""

    name: str
    role: str
    records: tuple[str, ...] = ()

    def may(self, right: Right) -> bool:
        if right is Right.RECORDS:
            return bool(self.records)
        return right is Right.NONE or right in RIGHTS[self.role]

    def may_read(self, topic: str) -> bool:
        return any(topic.startswith(prefix) for prefix in self.records)

    def rights(self) -> list[str]:
        held = [right.value for right in RIGHTS[self.role]]
        return sorted([*held, *([Right.RECORDS.value] if self.records else [])])


LOCAL = Account("local", "admin", ("",))


class AccountsError(Exception):
    """A file of users that cannot be used."""


class Accounts:
    """The users of a file, with their passwords as scrypt leaves them."""

    def __init__(self, entries: Mapping[str, tuple[Account, str]]) -> None:
        self._entries = dict(entries)

    @classmethod
    def read(cls, path: Path) -> "Accounts":
        """Raises AccountsError."""
        try:
            users = json.loads(path.read_text())
            entries = {}
            for name, user in users.items():
                account = Account(name, user["role"], tuple(user.get("records", ())))
                if account.role not in RIGHTS:
                    raise AccountsError(
                        f"{path}: {name} has the role {account.role!r}; there are "
                        f"{', '.join(RIGHTS)}"
                    )
                entries[name] = (account, user.get("password", ""))
        except OSError as error:
            raise AccountsError(f"{path}: {error.strerror}") from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise AccountsError(f"{path} is no file of users: {error}") from None
        return cls(entries)

    def check(self, name: str, password: str) -> Account | None:
        """The account, if the password is its own. An unknown name takes as long as a wrong one."""
        account, kept = self._entries.get(name, (None, _NO_PASSWORD))
        return account if _matches(password, kept or _NO_PASSWORD) else None

    def named(self, name: str) -> Account | None:
        entry = self._entries.get(name)
        return None if entry is None else entry[0]


def hashed(password: str, salt: bytes | None = None) -> str:
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    key = hashlib.scrypt(
        password.encode("utf-8", "surrogatepass"), salt=salt, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P
    )
    return f"scrypt${salt.hex()}${key.hex()}"


_NO_PASSWORD = f"scrypt${'00' * SALT_BYTES}$"


def _matches(password: str, kept: str) -> bool:
    _, _, rest = kept.partition("$")
    salt, _, _ = rest.partition("$")
    try:
        return hmac.compare_digest(hashed(password, bytes.fromhex(salt)), kept)
    except ValueError:
        return False


def add_user(path: Path, name: str, password: str, role: str, records: Iterable[str]) -> None:
    """Write a user into a file that only its owner can read. Raises OSError."""
    users = json.loads(path.read_text()) if path.exists() else {}
    users[name] = {"role": role, "records": list(records), "password": hashed(password)}
    write_private(path, json.dumps(users, indent=1) + "\n")


def write_private(path: Path, text: str) -> None:
    """Write a file of mode 0600, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f"{path.name}.new")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    part.replace(path)

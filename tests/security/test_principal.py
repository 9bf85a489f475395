"""Texts that ACLs are compared with: principals, hosts, subjects and what rules make of them."""

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from tests.security.certificates import Authority

from odradek.security.distinguished_name import InvalidCertificate, name_text, subject_text
from odradek.security.mapping_rules import InvalidMappingRules, NoMatchingRule, PrincipalMapper
from odradek.security.principal import Principal, host_text

# What is expected of each name was printed by `new X500Principal(der).getName()`, OpenJDK 17.
CN, C, L, ST, ORG, OU = "2.5.4.3", "2.5.4.6", "2.5.4.7", "2.5.4.8", "2.5.4.10", "2.5.4.11"
DC, UID = "0.9.2342.19200300.100.1.25", "0.9.2342.19200300.100.1.1"
EMAIL, STREET, SERIAL = "1.2.840.113549.1.9.1", "2.5.4.9", "2.5.4.5"
UTF8, PRINTABLE, T61, IA5, GENERAL, BMP = 0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E


def element(tag: int, body: bytes) -> bytes:
    size = len(body)
    length = bytes([size]) if size < 128 else bytes([0x82, size >> 8, size & 255])
    return bytes([tag]) + length + body


def identifier(text: str) -> bytes:
    first, second, *rest = (int(each) for each in text.split("."))
    body = bytes([first * 40 + second])
    for number in rest:
        septets = [number & 127]
        while number := number >> 7:
            septets.append(number & 127 | 128)
        body += bytes(reversed(septets))
    return element(0x06, body)


def name(*relative: list[tuple[str, int, bytes]]) -> bytes:
    return b"".join(
        element(
            0x31,
            b"".join(
                element(0x30, identifier(kind) + element(tag, value)) for kind, tag, value in parts
            ),
        )
        for parts in relative
    )


@pytest.mark.parametrize(
    ("relative", "java"),
    [
        (
            ([(C, PRINTABLE, b"US")], [(ORG, UTF8, b"Acme, Inc.")], [(CN, UTF8, b"a=b")]),
            r"CN=a\=b,O=Acme\, Inc.,C=US",
        ),
        (([(DC, IA5, b"com")], [(DC, IA5, b"x")], [(UID, UTF8, b"u1")]), "UID=u1,DC=x,DC=com"),
        (
            ([(EMAIL, IA5, b"joe@x.org"), (CN, UTF8, b"joe")],),
            "1.2.840.113549.1.9.1=#16096a6f6540782e6f7267+CN=joe",
        ),
        (([(CN, UTF8, b"  two  ")],), r"CN=\ \ two\ \ "),
        (([(CN, UTF8, b" ")],), r"CN=\ "),
        (([(CN, UTF8, b"#x#y")],), r"CN=\#x\#y"),
        (([(CN, UTF8, b"a\0b")],), r"CN=a\00b"),
        (([(CN, UTF8, "ü€𝄞".encode())],), "CN=ü€𝄞"),
        (([(CN, BMP, "bm".encode("utf-16-be"))],), r"CN=\00b\00m"),
        (([(CN, UTF8, b'<a>+;"\\q')],), r"CN=\<a\>\+\;\"\\q"),
        (([(SERIAL, PRINTABLE, b"123")],), "2.5.4.5=#1303313233"),
        (([(STREET, UTF8, b"S 1")],), "STREET=S 1"),
        (([(ST, UTF8, b"BY")], [(L, UTF8, b"M")], [(OU, UTF8, b"x")]), "OU=x,L=M,ST=BY"),
        (([(CN, 0x12, b"12 3")],), "CN=#120431322033"),
        (([(CN, GENERAL, b"gen")],), "CN=gen"),
        (([(CN, UTF8, b"\ra\r")],), "CN=\\\ra\\\r"),
        (([(CN, UTF8, b"")],), "CN="),
        (([(CN, 0x02, b"\x05")],), "CN=#020105"),
        ((), ""),
    ],
)
def test_a_name_reads_as_java_prints_it(
    relative: tuple[list[tuple[str, int, bytes]], ...], java: str
) -> None:
    assert name_text(name(*relative)) == java


def test_the_subject_of_a_certificate_is_found() -> None:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "US"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Acme, Inc."),
            x509.NameAttribute(NameOID.COMMON_NAME, "a=b"),
        ]
    )
    assert subject_text(Authority().issue(subject).der) == r"CN=a\=b,O=Acme\, Inc.,C=US"


@given(st.binary(max_size=300))
def test_bytes_that_are_no_certificate_are_rejected(data: bytes) -> None:
    with pytest.raises(InvalidCertificate):
        subject_text(data)


@pytest.mark.parametrize(
    ("address", "java"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8::a", "2001:db8:0:0:0:0:0:a"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1"),
        ("unknown", "unknown"),
    ],
)
def test_a_host_is_written_as_java_writes_it(address: str, java: str) -> None:
    assert host_text(address) == java


def test_a_principal_splits_at_the_first_colon() -> None:
    assert Principal.parse("User:CN=a:b,O=c") == Principal("CN=a:b,O=c")
    assert str(Principal("x", token_authenticated=True)) == "User:x"
    assert Principal("x", token_authenticated=True) == Principal("x")
    for wrong in ("alice", "User:", ":x", ""):
        with pytest.raises(ValueError, match="User:name"):
            Principal.parse(wrong)


@pytest.mark.parametrize(
    ("rules", "subject", "user"),
    [
        ("DEFAULT", "CN=Duke,OU=x", "CN=Duke,OU=x"),
        ("", "CN=Duke", "CN=Duke"),
        ("RULE:^CN=(.*?),.*$/$1/L,DEFAULT", "CN=Duke,OU=x", "duke"),
        ("RULE:^CN=(.*?),.*$/$1/L,DEFAULT", "CN=Duke", "CN=Duke"),
        ("RULE:CN=(\\w+)/$1@x\\/y/U", "CN=duke", "DUKE@X/Y"),
        (" , RULE:CN=(.)(.*)/$2$12/ , DEFAULT", "CN=ab", "ba2"),
        ("RULE:CN=(.*)/$9/", "CN=a", "$9"),
        ("RULE:^OU=x$/no/,RULE:.*/second/", "CN=a", "second"),
        # Java's classes and (?i) are ASCII: another alphabet's letter is no \w, and no other case.
        ("RULE:^CN=(\\w+)$/$1/,DEFAULT", "CN=\u0430dmin", "CN=\u0430dmin"),
        ("RULE:(?i)cn=\u212a/kelvin/,DEFAULT", "CN=k", "CN=k"),
    ],
)
def test_the_first_rule_that_matches_the_whole_subject_wins(
    rules: str, subject: str, user: str
) -> None:
    assert PrincipalMapper(rules).user(subject) == user


@pytest.mark.parametrize(
    "rules",
    ["default", "DEFAULT/L", "RULE:a/b", "RULE:a/b/X", "RULE:(/b/", "RULE:\\p{L}/b/", "rule:a/b/"],
)
def test_rules_that_cannot_be_read_refuse_the_start(rules: str) -> None:
    with pytest.raises(InvalidMappingRules):
        PrincipalMapper(rules)


def test_a_subject_that_no_rule_matches_has_no_name() -> None:
    with pytest.raises(NoMatchingRule, match="OU=x"):
        PrincipalMapper("RULE:CN=.*/x/").user("OU=x")

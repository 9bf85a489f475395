"""SASL exchanges, message by message."""

import base64
import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.exchange import SaslError
from odradek.security.jaas import InvalidJaas, Module, jaas_text, parse_jaas
from odradek.security.oauthbearer import (
    OAuthServer,
    SignedTokens,
    UnsecuredTokens,
    oauth_token,
    parse_jwks,
)
from odradek.security.plain import PlainServer, plain_token, plain_users
from odradek.security.scram import (
    MECHANISMS,
    CredentialShape,
    ScramClient,
    ScramCredential,
    ScramServer,
    salted_password,
)

SHA_256, SHA_512 = MECHANISMS["SCRAM-SHA-256"], MECHANISMS["SCRAM-SHA-512"]
NOW_MS = 1_700_000_000_000


# SCRAM


def server(credential: ScramCredential | None, mechanism: str = "SCRAM-SHA-256") -> ScramServer:
    return ScramServer(
        MECHANISMS[mechanism], lambda name, is_token: credential, nonce="server", secret=b"secret"
    )


def log_in(login: ScramServer, client: ScramClient, password: str, mechanism: str) -> None:
    client.challenge(login.respond(client.first()))
    salted = salted_password(MECHANISMS[mechanism], password, client.salt, client.iterations)
    client.verify(login.respond(client.prove(salted)))


def test_the_example_of_rfc_7677_is_reproduced() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = ScramCredential.from_password(SHA_256, "pencil", salt)
    login = ScramServer(
        SHA_256,
        lambda name, is_token: credential if name == "user" else None,
        nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        secret=b"s",
    )
    first = login.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = login.respond(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert login.is_complete
    assert login.login.user == "user"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    ("user", "password"),
    [("alice", "secret"), ("special user= test,scram", "x"), ("a", "ª\u00a0ü=,"), ("b", "p" * 500)],
)
def test_a_login_succeeds_with_the_right_password(mechanism: str, user: str, password: str) -> None:
    credential = ScramCredential.from_password(MECHANISMS[mechanism], password, b"0123456789")
    login = server(credential, mechanism)
    log_in(login, ScramClient(MECHANISMS[mechanism], user, nonce="abc"), password, mechanism)
    assert login.is_complete
    assert login.user == user


def test_an_unknown_user_and_a_wrong_password_look_the_same() -> None:
    credential = ScramCredential.from_password(SHA_256, "right", b"0123456789")
    messages = []
    for known in (credential, None):
        login, client = server(known), ScramClient(SHA_256, "alice", nonce="abc")
        answer = login.respond(client.first())
        client.challenge(answer)
        salted = salted_password(SHA_256, "wrong", client.salt, client.iterations)
        with pytest.raises(SaslError) as raised:
            login.respond(client.prove(salted))
        assert raised.value.public is None
        assert not login.is_complete
        messages.append((str(raised.value), client.iterations, answer.count(b",")))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("salt", [b"0123456789", b"1a2b3c4d5e6f7g8h9i0jklmnop", bytes(range(30))])
def test_what_an_unknown_user_is_shown_looks_like_what_the_others_are(salt: bytes) -> None:
    """Kafka's tools make salts of other lengths, of letters, and may use more iterations."""
    credential = ScramCredential.from_password(SHA_256, "right", salt, 8192)
    shape = CredentialShape.of(credential)
    ghost = ScramServer(
        SHA_256, lambda name, is_token: None, nonce="n", secret=b"s" * 32, shape=shape
    )
    client = ScramClient(SHA_256, "ghost", nonce="abc")
    client.challenge(ghost.respond(client.first()))
    shown = ScramCredential(client.salt, b"", b"", client.iterations)
    assert CredentialShape.of(shown) == shape


def test_a_wrong_secret_of_a_token_asks_for_the_brokers_own() -> None:
    credential = ScramCredential.from_password(SHA_256, "right", b"0123456789")
    login = server(credential)
    client = ScramClient(SHA_256, "id", nonce="abc", extensions={"tokenauth": "true"})
    client.challenge(login.respond(client.first()))
    with pytest.raises(SaslError, match=r"delegation\.token\.secret\.key") as raised:
        login.respond(client.prove(salted_password(SHA_256, "wrong", client.salt, 4096)))
    assert raised.value.public is None


def test_a_login_that_was_overheard_cannot_be_repeated() -> None:
    """Without TLS both messages can be read; the broker's part of the nonce is new each time."""
    credential = ScramCredential.from_password(SHA_256, "right", b"0123456789")

    def login(nonce: str) -> ScramServer:
        return ScramServer(SHA_256, lambda name, token: credential, nonce=nonce, secret=bytes(32))

    client, overheard = ScramClient(SHA_256, "alice", nonce="abc"), login("one")
    first = client.first()
    client.challenge(overheard.respond(first))
    final = client.prove(salted_password(SHA_256, "right", client.salt, client.iterations))
    overheard.respond(final)
    assert overheard.is_complete
    for message in (final, final.replace(b"r=abcone", b"r=abctwo")):
        repeated = login("two")
        repeated.respond(first)
        with pytest.raises(SaslError):
            repeated.respond(message)
        assert not repeated.is_complete


def test_the_salt_of_an_unknown_user_stays_the_same_from_login_to_login() -> None:
    answers = {server(None).respond(b"n,,n=ghost,r=abc") for _ in range(3)}
    assert len(answers) == 1


def test_a_delegation_token_is_recognized_by_its_extension() -> None:
    asked = []

    def look_up(name: str, is_token: bool) -> None:
        asked.append((name, is_token))

    login = ScramServer(SHA_512, look_up, nonce="x", secret=b"s")
    client = ScramClient(SHA_512, "id", nonce="abc", extensions={"tokenauth": "true"})
    login.respond(client.first())
    assert asked == [("id", True)]
    assert login.login.token_id == "id"


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"y,,n=a,r=b",
        b"n,,n=a=b,r=c",
        b"n,,n=,r=c",
        b"n,,n=a,r=",
        b"n,,n=a,r=b,1=2",
        b"\xff",
    ],
)
def test_a_malformed_first_message_is_rejected(first: bytes) -> None:
    with pytest.raises(SaslError):
        server(None).respond(first)


def test_another_authorization_id_is_named_in_the_answer() -> None:
    with pytest.raises(SaslError) as raised:
        server(None).respond(b"n,a=root,n=alice,r=abc")
    assert raised.value.public is not None
    assert "authorization id" in raised.value.public


@pytest.mark.parametrize(
    "final",
    [
        b"c=biws,r=other,p=AAAA",
        b"c=biws,r=abcserver,p=AAAA",
        b"c=biws,r=abcserver",
        b"c=biws,r=abcserver,p=!",
        b"",
    ],
)
def test_a_wrong_final_message_is_rejected(final: bytes) -> None:
    credential = ScramCredential.from_password(SHA_256, "x", b"0123456789")
    login = server(credential)
    login.respond(b"n,,n=alice,r=abc")
    with pytest.raises(SaslError):
        login.respond(final)


def test_too_few_iterations_fail_every_login_on_both_sides() -> None:
    with pytest.raises(SaslError):
        server(ScramCredential(b"s", b"k" * 32, b"k" * 32, 4095)).respond(b"n,,n=a,r=b")
    client = ScramClient(SHA_256, "a", nonce="b")
    with pytest.raises(SaslError, match="iterations"):
        client.challenge(b"r=bc,s=AAAA,i=4095")


def test_a_client_does_not_trust_a_server_without_the_password() -> None:
    client = ScramClient(SHA_256, "a", nonce="b")
    with pytest.raises(SaslError, match="nonce"):
        client.challenge(b"r=other,s=AAAA,i=4096")
    client.challenge(b"r=bc,s=AAAA,i=4096")
    client.prove(salted_password(SHA_256, "x", client.salt, 4096))
    with pytest.raises(SaslError, match="signature"):
        client.verify(b"v=AAAA")


def test_a_credential_is_stored_as_kafka_stores_it_and_hides_itself() -> None:
    credential = ScramCredential.from_password(SHA_256, "x", b"salt", 8192)
    text = credential.encode()
    assert text.startswith("salt=c2FsdA==,stored_key=")
    assert text.endswith(",iterations=8192")
    assert ScramCredential.parse(text) == credential
    assert "stored" not in repr(credential)
    for wrong in ("", "salt=AAAA", text + ",more=1", text.replace("8192", "x")):
        with pytest.raises(ValueError, match=r".+"):
            ScramCredential.parse(wrong)


@given(st.lists(st.binary(max_size=200), max_size=3))
def test_no_message_breaks_a_scram_server(messages: list[bytes]) -> None:
    login = server(ScramCredential(b"salt", b"k" * 32, b"k" * 32, 4096))
    for message in messages:
        try:
            login.respond(message)
        except SaslError:
            break
    assert not login.is_complete


# PLAIN


def test_plain_lets_in_the_users_of_the_listener() -> None:
    users = plain_users({"username": "broker", "user_alice": "secret", "user_bob": "x"})
    login = PlainServer(users)
    assert login.respond(plain_token("alice", "secret")) == b""
    assert login.is_complete
    assert login.login.user == "alice"
    assert PlainServer(users).respond(b"alice\0alice\0secret") == b""


@pytest.mark.parametrize(
    "token",
    [
        b"\0alice\0wrong",
        b"\0nobody\0secret",
        b"\0alice\0",
        b"\0\0secret",
        b"alice",
        b"\0a\0b\0c",
        b"bob\0alice\0secret",
        b"\xff\0\xff",
    ],
)
def test_plain_rejects_everything_else(token: bytes) -> None:
    login = PlainServer({"alice": "secret"})
    with pytest.raises(SaslError) as raised:
        login.respond(token)
    assert raised.value.public
    assert "secret" not in raised.value.public


def test_plain_does_not_say_whether_the_user_exists() -> None:
    texts = set()
    for token in (b"\0alice\0wrong", b"\0ghost\0wrong"):
        with pytest.raises(SaslError) as raised:
            PlainServer({"alice": "secret"}).respond(token)
        texts.add(raised.value.public)
    assert len(texts) == 1


# OAUTHBEARER


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def unsecured(**claims: object) -> str:
    return f"{part({'alg': 'none'})}.{part(claims)}."


def validator() -> UnsecuredTokens:
    return UnsecuredTokens(lambda: NOW_MS)


def test_an_unsecured_token_logs_its_subject_in_until_it_expires() -> None:
    login = OAuthServer(validator())
    token = unsecured(sub="alice", exp=NOW_MS // 1000 + 60)
    assert login.respond(oauth_token(token, {"extra": "1"})) == b""
    assert login.is_complete
    assert login.login.user == "alice"
    assert login.login.expires_at_ms == NOW_MS + 60_000


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": "a", "exp": NOW_MS // 1000},
        {"sub": "a"},
        {"exp": NOW_MS},
        {"sub": " ", "exp": NOW_MS},
        {"sub": "a", "exp": "soon"},
        {"sub": "a", "exp": True},
        {"sub": "a", "exp": NOW_MS, "iat": NOW_MS // 1000 + 10},
    ],
)
def test_a_rejected_token_is_challenged_and_then_fails(claims: dict[str, object]) -> None:
    login = OAuthServer(validator())
    assert login.respond(oauth_token(unsecured(**claims))) == b'{"status":"invalid_token"}'
    with pytest.raises(SaslError) as raised:
        login.respond(b"\x01")
    assert raised.value.public == '{"status":"invalid_token"}'


def test_a_missing_scope_is_named() -> None:
    login = OAuthServer(UnsecuredTokens(lambda: NOW_MS, required_scope=("b", "a")))
    answer = login.respond(oauth_token(unsecured(sub="a", exp=NOW_MS, scope="a")))
    assert json.loads(answer) == {"status": "insufficient_scope", "scope": "[a, b]"}


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"y,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01au th=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * 70_000 + b"\x01\x01",
    ],
)
def test_a_malformed_bearer_message_is_rejected(message: bytes) -> None:
    with pytest.raises(SaslError):
        OAuthServer(validator()).respond(message)


@given(st.binary(max_size=300))
def test_no_message_breaks_an_oauth_server(message: bytes) -> None:
    login = OAuthServer(validator())
    for each in (message, b"n,,\x01auth=Bearer " + message + b"\x01\x01"):
        try:
            login.respond(each)
        except SaslError:
            pass
    assert not login.is_complete


def b64url_int(number: int) -> str:
    data = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.fixture(scope="module")
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(scope="module")
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture
def jwks(rsa_key: rsa.RSAPrivateKey, ec_key: ec.EllipticCurvePrivateKey) -> str:
    r, e = rsa_key.public_key().public_numbers(), ec_key.public_key().public_numbers()
    keys = [
        {"kty": "RSA", "kid": "r", "n": b64url_int(r.n), "e": b64url_int(r.e)},
        {"kty": "EC", "kid": "e", "crv": "P-256", "x": b64url_int(e.x), "y": b64url_int(e.y)},
        {"kty": "oct", "kid": "symmetric", "k": "AAAA"},
        {"kty": "RSA", "kid": "broken", "n": "!", "e": 7},
    ]
    return json.dumps({"keys": keys})


Sign = Callable[[dict[str, object], dict[str, object]], str]


@pytest.fixture
def sign(rsa_key: rsa.RSAPrivateKey, ec_key: ec.EllipticCurvePrivateKey) -> Sign:
    def signed(header: dict[str, object], claims: dict[str, object]) -> str:
        text = f"{part(header)}.{part(claims)}"
        if header["alg"] == "RS256":
            data = rsa_key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        elif header["alg"] == "ES256":
            r, s = decode_dss_signature(ec_key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
            data = r.to_bytes(32, "big") + s.to_bytes(32, "big")
        else:
            data = b""
        return f"{text}.{base64.urlsafe_b64encode(data).rstrip(b'=').decode()}"

    return signed


CLAIMS: dict[str, object] = {"sub": "alice", "iat": NOW_MS // 1000, "exp": NOW_MS // 1000 + 60}


def test_signed_tokens_are_checked_against_the_key_set(jwks: str, sign: Sign) -> None:
    unknown: list[str] = []
    tokens = SignedTokens(lambda: NOW_MS, unknown.append, keys=parse_jwks(jwks))
    assert set(tokens.keys) == {"r", "e"}
    for algorithm, kid in (("RS256", "r"), ("ES256", "e")):
        login = OAuthServer(tokens)
        token = sign({"alg": algorithm, "kid": kid}, CLAIMS)
        assert login.respond(oauth_token(token)) == b""
        assert login.login.user == "alice"
    wrong = [
        sign({"alg": "RS256", "kid": "e"}, CLAIMS),
        sign({"alg": "none", "kid": "r"}, CLAIMS),
        sign({"alg": "RS256", "kid": "r"}, CLAIMS)[:-4] + "AAAA",
        sign({"alg": "RS256", "kid": "r"}, {**CLAIMS, "aud": "other"}),
        sign({"alg": "RS256", "kid": "r"}, {**CLAIMS, "nbf": NOW_MS // 1000 + 60}),
        sign({"alg": "RS256", "kid": "r"}, {"sub": "alice", "exp": NOW_MS}),
        sign({"alg": "RS256", "kid": "r"}, {**CLAIMS, "exp": NOW_MS // 1000 - 31}),
    ]
    for token in wrong:
        assert b"invalid_token" in OAuthServer(tokens).respond(oauth_token(token))
    assert unknown == []
    OAuthServer(tokens).respond(oauth_token(sign({"alg": "RS256", "kid": "new"}, CLAIMS)))
    assert unknown == ["new"]


def test_audience_and_issuer_must_be_the_expected_ones(jwks: str, sign: Sign) -> None:
    tokens = SignedTokens(
        lambda: NOW_MS, lambda kid: None, audience=("kafka",), issuer="me", keys=parse_jwks(jwks)
    )
    header: dict[str, object] = {"alg": "ES256", "kid": "e"}
    good = sign(header, {**CLAIMS, "aud": ["x", "kafka"], "iss": "me"})
    assert OAuthServer(tokens).respond(oauth_token(good)) == b""
    wrong: list[dict[str, object]] = [{"iss": "me"}, {"aud": "kafka", "iss": "you"}]
    audiences: list[object] = ["x", 5, {"kafka": 1}, [["kafka"]], ["kafka", 1]]
    wrong += [{"aud": each, "iss": "me"} for each in audiences]
    for claims in wrong:
        bad = sign(header, {**CLAIMS, **claims})
        assert OAuthServer(tokens).respond(oauth_token(bad)) != b""


# JAAS


def test_a_jaas_setting_is_read() -> None:
    entry = parse_jaas(
        "org.apache.kafka.common.security.scram.ScramLoginModule Required // why\n"
        ' username="al\\"ice" /* x */ password=\'a;b=c\' tokenauth=true;'
    )
    assert entry.require_mechanism("SCRAM-SHA-512").module == Module.SCRAM
    assert entry.options == {"username": 'al"ice', "password": "a;b=c", "tokenauth": "true"}
    assert "a;b=c" not in repr(entry)
    with pytest.raises(InvalidJaas, match="PLAIN"):
        entry.require_mechanism("PLAIN")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.B",
        "a.B required",
        "a.B required x=1;",
        "a.B required x=y",
        "a.B required x=;",
        "a.B required x;",
        "a.B maybe x=y;",
        "a.B required; a.C required;",
        'a.B required x="y;',
        "com.sun.security.auth.module.JndiLoginModule required;",
    ],
)
def test_a_jaas_setting_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidJaas):
        parse_jaas(text)


def test_a_jaas_text_reads_as_it_was_meant() -> None:
    options = {"username": 'a"b', "user_a b=c,d": "x;y", "user_1": "", "1st": "\n\\"}
    assert parse_jaas(jaas_text(Module.PLAIN, **options)).options == options


@given(st.text(alphabet="ab=;\"'\\/* {}\n1", max_size=60))
def test_no_text_breaks_the_jaas_reader(text: str) -> None:
    with suppress(InvalidJaas):
        parse_jaas(text)

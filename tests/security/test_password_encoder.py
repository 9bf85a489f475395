"""Passwords among dynamic settings: what one encoder writes, another with the same secret opens."""

import random

import pytest

from odradek.security.password_encoder import PasswordEncoder, UnreadablePassword


def test_a_password_is_opened_with_the_new_secret_and_with_the_old() -> None:
    randbytes = random.Random(1).randbytes
    for password in ("", "x", "hunter2", "sixteen-bytes-!!", "pässword" * 50):
        text = PasswordEncoder("one").encode(password, randbytes)
        assert password == PasswordEncoder("one").decode(text)
        assert PasswordEncoder("two", "one").decode(text) == password
        with pytest.raises(UnreadablePassword):
            PasswordEncoder("two").decode(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hunter2",
        "iterations:1,keyLength:128",
        "iterations:99999999999,keyLength:128,salt:AA==,keyFactoryAlgorithm:PBKDF2WithHmacSHA512",
        "keyFactoryAlgorithm:MD5,cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:128,salt:AA==,"
        "iterations:1,initializationVector:AA==,encryptedPassword:AA==,passwordLength:1",
        "keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,"
        "keyLength:128,salt:AA==,iterations:1,initializationVector:AA==,encryptedPassword:AA==,"
        "passwordLength:1",
    ],
)
def test_what_is_no_encoded_password_is_refused(text: str) -> None:
    with pytest.raises(UnreadablePassword):
        PasswordEncoder("secret").decode(text)


def test_an_encoder_does_not_show_its_secret() -> None:
    assert "hunter2" not in repr(PasswordEncoder("hunter2"))

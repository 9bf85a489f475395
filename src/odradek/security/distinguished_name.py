"""A certificate's subject as Java's `X500Principal.getName()` prints it (RFC 2253).

The text is what `User:` principals and mapping rules are made of, so it must agree with Java to the
last backslash. Python's own helpers do not: they lose the DER tag, or escape differently. The rules
were read off a JVM (docs/spec/security.md, section 2.3):

- relative names last first, joined by commas; the parts of one joined by `+`, in DER order;
- keywords for nine attributes only; any other attribute, and any value that is not a string type,
  is `#` and the hexadecimal DER of the value;
- every string type is read as UTF-8, whatever its tag says;
- `, = + < > # ; " \\` are escaped wherever they stand, blanks and carriage returns at both ends.
"""

from collections.abc import Iterator

__all__ = ["InvalidCertificate", "subject_text"]

SEQUENCE, SET, OBJECT_IDENTIFIER, INTEGER = 0x30, 0x31, 0x06, 0x02
EXPLICIT_VERSION = 0xA0
# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString.
STRING_TAGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
LENGTH_BYTES_MAX = 4

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
ESCAPED = frozenset(',=+<>#;"\\')
BLANKS = " \r"


class InvalidCertificate(ValueError):
    """The bytes are not a DER certificate."""


def subject_text(certificate: bytes) -> str:
    """The subject of a DER-encoded X.509 certificate."""
    outer = _only(certificate, SEQUENCE)
    to_be_signed = next(_elements(outer), None)
    if to_be_signed is None or to_be_signed[0] != SEQUENCE:
        raise InvalidCertificate("no TBSCertificate")
    fields = [field for field in _elements(to_be_signed[1]) if field[0] != EXPLICIT_VERSION]
    # serialNumber, signature, issuer, validity, subject
    if len(fields) < 5 or fields[0][0] != INTEGER or fields[4][0] != SEQUENCE:
        raise InvalidCertificate("no subject")
    return name_text(fields[4][1])


def name_text(relative_names: bytes) -> str:
    """The text of a Name, given the contents of its SEQUENCE."""
    names = []
    for tag, body, _ in _elements(relative_names):
        if tag != SET:
            raise InvalidCertificate("a relative name is not a SET")
        names.append("+".join(_attribute_text(part, inner) for part, inner, _ in _elements(body)))
    return ",".join(reversed(names))


def _attribute_text(tag: int, body: bytes) -> str:
    parts = list(_elements(body))
    if tag != SEQUENCE or len(parts) != 2 or parts[0][0] != OBJECT_IDENTIFIER:
        raise InvalidCertificate("an attribute is not a type and a value")
    identifier = _identifier_text(parts[0][1])
    value_tag, value, whole = parts[1]
    keyword = KEYWORDS.get(identifier)
    if keyword is None or value_tag not in STRING_TAGS:
        return f"{keyword or identifier}=#{whole.hex()}"
    return f"{keyword}={_escape(value.decode('utf-8', 'replace'))}"


def _escape(text: str) -> str:
    core = text.strip(BLANKS)
    lead = len(text) - len(text.lstrip(BLANKS))
    ends = text[:lead], text[lead + len(core) :]
    inner = "".join(
        f"\\{char}" if char in ESCAPED else "\\00" if char == "\0" else char for char in core
    )
    before, after = ("".join(f"\\{char}" for char in end) for end in ends)
    return before + inner + after


def _identifier_text(body: bytes) -> str:
    if not body or body[-1] & 0x80:
        raise InvalidCertificate("an object identifier is truncated")
    numbers, value = [], 0
    for byte in body:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _only(data: bytes, tag: int) -> bytes:
    element = next(_elements(data), None)
    if element is None or element[0] != tag:
        raise InvalidCertificate("not a DER certificate")
    return element[1]


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Each DER element in turn: its tag, its contents, and the element whole."""
    at = 0
    while at < len(data):
        start = at
        if at + 2 > len(data):
            raise InvalidCertificate("an element is truncated")
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            if not 0 < size <= LENGTH_BYTES_MAX or at + size > len(data):
                raise InvalidCertificate("an element has no definite length")
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if length > len(data) - at:
            raise InvalidCertificate("an element is truncated")
        yield tag, data[at : at + length], data[start : at + length]
        at += length

"""Filters of records: data in a closed grammar. Nothing that a user writes is ever evaluated.

docs/spec/console-api.md section 5. A filter is a tree of `all`, `any`, `not` and tests;
`parse_text` makes the tree from what is typed into a search box, `Filter` checks it and applies it
to records.

To be fast, a search looks for bytes before it opens records: `needles` names byte strings one of
which every matching record must contain. Only text that every usual writer writes as it is counts:
letters, digits and a few signs; the rest of a text may be escaped in JSON in more than one way.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from odradek.console.decoders import Decoder, Undecodable
from odradek.wire.records import Record

TESTS_MAX = 32
DEPTH_MAX = 8
TEXT_MAX = 4096
NEEDLE_MIN = 3
FIELDS = ("key", "value", "header", "json", "timestamp", "offset", "size", "any")
OPERATORS = ("contains", "=", "!=", "<", "<=", ">", ">=", "prefix", "exists", "is_null")
NUMERIC = ("timestamp", "offset", "size")

_PATH = re.compile(r"\$((?:\.[^.\[\]\s=<>!~()\"]+|\[\d{1,9}\])*)")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_PLAIN = re.compile(r"[A-Za-z0-9 _.:@-]+")


class InvalidFilter(Exception):
    """A filter that is none; `position` is where in its text."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


class Test(NamedTuple):
    """One comparison."""

    field: str
    op: str
    operand: Any = None
    name: str = ""
    path: tuple[str | int, ...] = ()


class Node(NamedTuple):
    """`all`, `any` or `not` of some nodes, or a test."""

    kind: str
    parts: tuple["Node", ...] = ()
    test: Test | None = None


class Filter:
    """A checked filter."""

    def __init__(self, tree: object) -> None:
        """Raises InvalidFilter."""
        self._tests = 0
        self.root = self._node(tree, 0)

    def _node(self, tree: object, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise InvalidFilter(f"a filter is at most {DEPTH_MAX} levels deep")
        if not isinstance(tree, Mapping):
            raise InvalidFilter("a filter is an object")
        for kind in ("all", "any"):
            if kind in tree:
                parts = tree[kind]
                if len(tree) != 1 or not isinstance(parts, list) or not parts:
                    raise InvalidFilter(f"{kind} has a list of filters")
                return Node(kind, tuple(self._node(part, depth + 1) for part in parts))
        if "not" in tree:
            return Node("not", (self._node(tree["not"], depth + 1),))
        self._tests += 1
        if self._tests > TESTS_MAX:
            raise InvalidFilter(f"a filter has at most {TESTS_MAX} tests")
        return Node("test", (), _test(tree))

    def matches(self, record: Record, decoder: Decoder) -> bool:
        return _matches(self.root, record, _Value(record, decoder))

    def needles(self, *, is_text: bool) -> list[bytes] | None:
        """Byte strings of which every matching record contains one; None if there are none such.
        `is_text` is whether numbers stand in values as they are written."""
        return _needles(self.root, is_text)


def _test(tree: Mapping[str, Any]) -> Test:
    field, op = tree.get("field"), tree.get("op")
    if field not in FIELDS:
        raise InvalidFilter(f"there is no field {field!r}; there are {', '.join(FIELDS)}")
    if op not in OPERATORS:
        raise InvalidFilter(f"there is no comparison {op!r}; there are {' '.join(OPERATORS)}")
    operand = tree.get("text", tree.get("value"))
    if isinstance(operand, str) and len(operand) > TEXT_MAX:
        raise InvalidFilter(f"a text has at most {TEXT_MAX} characters")
    if isinstance(operand, list | dict):
        raise InvalidFilter("a record is compared with a text, a number, true, false or null")
    if field in NUMERIC:
        operand = _number(field, operand)
    elif field != "json" and op not in ("exists", "is_null") and not isinstance(operand, str):
        raise InvalidFilter(f"{field} is compared with a text")
    if field == "json":
        return Test(field, op, operand, path=parse_path(tree.get("path")))
    return Test(field, op, operand, name=str(tree.get("name", "")))


def _number(field: str, operand: Any) -> int:
    if isinstance(operand, int) and not isinstance(operand, bool):
        return operand
    if isinstance(operand, str):
        text = operand.strip()
        if text.removeprefix("-").isdecimal() and len(text) < 20:
            return int(text)
        if field == "timestamp":
            try:
                moment = datetime.fromisoformat(text)
                return int(
                    (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000
                )
            except (ValueError, OverflowError):
                pass
    raise InvalidFilter(
        f"{field} is compared with a number" + (" or a time" if field == "timestamp" else "")
    )


def parse_path(text: object) -> tuple[str | int, ...]:
    if not isinstance(text, str) or len(text) > TEXT_MAX or not _PATH.fullmatch(text):
        raise InvalidFilter(f"a path looks like $.order.items[0].id, not {text!r}")
    return tuple(name if name else int(index) for name, index in _STEP.findall(text[1:]))


# Applying it


class _Value:
    """The decoded value of a record, decoded when a test first wants it."""

    def __init__(self, record: Record, decoder: Decoder) -> None:
        self._record = record
        self._decoder = decoder
        self._known = False
        self._value: Any = None

    def at(self, path: tuple[str | int, ...]) -> tuple[bool, Any]:
        """Whether there is something at the path, and what."""
        if not self._known:
            self._known = True
            try:
                self._value = _Missing
                if self._record.value is not None:
                    self._value = self._decoder.value(self._record.value)
            except (Undecodable, ValueError, TypeError, KeyError, RecursionError, AttributeError):
                pass
        found = self._value
        for step in path:
            has = isinstance(found, dict) if isinstance(step, str) else isinstance(found, list)
            try:
                if not has:
                    return False, None
                found = found[step]
            except (KeyError, IndexError):
                return False, None
        return found is not _Missing, found


class _Missing:
    pass


def _matches(node: Node, record: Record, value: _Value) -> bool:
    if node.kind == "all":
        return all(_matches(part, record, value) for part in node.parts)
    if node.kind == "any":
        return any(_matches(part, record, value) for part in node.parts)
    if node.kind == "not":
        return not _matches(node.parts[0], record, value)
    assert node.test is not None
    return _holds(node.test, record, value)


def _holds(test: Test, record: Record, value: _Value) -> bool:
    match test.field:
        case "key":
            return _bytes_hold(test, record.key)
        case "value":
            return _bytes_hold(test, record.value)
        case "any":
            return _bytes_hold(test, record.key) or _bytes_hold(test, record.value)
        case "header":
            found = [data for name, data in record.headers if _name(name) == test.name]
            if test.op == "exists":
                return bool(found)
            return any(_bytes_hold(test, data) for data in found)
        case "json":
            return _json_holds(test, *value.at(test.path))
        case "timestamp":
            return _COMPARE[test.op](record.timestamp, test.operand)
        case "offset":
            return _COMPARE[test.op](record.offset, test.operand)
        case _:
            size = len(record.key or b"") + len(record.value or b"")
            return _COMPARE[test.op](size, test.operand)


def _name(name: Any) -> str:
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)


def _bytes_hold(test: Test, data: bytes | None) -> bool:
    if test.op == "is_null":
        return data is None
    if test.op == "exists":
        return data is not None
    if data is None:
        return False
    wanted = test.operand.encode("utf-8", "surrogatepass")
    match test.op:
        case "contains":
            return any(form in data for form in _forms(test.operand))
        case "prefix":
            return data.startswith(wanted)
        case _:
            return _COMPARE[test.op](data, wanted)


def _json_holds(test: Test, found: bool, value: Any) -> bool:
    operand = test.operand
    if test.op == "exists":
        return found
    if not found:
        return False
    if test.op == "is_null":
        return value is None
    if test.op in ("contains", "prefix"):
        if not isinstance(value, str) or not isinstance(operand, str):
            return False
        return operand in value if test.op == "contains" else value.startswith(operand)
    if isinstance(value, bool) or isinstance(operand, bool):
        same = value is operand
    elif (_is_number(value) and _is_number(operand)) or type(value) is type(operand):
        if value is None or isinstance(value, dict | list):
            same = value == operand
        else:
            return _COMPARE[test.op](value, operand)
    else:
        same = False
    return same if test.op == "=" else not same if test.op == "!=" else False


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "contains": lambda a, b: a == b,
    "prefix": lambda a, b: a == b,
    "exists": lambda a, b: True,
    "is_null": lambda a, b: False,
}


# Bytes first


def _forms(text: str) -> list[bytes]:
    """A text as it stands, and as JSON writes it."""
    import json

    plain = text.encode("utf-8", "surrogatepass")
    escaped = json.dumps(text)[1:-1].encode()
    return [plain] if plain == escaped else [plain, escaped]


def _needles(node: Node, is_text: bool) -> list[bytes] | None:
    if node.kind == "all":
        found = [needles for part in node.parts if (needles := _needles(part, is_text))]
        # One of them is enough; the one whose shortest needle is longest leaves most out.
        return max(found, key=lambda needles: min(map(len, needles)), default=None)
    if node.kind == "any":
        every = [_needles(part, is_text) for part in node.parts]
        return None if None in every else [one for needles in every for one in needles or ()]
    if node.kind == "not":
        return None
    assert node.test is not None
    needle = _needle(node.test, is_text)
    return None if needle is None else [needle]


def _needle(test: Test, is_text: bool) -> bytes | None:
    if test.field in NUMERIC or test.op not in ("contains", "=", "prefix"):
        return None
    operand = test.operand
    if test.field == "json" and _is_number(operand):
        # A float is written in many ways, 1.5e3; a whole number, as good as always, in one.
        if not is_text or not isinstance(operand, int) or test.op != "=":
            return None
        return str(operand).encode()
    if not isinstance(operand, str):
        return None
    longest = max(_PLAIN.findall(operand), key=len, default="")
    return longest.encode() if len(longest) >= NEEDLE_MIN else None


# From text


class Token(NamedTuple):
    kind: str
    text: str
    position: int


_TOKEN = re.compile(
    r"""\s*(?:
    (?P<quoted>"(?:[^"\\]|\\.)*")
  | (?P<op><=|>=|!=|=|<|>|~)
  | (?P<paren>[()])
  | (?P<path>\$(?:\.[^.\[\]\s=<>!~()"]+|\[\d+\])*)
  | (?P<word>[^\s=<>!~()"]+)
)""",
    re.VERBOSE,
)
_FIELD_WORDS = {
    "key": "key",
    "value": "value",
    "time": "timestamp",
    "offset": "offset",
    "size": "size",
    "timestamp": "timestamp",
}


def parse_text(text: str) -> dict[str, Any]:
    """The tree of what was typed. Raises InvalidFilter with the position."""
    if len(text) > TEXT_MAX:
        raise InvalidFilter(f"a filter has at most {TEXT_MAX} characters")
    tree = _Parser(_tokens(text)).parse()
    Filter(tree)
    return tree


def _tokens(text: str) -> list[Token]:
    tokens, position = [], 0
    text = text.rstrip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None or found.end() == position:
            raise InvalidFilter(f"{text[position]!r} is not understood here", position)
        kind = str(found.lastgroup)
        tokens.append(Token(kind, found[kind], found.start(kind)))
        position = found.end()
    return tokens


class _Parser:
    """`or` binds least, then `and`, which may be left out, then `not`."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def parse(self) -> dict[str, Any]:
        if not self._tokens:
            raise InvalidFilter("the filter is empty")
        tree = self._any()
        if (token := self._peek()) is not None:
            raise InvalidFilter(f"{token.text!r} is not expected here", token.position)
        return tree

    def _peek(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> Token:
        token = self._peek()
        if token is None:
            end = self._tokens[-1]
            raise InvalidFilter("something is missing at the end", end.position + len(end.text))
        self._at += 1
        return token

    def _is(self, word: str) -> bool:
        token = self._peek()
        return token is not None and token.kind == "word" and token.text.lower() == word

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidFilter(f"a filter is at most {DEPTH_MAX} levels deep")

    def _any(self) -> dict[str, Any]:
        self._deeper()
        parts = [self._all()]
        while self._is("or"):
            self._next()
            parts.append(self._all())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else {"any": parts}

    def _all(self) -> dict[str, Any]:
        parts = [self._not()]
        while (token := self._peek()) is not None and token.text != ")" and not self._is("or"):
            if self._is("and"):
                self._next()
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else {"all": parts}

    def _not(self) -> dict[str, Any]:
        if self._is("not"):
            self._deeper()
            self._next()
            tree = {"not": self._not()}
            self._depth -= 1
            return tree
        token = self._next()
        if token.text == "(" and token.kind == "paren":
            tree = self._any()
            if self._next().text != ")":
                raise InvalidFilter("a ) is missing", token.position)
            return tree
        if token.kind in ("op", "paren"):
            raise InvalidFilter(f"{token.text!r} is not expected here", token.position)
        follows = self._peek()
        if token.kind == "quoted" or follows is None or follows.kind != "op":
            if token.kind == "path":
                return {"field": "json", "path": token.text, "op": "exists"}
            return {"field": "any", "op": "contains", "text": _unquoted(token)}
        return self._comparison(token)

    def _comparison(self, token: Token) -> dict[str, Any]:
        op = self._next().text
        operand = self._next()
        if operand.kind not in ("quoted", "word", "path"):
            raise InvalidFilter("a value is missing", operand.position)
        test: dict[str, Any] = {"op": "contains" if op == "~" else op}
        if token.kind == "path":
            return {**test, "field": "json", "path": token.text, "value": _literal(operand)}
        name = token.text.lower()
        if name.startswith(("header.", "headers.")):
            return {
                **test,
                "field": "header",
                "name": token.text.partition(".")[2],
                "text": _unquoted(operand),
            }
        if name not in _FIELD_WORDS:
            raise InvalidFilter(
                f"there is no field {token.text!r}; a field of the value begins with $.",
                token.position,
            )
        return {**test, "field": _FIELD_WORDS[name], "text": _unquoted(operand)}


def _unquoted(token: Token) -> str:
    if token.kind != "quoted":
        return token.text
    return re.sub(r"\\(.)", r"\1", token.text[1:-1])


def _literal(token: Token) -> Any:
    if token.kind == "quoted":
        return _unquoted(token)
    if token.text in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[token.text]
    if re.fullmatch(r"-?\d{1,18}", token.text):
        return int(token.text)
    if re.fullmatch(r"-?\d{1,18}\.\d{1,18}(?:[eE][+-]?\d{1,3})?", token.text):
        return float(token.text)
    return token.text

# How the judge and the program speak: one JSON object a line, over two pipes.
#
# Plain data crosses by value, as copies. Everything else stays where it is and crosses as a number
# that the other side holds on to through a stand-in. This text is the first part of both scripts,
# so nothing here may trust what it reads.
#
#   {"do": operation, "with": [value, ...], "named": {name: value}}      a request
#   {"value": value, "changed": [[argument, value], ...]}                its answer
#   {"raised": {"classes": ..., "args": ..., "mine": number}}            its other answer
#
# Whoever waits for an answer serves requests meanwhile: a function of the tests that was passed to
# the program is called that way.

import builtins
import collections
import json
import os
import select
import sys
import time

MOST_BYTES = 8 << 20  # of one line

SEQUENCES = {kind.__name__: kind for kind in (tuple, set, frozenset, collections.deque)}
MAPPINGS = {kind.__name__: kind
            for kind in (dict, collections.OrderedDict, collections.Counter)}
DATES = ("datetime", "date", "time")
TYPES = {kind.__name__: kind
         for kind in (bool, bytearray, bytes, complex, dict, float, frozenset, int, list, object,
                      set, str, tuple, type(None))}
MUTABLE = (list, dict, set, bytearray, collections.deque, collections.OrderedDict,
           collections.Counter)


class Gone(BaseException):
    """The other side has ended, was too slow or talked nonsense: nothing more can be asked."""


class Peer:
    def __init__(self, reads, writes):
        os.set_blocking(reads, False)
        os.set_blocking(writes, False)
        self.reads, self.writes = reads, writes
        self.unread = b""
        self.deadline = None  # of time.monotonic(); None waits for ever
        self.lost = None  # why the other side is gone, once it is
        self.mine = {}  # number: object that the other side may speak of
        self.numbers = {}  # id of that object: number
        self.stand_ins = {}  # number: stand-in for an object of the other side

    # -- lines ---------------------------------------------------------------------------------

    def lose(self, reason):
        self.lost = reason
        raise Gone(reason)

    def wait(self, reads, writes):
        left = None if self.deadline is None else self.deadline - time.monotonic()
        if left is not None and left <= 0 or not any(select.select(reads, writes, [], left)):
            self.lose("out of time")

    def send(self, message):
        if self.lost:
            raise Gone(self.lost)
        line = json.dumps(message).encode() + b"\n"
        while line:
            self.wait([], [self.writes])
            try:
                line = line[os.write(self.writes, line[:65536]):]
            except OSError as error:
                self.lose(str(error))

    def receive(self):
        while b"\n" not in self.unread:
            self.wait([self.reads], [])
            part = os.read(self.reads, 1 << 20)
            self.unread += part
            if not part or len(self.unread) > MOST_BYTES:
                self.lose("its line is too long" if part else "it has ended")
        line, _, self.unread = self.unread.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError as error:
            self.lose(str(error))
        return message if isinstance(message, dict) else self.lose("not an object")

    # -- values --------------------------------------------------------------------------------

    def encode(self, value):
        kind = type(value)
        if value is None or kind in (bool, float, str):
            return value
        if kind is int:  # long ones in base 16: decimal digits take quadratic time
            return value if value.bit_length() < 1024 else {"int": hex(value)}
        if kind is list:
            return [self.encode(item) for item in value]
        if kind.__name__ in SEQUENCES and kind is SEQUENCES[kind.__name__]:
            return {kind.__name__: [self.encode(item) for item in value]}
        if kind.__name__ in MAPPINGS and kind is MAPPINGS[kind.__name__]:
            return {kind.__name__: [[self.encode(k), self.encode(v)] for k, v in value.items()]}
        if kind is collections.defaultdict:
            return {"dict": [[self.encode(k), self.encode(v)] for k, v in value.items()]}
        return self.encode_rare(kind, value)

    def encode_rare(self, kind, value):
        if kind in (bytes, bytearray):
            return {kind.__name__: value.hex()}
        if kind is complex:
            return {"complex": [value.real, value.imag]}
        if kind in (range, slice):
            return {kind.__name__: [self.encode(n) for n in (value.start, value.stop, value.step)]}
        if is_of(kind, "decimal", "Decimal"):
            return {"Decimal": str(value)}
        if is_of(kind, "fractions", "Fraction"):
            return {"Fraction": [self.encode(value.numerator), self.encode(value.denominator)]}
        if is_of(kind, "datetime", *DATES):
            return {kind.__name__: value.isoformat()}
        if is_of(kind, "datetime", "timedelta"):
            return {"timedelta": [value.days, value.seconds, value.microseconds]}
        if kind is type and TYPES.get(value.__name__) is value:
            return {"type": value.__name__}
        return self.encode_object(value)

    def encode_object(self, value):
        if isinstance(value, StandIn):
            return {"yours": object.__getattribute__(value, "_number")}
        return {"mine": self.number(value)}

    def number(self, value):
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.mine) + 1
            self.mine[len(self.mine) + 1] = value  # kept alive, so its id stays its own
        return self.numbers[id(value)]

    def decode(self, value):
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        (tag, body), = value.items()
        if tag in SEQUENCES:
            return SEQUENCES[tag](self.decode(item) for item in body)
        if tag in MAPPINGS:
            return MAPPINGS[tag]({self.decode(k): self.decode(v) for k, v in body})
        if tag in DATES:
            return getattr(known("datetime"), tag).fromisoformat(body)
        return DECODERS[tag](self, body)

    def stand_in(self, number):
        if number not in self.stand_ins:
            self.stand_ins[number] = self.make_stand_in(int(number))
        return self.stand_ins[number]

    # -- requests ------------------------------------------------------------------------------

    def ask(self, operation, *arguments, **named):
        self.send({"do": operation, "with": [self.encode(value) for value in arguments],
                   "named": {name: self.encode(value) for name, value in named.items()}})
        while True:
            message = self.receive()
            if "do" in message:
                self.answer(message)
            elif "raised" in message:
                raise self.revive(message["raised"], operation)
            else:
                return self.result(message, dict(enumerate(arguments), **named))

    def result(self, message, arguments):
        try:
            for name, now in message.get("changed", []):
                self.change(arguments.get(name), self.decode(now))
            return self.decode(message["value"])
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            self.lose("not a value: %s" % error)

    def change(self, old, new):
        """What the other side did to an argument, done to the original."""
        if type(old) is not type(new) or type(old) not in MUTABLE:
            return
        old.clear()
        old.extend(new) if hasattr(old, "extend") else old.update(new)

    def answer(self, message):
        try:
            arguments = [self.decode(value) for value in message["with"]]
            named = {name: self.decode(value) for name, value in message["named"].items()}
            value = self.operate(message["do"], arguments, named)
            reply = {"value": self.encode(value), "changed": self.changes(message, arguments, named)}
        except Gone:
            raise
        except BaseException as error:
            reply = {"raised": self.describe(error)}
        self.send(reply)

    def changes(self, message, arguments, named):
        given = dict(enumerate(message["with"]), **message["named"])
        now = dict(enumerate(arguments), **named)
        now = {name: self.encode(value) for name, value in now.items() if type(value) in MUTABLE}
        return [[name, value] for name, value in now.items() if value != given[name]]

    # -- exceptions ----------------------------------------------------------------------------

    def classes(self, kind):
        """Its classes from the most special to the first that both sides know."""
        found = []
        for parent in kind.__mro__:
            is_known = getattr(builtins, parent.__name__, None) is parent
            found.append([0 if is_known else self.number(parent), str(parent.__name__)])
            if is_known:
                break
        return found

    def describe(self, error):
        try:
            args = [self.encode(value) for value in error.args]
            json.dumps(args)
        except Exception:
            args = []
        return {"classes": self.classes(type(error)), "args": args, "mine": self.number(error)}


def known(module):
    """A module that few programs need, imported when one does."""
    return __import__(module)


def is_of(kind, module, *names):
    """Whether a class is one of a module's that is imported; else nothing can be of it."""
    module = sys.modules.get(module)
    return kind.__name__ in names and getattr(module, kind.__name__, None) is kind


class StandIn:
    """For an object of the other side."""


DECODERS = {
    "int": lambda peer, body: int(body, 16),
    "bytes": lambda peer, body: bytes.fromhex(body),
    "bytearray": lambda peer, body: bytearray.fromhex(body),
    "complex": lambda peer, body: complex(*body),
    "range": lambda peer, body: range(*map(peer.decode, body)),
    "slice": lambda peer, body: slice(*map(peer.decode, body)),
    "Decimal": lambda peer, body: known("decimal").Decimal(body),
    "Fraction": lambda peer, body: known("fractions").Fraction(*map(peer.decode, body)),
    "timedelta": lambda peer, body: known("datetime").timedelta(*body),
    "type": lambda peer, body: TYPES[body],
    "mine": lambda peer, body: peer.stand_in(body),
    "yours": lambda peer, body: peer.mine[body],
}


def take_channel():
    """The two ends of the channel, away from the standard streams, which lead nowhere after it."""
    reads, writes = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    return reads, writes, nowhere

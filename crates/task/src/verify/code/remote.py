# What the judge has in place of the program's functions and objects.

import operator

UNARY = ("abs", "neg", "pos", "invert", "int", "float", "complex", "index", "len", "bool", "str",
         "repr", "bytes", "iter", "next", "reversed", "enter")
BINARY = ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod",
          "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
COMPARISONS = BINARY[:6]


class Remote(StandIn):
    """An object of the program, as the tests see it.

    Questions about the object alone go to the program. An operator between it and a value of the
    tests works on its plain value, fetched without saying what for: an object that says to be
    equal to everything would have to know the right answer first. Two objects of the program that
    are no plain values are compared by the program itself.
    """

    def __init__(self, peer, number):
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)

    def _ask(self, operation, *arguments, **named):
        return object.__getattribute__(self, "_peer").ask(operation, self, *arguments, **named)

    def _plain(self):
        """Its plain value in a list; an empty one where it has none."""
        found = self._ask("plain")
        is_plain = type(found) is list and len(found) == 1 and not isinstance(found[0], StandIn)
        return found if is_plain else []

    def __call__(self, *arguments, **named):
        return self._ask("call", *arguments, **named)

    def __getattr__(self, name):
        if name.startswith("__") and name != "__name__":
            raise AttributeError(name)  # protocols of Python that a stand-in does not have
        return self._ask("get", name)

    def __setattr__(self, name, value):
        self._ask("set", name, value)

    def __delattr__(self, name):
        self._ask("delete", name)

    def __getitem__(self, key):
        return self._ask("getitem", key)

    def __setitem__(self, key, value):
        self._ask("setitem", key, value)

    def __delitem__(self, key):
        self._ask("delitem", key)

    def __contains__(self, value):
        return any(item is value or item == value for item in self)

    def __hash__(self):
        found = self._plain()
        return hash(found[0]) if found else object.__hash__(self)

    def __round__(self, *digits):
        return self._ask("round", *digits)

    def __format__(self, form):
        return self._ask("format", form)

    def __copy__(self):
        return self._ask("copy")

    def __deepcopy__(self, _):
        return self._ask("deepcopy")

    def __exit__(self, kind, error, _):
        is_theirs = isinstance(error, Exception)
        return self._ask("exit", kind, repr(error) if is_theirs else None, None)

    def __instancecheck__(self, value):
        return isinstance(value, Remote) and value._ask("isinstance", self) is True

    def __subclasscheck__(self, value):
        return isinstance(value, Remote) and value._ask("issubclass", self) is True


def unary(name):
    return lambda self: self._ask(name)


def binary(name, is_reflected):
    work = getattr(operator, name + "_" if name in ("and", "or") else name)

    def operate(self, other):
        mine = self._plain()
        theirs = other._plain() if isinstance(other, Remote) else [other]
        if mine and theirs:
            pair = (theirs[0], mine[0]) if is_reflected else (mine[0], theirs[0])
            return work(*pair)
        if isinstance(other, Remote):
            return self._ask(name, other)
        if name in ("eq", "ne"):
            return name == "ne"
        raise TypeError("%s between an object of the program and a value of the tests" % name)

    return operate


for _name in UNARY:
    setattr(Remote, "__%s__" % _name, unary(_name))
for _name in BINARY:
    setattr(Remote, "__%s__" % _name, binary(_name, False))
    if _name not in COMPARISONS:
        setattr(Remote, "__r%s__" % _name, binary(_name, True))

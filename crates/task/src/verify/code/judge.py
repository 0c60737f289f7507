# The judge's side, in a sandbox of its own: runs the tests, statement by statement, and reports.
#
# The program is elsewhere. Its functions and objects are stand-ins here (`Remote`); its plain
# values are copies. Comparisons are made here, with values that the program never sees.

import ast
import operator
import symtable

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
        if name.startswith("__") and name.endswith("__"):
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


class Judge(Peer):
    def __init__(self, reads, writes):
        super().__init__(reads, writes)
        self.exceptions = {}  # number: stand-in for an exception class of the program

    def make_stand_in(self, number):
        return Remote(self, number)

    def encode_object(self, value):
        if isinstance(value, type) and value in self.exceptions.values():
            return {"yours": next(n for n, kind in self.exceptions.items() if kind is value)}
        name = getattr(value, "__name__", None)
        if type(name) is str and getattr(builtins, name, None) is value:
            return {"builtin": name}
        return super().encode_object(value)

    def operate(self, operation, arguments, named):
        """The little that the program may do to what the tests passed to it."""
        thing, *rest = arguments
        if operation == "call" and callable(thing):
            return thing(*rest, **named)
        if operation == "next" and hasattr(thing, "__next__"):
            return next(thing)
        is_ours = type(thing).__module__ == "__main__" and not isinstance(thing, StandIn)
        is_public = operation in ("get", "set") and not str(rest[0]).startswith("_")
        if is_ours and is_public:
            return (getattr if operation == "get" else setattr)(thing, *rest)
        raise TypeError("a program may not %s this" % operation)

    def exception_class(self, classes):
        number, name = classes[0]
        if not number:
            kind = getattr(builtins, name)
            return kind if issubclass(kind, BaseException) else self.lose("no exception")
        if number not in self.exceptions:
            parent = self.exception_class(classes[1:])
            members = {"__getattr__": exception_attribute, "__module__": "program"}
            self.exceptions[number] = type(str(name), (parent,), members)
        return self.exceptions[number]

    def revive(self, raised, operation):
        try:
            kind = self.exception_class(raised["classes"])
            if issubclass(kind, (StopIteration, StopAsyncIteration, GeneratorExit)):
                # Raised inside of map() or a generator of the tests it would end them early.
                kind = kind if operation == "next" else RuntimeError
            error = kind(*[self.decode(value) for value in raised["args"]])
            if type(error).__module__ == "program":
                error.remote = self.stand_in(raised["mine"])
            return error
        except Exception as problem:
            return RuntimeError("the program raised something unheard of: %s" % problem)


def exception_attribute(error, name):
    if name == "remote" or name.startswith("__"):
        raise AttributeError(name)
    return getattr(error.remote, name)


DECODERS["exception"] = lambda peer, body: peer.exception_class(body)


class Row(Exception):
    """The tests cannot be run, whatever the program is."""


class Tests:
    """Statements in order, which of them are tests, and which names they want of the program."""

    def __init__(self, text):
        try:
            self.statements = ast.parse(text).body
            table = symtable.symtable(text, "tests", "exec")
            for statement in self.statements:
                self.compiled(statement)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Row("the tests are not Python: %s" % error)
        used, bound = names(table)
        modules = only_attributes(self.statements) & set(getattr(sys, "stdlib_module_names", ()))
        self.modules = (used - bound) & modules
        strangers = used - bound - self.modules
        # A name of Python's own belongs to the program only where no other name can be meant.
        self.names = sorted((strangers - set(dir(builtins))) or (strangers & set(dir(builtins))))
        self.callable = defined(self.statements) | set(self.names)
        flags = [self.is_test(statement) for statement in self.statements]
        self.total = sum(flags)
        if not self.total:
            raise Row("the tests test nothing: no statement asserts or calls what does")
        # What comes after the last test can change none.
        self.statements = self.statements[:len(flags) - flags[::-1].index(True)]

    def is_test(self, node):
        """An assertion, or a call of a function of the tests or of the program."""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            root = node.value.func
            while isinstance(root, (ast.Attribute, ast.Call)):
                root = root.func if isinstance(root, ast.Call) else root.value
            return isinstance(root, ast.Name) and root.id in self.callable
        return isinstance(node, ast.Assert) or any(
            self.is_test(inner) for inner in ast.iter_child_nodes(node)
            if isinstance(inner, (ast.stmt, ast.excepthandler)))

    def compiled(self, statement):
        return compile(ast.Module([statement], []), "tests", "exec")


def defined(statements):
    """Names of functions, classes and modules of the tests' own."""
    found = set()
    for statement in statements:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            found.add(statement.name)
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            found |= {(name.asname or name.name).split(".")[0] for name in statement.names}
    return found


def names(table):
    """Module-level names that are used, and those that the tests bind themselves."""
    used, bound = set(), set()
    tables = [table]
    while tables:
        inner = tables.pop()
        tables.extend(inner.get_children())
        for symbol in inner.get_symbols():
            if inner is not table and not symbol.is_global():
                continue
            if symbol.is_referenced():
                used.add(symbol.get_name())
            if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace():
                bound.add(symbol.get_name())
    return used, bound


def only_attributes(statements):
    """Names of which the tests use nothing but attributes, as in `math.isclose(...)`."""
    bare, owners = set(), set()
    for statement in statements:
        held = {id(node.value) for node in ast.walk(statement) if isinstance(node, ast.Attribute)}
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                (owners if id(node) in held else bare).add(node.id)
    return owners - bare


class Run:
    def __init__(self, peer, tests, limits, report):
        self.peer, self.tests, self.limits, self.report = peer, tests, limits, report
        self.end = time.monotonic() + limits["time_s"]
        self.namespace = {"__name__": "__main__", "__builtins__": builtins}
        for name in tests.modules:
            self.namespace[name] = __import__(name)

    def start_clock(self):
        self.peer.deadline = min(time.monotonic() + self.limits["time_per_test_s"], self.end)

    def holds(self, statement):
        """Whether one statement runs without an exception in its time."""
        try:
            self.start_clock()
            for name in self.tests.names:
                try:
                    self.namespace[name] = self.peer.ask("name", name)
                except KeyError:
                    self.namespace.pop(name, None)
            exec(self.tests.compiled(statement), self.namespace)
            return True
        except BaseException as error:
            is_import = isinstance(statement, (ast.Import, ast.ImportFrom))
            if is_import and isinstance(error, ImportError):
                raise Row("the tests cannot import what they need: %s" % error)
            return False

    def all(self):
        passed = 0
        self.start_clock()
        self.peer.ask("load")
        for statement in self.tests.statements:
            holds = self.holds(statement)
            is_test = self.tests.is_test(statement)
            if is_test and holds:
                passed += 1
                self.report({"passed": passed, "total": self.tests.total})
            # As in a script, what prepares later tests and fails takes them with it.
            is_over = not is_test or self.limits["is_first_failure_enough"]
            if self.peer.lost or not holds and is_over:
                break


def main():
    reads, writes, nowhere = take_channel()
    reports = os.dup(2)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)

    def report(message):
        os.write(reports, json.dumps(message).encode() + b"\n")

    with open(os.path.join(os.path.dirname(sys.argv[0]), "tests.json")) as file:
        job = json.load(file)
    try:
        tests = Tests(job["tests"])
        report({"passed": 0, "total": tests.total})
        peer = Judge(reads, writes)
        peer.deadline = time.monotonic() + job["limits"]["start_s"]
        peer.receive()  # hello
        Run(peer, tests, job["limits"], report).all()
    except Row as problem:
        report({"row": str(problem)})
    except BaseException:
        pass  # what was reported so far stands
    os._exit(0)


main()

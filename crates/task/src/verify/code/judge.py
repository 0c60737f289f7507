# The judge, in a sandbox of its own: runs the tests, statement by statement, and reports.
#
# The program is elsewhere. Its functions and objects are stand-ins here (`Remote`); its plain
# values are copies. Comparisons are made here, with values that the program never sees.


class Judge(Peer):
    def __init__(self, reads, writes):
        super().__init__(reads, writes)
        self.exceptions = {}  # number: stand-in for an exception class of the program

    def make_stand_in(self, number):
        return Remote(self, number)

    def encode_object(self, value):
        if isinstance(value, type) and value in self.exceptions.values():
            return {"yours": next(n for n, kind in self.exceptions.items() if kind is value)}
        name = None if isinstance(value, StandIn) else getattr(value, "__name__", None)
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


class Run:
    def __init__(self, peer, tests, limits, report):
        self.peer, self.tests, self.limits, self.report = peer, tests, limits, report
        self.end = time.monotonic() + limits["time_s"]
        self.namespace = {"__name__": "__main__", "__builtins__": builtins}
        for name in tests.modules:
            self.import_by("import " + name)

    def start_clock(self):
        self.peer.deadline = min(time.monotonic() + self.limits["time_per_test_s"], self.end)

    def import_by(self, statement):
        """The program has no part in this, so that a failure is the row's."""
        try:
            exec(statement, self.namespace)
        except ImportError as error:
            raise Row("the tests cannot import what they need: %s" % error)

    def holds(self, statement):
        """Whether one statement runs without an exception in its time."""
        code = self.tests.compiled(statement)
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            self.import_by(code)
            return True
        try:
            self.start_clock()
            for name in self.tests.names:
                self.look_up(name)
            exec(code, self.namespace)
            return not self.peer.lost  # the tests may have swallowed that
        except BaseException:
            return False

    def look_up(self, name):
        """What the program calls so now; its variables change."""
        try:
            self.namespace[name] = self.peer.ask("name", name)
        except KeyError:
            self.namespace.pop(name, None)

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

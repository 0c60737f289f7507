# The tests as text: which statements are tests, and which names they want of the program.

import ast
import symtable


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
        if not self.names:
            raise Row("the tests test nothing: they never use the program")
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

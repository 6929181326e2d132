"""Random small templates, for template_cases.py and for the fuzz target of templates."""

ATOMS = ["s", "e", "t", "n", "z", "neg", "f", "yes", "no", "nil", "l", "m", "words", "u", "rows", "nope", "1", "0", "2.5", "'ab'", "''", "' x '",
         "[1, 2]", "{'a': 1}", "(1, 'b')", "none", "true", "m.a", "rows[0]", "rows[0].k", "s[1:3]"]
# The lazy filters are read at once: when a generator fails, and where it lives in memory, is not part of the contract.
FILTERS = ["upper", "lower", "trim", "length", "first", "last", "list", "join(',')", "string", "int", "float", "abs", "sort", "reverse|list", "title",
           "capitalize", "default('d')", "tojson", "tojson(indent=1)", "map('string')|list", "select|list", "reject|list", "unique|list", "sum", "min", "max", "items|list",
           "replace('a', 'b')", "round", "d('x', true)", "map(attribute='k')|list", "selectattr('k')|list", "dictsort", "indent", "wordcount", "e", "batch(2)|list"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "sequence", "true", "false", "odd",
         "even", "in l", "in s", "eq 1", "lower", "upper", "callable", "sameas none", "gt 1"]
METHODS = [".strip()", ".split()", ".split(',')", ".upper()", ".items()", ".get('a')", ".keys()", ".title()", ".startswith('H')", ".a", ".k", "[0]",
           "[-1]", "[1:]", "[::-1]", "['a']", ".append(1)", ".count('l')", ".find('o')", ".replace('l', 'r')", ".splitlines()"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


def random_expression(rng, depth):
    if depth == 0:
        return rng.choice(ATOMS)
    inner = random_expression(rng, depth - 1)
    kind = rng.randrange(9)
    if kind == 0:
        return f"{inner}|{rng.choice(FILTERS)}"
    if kind == 1:
        return f"({inner})|{rng.choice(FILTERS)}"
    if kind == 2:
        return f"{inner} is {rng.choice(['', 'not '])}{rng.choice(TESTS)}"
    if kind == 3:
        return f"({inner}){rng.choice(METHODS)}"
    if kind == 4:
        return f"{rng.choice(['not ', '-'])}{inner}"
    if kind == 5:
        return f"({inner} if {random_expression(rng, depth - 1)} else {random_expression(rng, depth - 1)})"
    if kind == 6:
        return f"[{inner}, {random_expression(rng, depth - 1)}]"
    return f"{inner} {rng.choice(BINARY)} {random_expression(rng, depth - 1)}"


def random_template(rng):
    expression = random_expression(rng, rng.randrange(1, 4))
    shape = rng.randrange(5)
    if shape == 0:
        return f"{{% for x in {expression} %}}{{{{ x }}}},{{% else %}}-{{% endfor %}}"
    if shape == 1:
        return f"{{% if {expression} %}}yes{{% else %}}no{{% endif %}}"
    return "{{ " + expression + " }}"

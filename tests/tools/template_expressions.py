"""Small templates for template_cases.py: a table that walks the grammar. Random ones: template_random.py."""

from template_statements import STATEMENTS

CONTEXT = {
    "s": "Hello, Wörld", "e": "", "t": "  pad\t\n", "n": 7, "z": 0, "neg": -3, "f": 2.5, "yes": True, "no": False,
    "nil": None, "l": [3, 1, 2], "m": {"b": 1, "a": [1, {"c": "x"}], "items": "own", "1": "one"}, "words": ["b", "A", "c", "a"],
    "u": "ßtraße 𝔘 ⁇ é", "rows": [{"k": "x", "v": 2}, {"k": "y", "v": 1}, {"k": "X", "v": 3}],
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4
2 ** 3 ** 2
-2 ** 2
(-2) ** 2
2 ** -1
7 // 2
-7 // 2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
7 / 2
6 / 2
1e3
1.5e-7
1e16
123456789012345680.0
0.1 + 0.2
1_000 + 0x1F + 0b11 + 0o17
1 / 3
1e22
1e-5
100000.0
5 // 0
5 % 0
1 / 0
true + true
not true
not 1 == 2
1 < 2 < 3
1 < 2 > 3
3 > 2 >= 2 == 2
1 == 1.0
true == 1
'a' < 'b'
'a' < 1
[1, 2] < [1, 3]
(1, 2) == [1, 2]
nil == none
1 in l
5 not in l
'ell' in s
1 in s
'a' in m
'q' not in m
nope in l
l in l
1 and 0 or 5
e or 'default'
nil and nil.x
'a' ~ 1 ~ nil ~ true ~ 2.0
'a' ~ [1, 'b'] ~ {'k': 1}
1 ~ 2 + 3
'a' 'b' "c"
'tab\there\n"q" \x41\u00e9\U0001F600 \q \101'
"it's"
['it\'s', "say \"hi\"", 'both \' and "', '\n\t\\', 'é', '\x07', '\u200b']
1 if yes
1 if no
1 if no else 2
1 if no else 2 if no else 3
'x' if nope is defined else 'y'
l[0]
l[-1]
l[5]
l[1:]
l[::-1]
l[:-1]
l[::2]
l[5:1:-2]
l[-100:100]
l[::0]
s[0]
s[-1]
s[1:4]
s[::-1]
u[::-1]
u[1:4]
u[-1]
s[20]
m.b
m['b']
m.a[1].c
m['a'][1]['c']
m['items']
m.nope
m.nope.deeper
m['nope']['deeper']
m[1]
m['1']
m.1
m.a.0
nope
nope.x
nope['x']
nope + 1
nope ~ 'x'
nope == nope
nope|length
nope|list
nope|upper
nope|default('d')
nope|int
nope|tojson
nope()
nope is defined
nope is undefined
m.nope is defined
m.b is defined
n is odd
n is even
n is divisibleby 7
n is divisibleby(2)
n is number
n is integer
n is float
f is float
f is number
yes is boolean
yes is number
yes is integer
yes is true
no is false
n is true
nil is none
nil is not none
s is string
l is string
l is iterable
s is iterable
n is iterable
m is mapping
l is mapping
l is sequence
m is sequence
s is sequence
n is sequence
nope is iterable
n is eq 7
n is eq(7)
n is ne 7
n is gt 3
n is lt(3)
n is ge 7
n is le 7
n is equalto 7
n is in [7, 8]
'a' is in m
s is lower
'abc' is lower
'ABC' is upper
n is sameas 7
nil is sameas none
range is callable
s is callable
s.upper is callable
s is startingwith 'x'
n is not odd and yes
l is iterable and l is not mapping
[1, 2, 3]
[1, 2, 3,]
[]
(1,)
(1, 2)
()
1, 2
{'a': 1, 'b': [2, 3]}
{}
{1: 'x', 'y': nil, true: 2, none: 3}
{'a': 1, 'a': 2}
{[1]: 2}
{(1, 2): 'tuple'}[1, 2]
s|upper
s|lower
u|upper
u|lower
'hello world-foo bar(baz)'|title
"it's here".title()
'hELLO'|capitalize
u|capitalize
t|trim
'xxaxx'|trim('x')
s|replace('l', 'L')
s|replace('l', 'L', 1)
'aaa'|replace('', '-')
s|length
u|length
l|count
n|length
m|length
l|first
l|last
[]|first
[]|last
s|first
s|last
m|first
l|join
l|join(', ')
words|join('-')
[1, nil, true, nope]|join('|')
rows|join(',', attribute='k')
s|join('.')
n|join
l|sort
words|sort
words|sort(case_sensitive=true)
words|sort(reverse=true)
rows|sort(attribute='v')|map(attribute='k')|list
rows|sort(attribute='k,v')|map(attribute='v')|list
[1, 'a']|sort
l|reverse|list
s|reverse
l|list|reverse|join
s|list
m|list
n|list
l|map('string')|list
words|map('upper')|list
rows|map(attribute='k')|list
rows|map(attribute='q', default='?')|list
rows|map(attribute='q')|list
m.a|map(attribute='c')|list
l|map('nope')|list
l|map|list
l|select('odd')|list
l|reject('odd')|list
l|select('gt', 1)|list
[0, 1, '', 'a', nil]|select|list
rows|selectattr('v', 'ge', 2)|map(attribute='k')|join
rows|rejectattr('k', 'equalto', 'x')|list|length
rows|selectattr('k')|list|length
rows|selectattr('q', 'defined')|list
words|unique|list
['a', 'A', 'b']|unique|list
['a', 'A', 'b']|unique(case_sensitive=true)|list
l|sum
rows|sum(attribute='v')
[]|sum
l|max
l|min
[]|max
words|min
words|max(case_sensitive=true)
rows|max(attribute='v')
[1.5, 2]|sum
l|batch(2)|list
l|batch(2, 'x')|list
m|dictsort
m|dictsort(reverse=true)
{'B': 1, 'a': 0}|dictsort
{'B': 1, 'a': 0}|dictsort(true)
{'B': 1, 'a': 0}|dictsort(by='value')
m|items|list
nope|items|list
'42'|int
'42.9'|int
'x'|int
'x'|int(5)
'0x1f'|int(base=16)
'0b11'|int(0, 2)
' 12_000 '|int
3.99|int
-3.99|int
nil|int
yes|int
'3.5'|float
'x'|float
'1e3'|float
'inf'|float
'nan'|float
3|float
2.5|round
3.5|round
2.567|round(2)
2.675|round(2)
7|round
2.1|round(method='ceil')
-2.1|round(method='floor')
1234.5|round(-2)
1250|round(-2)
neg|abs
-2.5|abs
s|abs
'<a href="x">\'&\''|e
('<'|e) + '<'
'<' + ('>'|safe) ~ '<'
('<'|safe)|e
'<'|e|e
s|string
n|string|length
nil|string
nil|trim
'%s and %d: %.2f%%'|format('x', 3, 1.5)
'%(a)s'|format(a=1)
'%5d|%-5d|%05d|%+d|%x|%X|%o'|format(42, 42, 42, 42, 255, 255, 8)
'%s' % 'x'
'%s %s' % ('x', 1)
'%s' % ('x', 1)
'%r' % s
'%10s|%-10s|%.2s' % ('abc', 'abc', 'abc')
'%e %g' % (1234.5, 0.0001)
'%d' % 'x'
'%c' % 'x'
'{} {}'.format(1, 'a')
'{1} {0} {x}'.format(1, 2, x=nil)
'{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}'.format('a', 'b', 'c', 42, 3.14159)
'{{}} {!r}'.format('q')
'{:,}'.format(1234567)
'{}'.format()
'a\nb\n\nc'|indent
'a\nb\n\nc'|indent(2, true)
'a\nb\n\nc'|indent('> ', true, true)
'a b c'|wordcount
'hello world this is long'|truncate(10)
'hello world this is long'|truncate(10, true)
'hello world'|truncate(9)
'hello world this is long'|truncate(12, false, '!', 0)
'x'|center(5)
l|tojson
m|tojson
m|tojson(indent=2)
{}|tojson(indent=2)
[]|tojson(indent=2)
[[], {}]|tojson(indent=4)
m|tojson(sort_keys=true)
m|tojson(separators=(',', ':'))
u|tojson
u|tojson(ensure_ascii=true)
'<>&\''|tojson
'\x00\x1f\x7f\u2028"\\/\n\t\r\f\b'|tojson
[1.0, 1e20, 1e-7, nil, true, false, -0.0]|tojson
(1, 2)|tojson
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
{(1, 2): 3}|tojson
range(3)|tojson
m|tojson(indent='--')
s.upper()
s.split()
s.split(',')
s.split(', ')[1]
'a,b,c'.split(',', 1)
'a,b,c'.rsplit(',', 1)
' a  b c '.split()
' a  b c '.split(none, 1)
' a  b c '.rsplit(none, 1)
'a'.split('')
'a\nb\r\nc\x0bd'.splitlines()
'a\nb\n'.splitlines(true)
t.strip()
t.lstrip() ~ '|'
t.rstrip() ~ '|'
'xyxax'.strip('xy')
'xyxax'.lstrip('xy')
'xyxax'.rstrip('x')
s.startswith('Hell')
s.endswith(('x', 'ld'))
s.startswith('llo', 2)
s.startswith(1)
s.replace('l', '_')
s.replace('l', '_', 1)
s.find('l')
s.rfind('l')
s.find('zz')
u.find('é')
s.index('zz')
s.count('l')
','.join(words)
','.join(l)
s.title()
u.title()
s.capitalize()
s.swapcase()
'pre-x'.removeprefix('pre-')
'x.suf'.removesuffix('.suf')
'a-b-c'.partition('-')
'a-b-c'.rpartition('-')
'ab'.partition('-')
'5'.zfill(3)
'-5'.zfill(4)
'a'.ljust(3) ~ '|'
'a'.rjust(3, '*')
'ab'.center(5, '*')
'abc'.center(6, '*')
'12'.isdigit()
'1a'.isalnum()
'ab'.isalpha()
''.isalpha()
' '.isspace()
'Ab Cd'.istitle()
'AB'.isupper()
'ab1'.islower()
'²'.isdigit()
'½'.isnumeric()
s.nope
s.nope()
m.get('b')
m.get('q')
m.get('q', 5)
m.keys()|list
m.values()|list
m.items()
{'a': 1}.items()
{'a': 1}.keys()
{'a': 1}.items()|list
{'a': 1}.keys()|first
{'a': 1}.values()[0]
l.index(1)
l.index(9)
l.count(3)
l.append(4)
l.append
l.pop()
m.update({})
m.pop('b')
m.clear
s.__class__
s.__class__.__mro__
m.__init__
m['__class__']
l.__len__()
''.__class__ is defined
range(5)
range(5)|list
range(1, 10, 3)|list
range(5, 0, -2)|list
range(3)[1]
range(3)|length
range(0)
range(1, 2, 0)
range('a')
range(200000)|length
dict(a=1, b=2)
dict({'x': 1}, y=2)
dict([('a', 1)])
namespace(a=1).a
namespace(a=1).q
namespace(_a=1)
namespace({'_a': 1})
dict.fromkeys(['a', 'b'], 1)
dict.fromkeys('ab')
dict.fromkeys([[1]])
dict.fromkeys()
dict.other
raise_exception('boom')
raise_exception('a' ~ 1)
strftime_now('%%')
strftime_now('[%z|%Z|%]')
strftime_now('%f') | length
strftime_now('%%f %%z')
'\x7f\u0080' | tojson(ensure_ascii=true)
[1, 2] + [3]
[1] + (2,)
[0] * 3
'ab' * 3
3 * 'ab'
'ab' * -1
'a' + 1
1 + 'a'
[1] - [1]
-'a'
+5
-nope
- 5|abs
(- 5)|abs
-l|length
1|string + '2'
1 + 2|string
l|length > 2 and s
not l|length
l | map('string') | join(',') | upper
(l|sort)[0]
l|sort|first + 1
s.split(',')[0][1:3].upper()
[l, m, s]|map('length')|list
l|select('in', [1, 2])|list
rows|map(attribute='v')|sum
loop is defined
caller is defined
true is true
True and not False
None is none
l|d([])|length
e|default('x', true)
nil|default('x')
nil|default('x', boolean=true)
s|nofilter
s is notest
1 +
(1
1)
[1, 2
'open
{1: }
a b
1 2
s.
s..x
s[
not
if
'a' if
1 = 2
$
é
2 ** 0.5
0 ** -1
10 ** 15
'x' is string is true
"" ~ none
[nope]
[none, true, 1.0, 'x', [], {}, ()]
{'a': nope}
{'k': 'it\'s'}
'a' in 'abc' in ['abc']
1 == 2 == false
(1 == 2) == false
1 if 0 or 1 else 2
l[1:][0]
l[:1] + l[1:]
l[n]
l['x']
l.x
m[l]
m[nope]
s['upper']()
m['get']('b')
[3, 1]|sort == [1, 3]
s is eq s
(1, 'a', nil)[1]
(1, 2) + (3,)
1.0|int|string
1.0
-0.0
1.10
100.0|string
5.0 // 2
2 * 1.0
true|string
7|string|int + 1
l|last if l else 'none'
[[1, 2], [3, 4]]|map('first')|list
[[1, 2], [3, 4]]|map(attribute=1)|list
[[1, 2], [3, 4]]|sum(start=[])
'a'|upper|lower|upper
""|trim|length == 0
s|map('upper')|join
'abc'|sort|join
""|first
l|sort(reverse=true)|first
'%s' % nope
'%s' % nil
'%s' % [1, 2]
'100%' % ()
'a' % nope
'a' % l
'a' % 1
""".strip("\n").split("\n")

TABLE = ["{{ " + expression + " }}" for expression in EXPRESSIONS] + STATEMENTS

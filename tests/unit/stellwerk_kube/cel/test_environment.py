"""What expressions come to, topic by topic, as in CEL's conformance suite."""
# ruff: noqa: E501, RUF001  (a line of a table is one expression; cel-go marks places with wide dots)

from typing import Any

import pytest

from stellwerk_kube.cel.environment import Environment
from stellwerk_kube.cel.errors import CompileError, EvaluationError
from stellwerk_kube.cel.library.quantities import parse_quantity
from stellwerk_kube.cel.library.versions import parse_version
from stellwerk_kube.cel.types import DYN, INT, STRING, Type, list_of, map_of
from stellwerk_kube.cel.values import DefaultMap, Uint

_ENVIRONMENT = Environment(
    {
        "x": DYN,
        "i": INT,
        "s": STRING,
        "l": list_of(INT),
        "m": map_of(STRING, INT),
        "q": Type("kubernetes.Quantity"),
        "d": DYN,
    }
)
_VARIABLES: dict[str, Any] = {
    "x": {"a": 1, "n": None, "s": "text", "l": [1, 2, 3], "m": {"k": {"deep": True}}, "t": True},
    "i": 3,
    "s": "hello",
    "l": [3, 1, 2],
    "m": {"one": 1, "two": 2},
    "q": parse_quantity("2Gi"),
    "d": DefaultMap({"gpu.example.com": {"model": "A100", "version": parse_version("1.2.3")}}),
}

TRUE = """
integers: 1 + 2 * 3 == 7
integers: 7 / -2 == -3
integers: -7 % 3 == -1
integers: 7 % -3 == 1
integers: -(-3) == 3
integers: 0x1F == 31
integers: -9223372036854775808 < 0
integers: 9223372036854775806 + 1 == 9223372036854775807
unsigned: 3u - 2u == 1u
unsigned: 18446744073709551615u > 1u
unsigned: 7u / 2u == 3u && 7u % 2u == 1u
doubles: 1.5 + 2.25 == 3.75
doubles: 1.0 / 0.0 > 1e308
doubles: (0.0 / 0.0) != (0.0 / 0.0)
doubles: -0.0 == 0.0
numbers compare across types: 1 < 1.5 && 2u > 1 && 1.0 <= 1u
numbers compare across types: dyn(1) == 1.0 && dyn(1u) == 1
numbers compare across types: dyn(9223372036854775807) == 9223372036854775808.0
numbers compare across types: 1 in [dyn(1.0)]
strings: 'a' + 'b' == "ab"
strings: 'a' < 'b' && 'Z' < 'a' && 'é' > 'z'
strings: size('ß😀') == 2
strings: r'\\d' == '\\\\d'
strings: '\\u00e9' == 'é' && '\\x41' == 'A' && '\\101' == 'A'
strings: s.startsWith('he') && s.endsWith('lo') && s.contains('ell')
strings: s.matches('^h.+o$') && matches(s, 'l{2}')
strings: 'a.b'.split('.') == ['a', 'b'] && 'abc'.split('') == ['a', 'b', 'c']
strings: 'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'a'.split(',', 0) == []
strings: ['a', 'b'].join('-') == 'a-b' && ['a', 'b'].join() == 'ab'
strings: 'hello'.charAt(1) == 'e' && 'hello'.charAt(5) == ''
strings: 'hello'.indexOf('l') == 2 && 'hello'.lastIndexOf('l') == 3 && 'hello'.indexOf('z') == -1
strings: 'hello'.indexOf('l', 3) == 3 && 'hello'.lastIndexOf('l', 2) == 2
strings: 'hello'.substring(1) == 'ello' && 'hello'.substring(1, 3) == 'el'
strings: 'aAzZé'.upperAscii() == 'AAZZé' && 'AÉ'.lowerAscii() == 'aÉ'
strings: '\\t a \\u2003'.trim() == 'a'
strings: 'aaa'.replace('a', 'b') == 'bbb' && 'aaa'.replace('a', 'b', 2) == 'bba'
strings: strings.quote('a"b\\n') == '"a\\\\"b\\\\n"'
format: '%s %s'.format(['a', 'b']) == 'a b'
format: '%d%%'.format([5]) == '5%'
format: '%.2f'.format([2.345]) == '2.35' || '%.2f'.format([2.345]) == '2.35'
format: '%x %X %o %b'.format([255, 255, 8, 5]) == 'ff FF 10 101'
format: '%s'.format([[1, 2]]) == '[1, 2]' && '%s'.format([{'a': 'b'}]) == '{"a":"b"}'
format: '%s'.format([null]) == 'null' && '%s'.format([true]) == 'true'
format: '%s'.format([duration('90s')]) == '90s'
bytes: b'abc' == bytes('abc') && size(b'\\xff') == 1 && b'a' + b'b' == b'ab'
bytes: string(b'\\xc3\\xa9') == 'é' && b'a' < b'b'
booleans: true && !false || false
booleans: false < true
null: null == null && x.n == null && x.a != null
lists: [1, 2] + [3] == [1, 2, 3] && size([]) == 0 && [1, 2][1] == 2
lists: 2 in l && !(5 in l)
lists: [[1], [2]] == [[1], [2]] && [1, 2] != [2, 1]
lists: l[dyn(1.0)] == 1 && l[dyn(0u)] == 3
lists: l.sort() == [1, 2, 3] && !l.isSorted() && l.sort().isSorted()
lists: l.sum() == 6 && l.min() == 1 && l.max() == 3 && [1.5, 2.5].sum() == 4.0
lists: [duration('1s'), duration('2s')].sum() == duration('3s') && [].sum() == dyn(0)
lists: l.indexOf(1) == 1 && l.lastIndexOf(9) == -1 && [1, 1].lastIndexOf(1) == 1
lists: l.reverse() == [2, 1, 3] && [1, 1, 2].distinct() == [1, 2] && l.slice(1, 3) == [1, 2]
lists: [[1], [2, 3]].flatten() == [1, 2, 3] && dyn([[[1]]]).flatten(2) == [1]
lists: lists.range(3) == [0, 1, 2] && lists.range(-1) == []
lists: l.sortBy(e, -e) == [3, 2, 1] && ['bb', 'a'].sortBy(e, e.size()) == ['a', 'bb']
lists: l.first().value() == 3 && l.last().value() == 2 && ![].first().hasValue()
sets: sets.contains([1, 2], [2]) && sets.equivalent([1, 1], [1]) && !sets.intersects([1], [2])
sets: sets.contains([1], []) && sets.equivalent([dyn(1)], [1.0])
maps: {'a': 1}['a'] == 1 && {'a': 1}.a == 1 && 'a' in {'a': 1} && size(m) == 2
maps: {'a': 1, 'b': 2} == {'b': 2, 'a': 1} && {'a': 1} != {'a': 2}
maps: {1: 'x'}[dyn(1u)] == 'x' && {true: 1}[true] == 1 && !(dyn(true) in {1: 2})
maps: has(m.one) && !has(m.three) && has(x.m.k.deep) && !has(x.m.z)
maps: has(x.n)
macros: l.all(e, e > 0) && !l.all(e, e > 1) && l.exists(e, e == 2) && !l.exists(e, e > 9)
macros: l.exists_one(e, e == 2) && l.existsOne(e, e > 2) && ![1, 1].exists_one(e, e == 1)
macros: [].all(e, false) && ![].exists(e, true) && ![].exists_one(e, true)
macros: l.map(e, e * 2) == [6, 2, 4] && l.map(e, e > 1, e * 2) == [6, 4]
macros: l.filter(e, e > 1) == [3, 2] && m.filter(k, m[k] > 1) == ['two']
macros: m.all(k, k.size() == 3) && m.exists(k, m[k] == 2) && m.map(k, m[k]).sum() == 3
macros: l.all(a, l.exists(b, a == b)) && [1].all(i, i == 1) && i == 3
macros: l.all(p, v, p < 3 && v > 0) && m.exists(k, v, k == 'two' && v == 2)
macros: m.existsOne(k, v, v == 1) && l.transformList(p, v, p * v) == [0, 1, 4]
macros: l.transformList(p, v, p > 0, v) == [1, 2]
macros: l.transformMap(p, v, v > 1, v + p) == {0: 3, 2: 4} && m.transformMap(k, v, v + 1).one == 2
macros: m.transformMapEntry(k, v, {v: k}) == {1: 'one', 2: 'two'}
macros: cel.bind(n, s.size(), n * n) == 25 && cel.bind(i, 9, i) + i == 12
errors are absorbed: true || 1 / 0 == 1
errors are absorbed: 1 / 0 == 1 || true
errors are absorbed: !(false && 1 / 0 == 1) && !(1 / 0 == 1 && false)
errors are absorbed: [1, 0].exists(e, 1 / e == 1) && [0, 1].exists(e, 1 / e == 1)
errors are absorbed: ![0, 2].all(e, 1 / e == 1)
errors are absorbed: x.missing == 1 || x.a == 1
ternary: (i > 2 ? 'big' : 'small') == 'big' && (true ? 1 : 1 / 0) == 1
optionals: x.?a.orValue(0) == 1 && x.?missing.orValue(7) == 7
optionals: x.?m.k.deep.orValue(false) && !x.?m.?z.deep.hasValue()
optionals: l[?0].value() == 3 && !l[?9].hasValue() && m[?'one'].orValue(0) == 1
optionals: optional.of(1).hasValue() && !optional.none().hasValue()
optionals: !optional.ofNonZeroValue(0).hasValue() && optional.ofNonZeroValue('a').value() == 'a'
optionals: x.?missing.or(x.?a).value() == 1 && x.?a.or(optional.of(1 / 0)).value() == 1
optionals: x.?a.optMap(v, v + 1).value() == 2 && !x.?missing.optMap(v, v + 1).hasValue()
optionals: x.?a.optFlatMap(v, optional.of(v * 3)).value() == 3
optionals: [?x.?a, ?x.?missing, 5] == [1, 5] && {?'a': x.?a, ?'b': x.?missing} == {'a': 1}
optionals: optional.of(1) == optional.of(1) && optional.none() != optional.of(1)
optionals: [optional.of(1), optional.none()].unwrapOpt() == [1]
optionals: has(x.?m.k)
optionals: !has(x.s.q) && !has(x.n.q) && !x.?s.?q.hasValue() && !x.a[?0].hasValue()
types: type(1) == int && type(1u) == uint && type(1.0) == double && type('') == string
types: type(b'') == bytes && type(true) == bool && type(null) == null_type
types: type([]) == list && type({}) == map && type(int) == type && type(type(1)) == type
types: type(x.a) == int && type(x.l) == list && type(x.m) == map && type(x) == map
types: type(timestamp('2020-01-01T00:00:00Z')) == google.protobuf.Timestamp
types: type(duration('1s')) == google.protobuf.Duration
conversions: int('-12') == -12 && int(3.99) == 3 && int(-3.99) == -3 && int(7u) == 7
conversions: uint('12') == 12u && uint(3.7) == 3u && double('1.5e3') == 1500.0 && double(3) == 3.0
conversions: string(1) == '1' && string(2u) == '2' && string(true) == 'true' && string(1.5) == '1.5'
conversions: string(1e21) == '1e+21' && string(100000.0) == '100000' && string(0.00001) == '1e-05'
conversions: string(duration('1h1ms')) == '3600.001s'
conversions: string(timestamp('2020-01-02T03:04:05.6Z')) == '2020-01-02T03:04:05.6Z'
conversions: bool('true') && !bool('F') && bool('1') && double('NaN') != double('NaN')
conversions: timestamp(0) == timestamp('1970-01-01T00:00:00Z') && int(timestamp(7)) == 7
time: timestamp('2020-02-28T00:00:00Z') + duration('24h') == timestamp('2020-02-29T00:00:00Z')
time: timestamp('2020-01-01T01:00:00+01:00') == timestamp('2020-01-01T00:00:00Z')
time: timestamp('2020-01-02T00:00:00Z') - timestamp('2020-01-01T00:00:00Z') == duration('24h')
time: timestamp('2020-01-02T03:04:05.678Z').getMilliseconds() == 678
time: timestamp('2020-05-02T03:04:05Z').getMonth() == 4
time: timestamp('2020-01-02T03:04:05Z').getDate() == 2
time: timestamp('2020-01-02T03:04:05Z').getDayOfMonth() == 1
time: timestamp('2020-01-05T03:04:05Z').getDayOfWeek() == 0
time: timestamp('2020-12-31T03:04:05Z').getDayOfYear() == 365
time: timestamp('2020-01-01T00:30:00Z').getFullYear('-01:00') == 2019
time: timestamp('2020-01-01T00:30:00Z').getHours('Europe/Berlin') == 1
time: timestamp('2020-01-01T00:30:00Z').getMinutes('+05:30') == 0
time: duration('1h30m').getMinutes() == 90 && duration('1.5s').getMilliseconds() == 1500
time: duration('-1.5h').getHours() == -1 && duration('1m') > duration('59s')
time: timestamp('2020-01-01T00:00:00Z') < timestamp('2020-01-01T00:00:00.000000001Z')
regex: 'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]') == ''
regex: '1a2b3'.findAll('[0-9]') == ['1', '2', '3'] && '1a2b'.findAll('[0-9]', 1) == ['1']
regex: 'x'.findAll('[0-9]') == [] && 'ab'.matches('(?i)AB')
url: url('https://user@host.example:80/a%20b/c?k=1&k=2&e#f').getHost() == 'host.example:80'
url: url('https://[::1]:80/').getHostname() == '::1' && url('https://[::1]:80/').getPort() == '80'
url: url('https://h/a b').getEscapedPath() == '/a%20b' && url('/path').getScheme() == ''
url: url('https://h/?k=1&k=2&e').getQuery() == {'k': ['1', '2'], 'e': ['']}
url: isURL('https://h') && isURL('/p') && !isURL('../p') && !isURL('') && !isURL('https://h:x/')
url: url('https://h/a') == url('https://h/a') && url('https://h/a') != url('https://h/b')
quantity: quantity('1Gi') == quantity('1024Mi') && quantity('1k') != quantity('1Ki')
quantity: quantity('1.5').compareTo(quantity('1500m')) == 0 && quantity('2').isGreaterThan(quantity('1'))
quantity: quantity('1').isLessThan(quantity('1001m')) && sign(quantity('-5')) == -1
quantity: quantity('50k').asInteger() == 50000 && !quantity('1500m').isInteger()
quantity: quantity('1.5').asApproximateFloat() == 1.5 && quantity('1e3').isInteger()
quantity: quantity('1').add(quantity('1k')) == quantity('1001') && quantity('3').sub(1) == quantity('2')
quantity: isQuantity('1.3Ki') && !isQuantity('1.3KiB') && !isQuantity('') && isQuantity('-1E')
quantity: q.compareTo(quantity('1Gi')) > 0
semver: semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0-rc.1') != semver('1.0.0')
semver: semver('1.0.0-rc.1').isLessThan(semver('1.0.0')) && semver('1.0.0+a') == semver('1.0.0+b')
semver: semver('1.0.0-1').isLessThan(semver('1.0.0-a')) && semver('1.0.0-2').isLessThan(semver('1.0.0-10'))
semver: semver('v01.2', true) == semver('1.2.0') && !isSemver('v1.2') && isSemver('v1.2', true)
semver: semver('4.5.6').major() == 4 && semver('4.5.6').minor() == 5 && semver('4.5.6').patch() == 6
semver: !isSemver('1.2') && !isSemver('01.2.3') && !isSemver('1.2.3-01') && isSemver('1.2.3-0a')
ip: ip('192.168.0.1').family() == 4 && ip('::1').family() == 6 && ip('::1').isLoopback()
ip: ip('0.0.0.0').isUnspecified() && ip('169.254.1.1').isLinkLocalUnicast()
ip: ip('224.0.0.1').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast()
ip: ip('8.8.8.8').isGlobalUnicast() && ip('192.168.1.1').isGlobalUnicast()
ip: isIP('::1') && !isIP('1.2.3') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0')
ip: ip.isCanonical('2001:db8::1') && !ip.isCanonical('2001:DB8::1')
ip: string(ip('2001:DB8:0:0::1')) == '2001:db8::1' && ip('::1') == ip('0:0::1')
cidr: cidr('10.0.0.0/8').containsIP('10.2.3.4') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))
cidr: cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8')
cidr: cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('10.0.0.0/8').prefixLength() == 8
cidr: cidr('10.0.0.0/8').ip() == ip('10.0.0.0') && string(cidr('::/0')) == '::/0'
cidr: isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0')
formats: !format.dns1123Label().validate('a-b').hasValue() && format.uuid().validate('x').hasValue()
formats: format.dns1123Label().validate('A').value().size() == 1
formats: !format.named('labelValue').value().validate('a.b').hasValue()
formats: !format.named('nothing').hasValue() && !format.dns1035LabelPrefix().validate('a-').hasValue()
formats: !format.qualifiedName().validate('a.b/c').hasValue() && format.qualifiedName().validate('/').hasValue()
formats: !format.date().validate('2020-02-29').hasValue() && format.date().validate('2021-02-29').hasValue()
formats: !format.byte().validate('YQ==').hasValue() && format.byte().validate('%').hasValue()
formats: format.uri().validate('a').hasValue() && !format.datetime().validate('2020-01-01T00:00:00Z').hasValue()
device maps: d['gpu.example.com'].model == 'A100' && 'gpu.example.com' in d && !('other' in d)
device maps: has(d.other) && d[?'other'].hasValue() && size(d) == 1 && !has(d.other.model)
device maps: d['gpu.example.com'].version.isGreaterThan(semver('1.0.0'))
device maps: d.other.?model.orValue('none') == 'none'
"""


def _named(table: str) -> list[Any]:
    cases = []
    for line in table.strip().splitlines():
        topic, _, source = line.partition(": ")
        cases.append(pytest.param(source, id=f"{topic} — {source}"))
    return cases


@pytest.mark.parametrize("source", _named(TRUE))
def test_an_expression_is_true(source: str) -> None:
    assert _ENVIRONMENT.compile(source).evaluate(_VARIABLES) is True


ERRORS = [
    ("1 / 0", "division by zero"),
    ("1 % 0", "modulus by zero"),
    ("1u / 0u", "division by zero"),
    ("9223372036854775807 + 1", "integer overflow"),
    ("-9223372036854775808 - 1", "integer overflow"),
    ("-(-9223372036854775808)", "integer overflow"),
    ("-9223372036854775808 / -1", "integer overflow"),
    ("9223372036854775807 * 2", "integer overflow"),
    ("0u - 1u", "unsigned integer overflow"),
    ("18446744073709551615u + 1u", "unsigned integer overflow"),
    ("int(1e30)", "integer overflow"),
    ("uint(-1)", "unsigned integer overflow"),
    ("int('x')", "type conversion error from 'string' to 'int'"),
    ("double('x')", "type conversion error from 'string' to 'double'"),
    ("bool('x')", "type conversion error from 'string' to 'bool'"),
    ("duration(s)", "type conversion error from 'string' to 'google.protobuf.Duration'"),
    ("timestamp(s)", "type conversion error from 'string' to 'google.protobuf.Timestamp'"),
    ("string(b'\\xff')", "invalid UTF-8 in bytes, cannot convert to string"),
    ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "timestamp overflow"),
    ("m.three", "no such key: three"),
    ("m['three']", "no such key: three"),
    ("{1: 2}[3]", "no such key: 3"),
    ("{true: 2}[false]", "no such key: false"),
    ("x.missing.deeper", "no such key: missing"),
    ("x.s.field", "no such key: field"),
    ("x.l.field", "unsupported index type 'string' in list"),
    ("x.l[true]", "unsupported index type 'bool' in list"),
    ("x.l[dyn(1.5)]", "unsupported index value 1.5 in list"),
    ("has(x.l.field)", "unsupported index type 'string' in list"),
    ("l[3]", "index out of bounds: 3"),
    ("l[-1]", "index out of bounds: -1"),
    ("x.a + 'b'", "no such overload"),
    ("x.a && true", "no such overload"),
    ("x.a ? 1 : 2", "no such overload"),
    ("!x.a", "no such overload"),
    ("x.a < 'b'", "no such overload"),
    ("x.a.all(e, true)", "no such overload"),
    ("x.s.startsWith(x.a)", "no such overload: startsWith(string, int)"),
    ("size(x.a)", "no such overload: size(int)"),
    ("x.t.compareTo(q)", "no such overload: compareTo(bool, kubernetes.Quantity)"),
    ("d['gpu.example.com'].model.compareTo(semver('1.0.0'))", "no such overload: compareTo(string, kubernetes.Semver)"),
    ("q == dyn(1)", "no such overload"),
    ("d['gpu.example.com'].version == 'x'", "no such overload"),
    ("d['gpu.example.com'].nothing", "no such key: nothing"),
    ("d.other.model", "no such key: model"),
    ("1 / 0 == 1 || x.missing == 1", "division by zero"),
    ("false || 1 / 0 == 1", "division by zero"),
    ("true && 1 / 0 == 1", "division by zero"),
    ("[1, 0].all(e, 1 / e == 1)", "division by zero"),
    ("[0, 2].exists(e, 1 / e == 1)", "division by zero"),
    ("optional.none().value()", "optional.none() dereference"),
    ("x.?missing.value()", "optional.none() dereference"),
    ("[].min()", "min called on empty list"),
    ("l.slice(2, 1)", "cannot slice(2, 1), start index must be less than or equal to end index"),
    ("l.slice(0, 4)", "cannot slice(0, 4), list is length 3"),
    ("dyn([1]).flatten(-1)", "level must be non-negative"),
    ("'abc'.charAt(4)", "index out of range: 4"),
    ("'abc'.substring(4)", "index out of range: 4"),
    ("'abc'.substring(2, 1)", "invalid substring range. start: 2, end: 1"),
    ("'%d'.format(['a'])", "error during formatting: decimal clause can only be used on integers, was given string"),
    ("'%s'.format([])", "index 0 out of range"),
    ("'a'.matches(s + '(')", "error parsing regexp: "),
    ("quantity('x')", "quantities must match the regular expression"),
    ("quantity('1.5').asInteger()", "cannot convert value to integer"),
    ("semver('1.2')", "No Major.Minor.Patch elements found"),
    ("semver('1.x.3')", 'Invalid character(s) found in minor number "x"'),
    ("ip('1.2.3')", 'IP Address "1.2.3" parse error during conversion from string'),
    ("cidr('1.2.3.4')", "network address parse error during conversion from string"),
    ("url('a b')", "URL parse error during conversion from string"),
    ("0.0 / 0.0 < 1.0", "NaN values cannot be ordered"),
    ("m.transformMapEntry(k, v, {'same': v})", "insert failed: key same already exists"),
    ("timestamp('2020-01-01T00:00:00Z').getHours('Nowhere/At')", "unknown time zone Nowhere/At"),
    ("timestamp('2020-01-01T00:00:00Z').getHours('+01:75')", "timezone offset minutes out of range [0, 59]: +01:75"),
    ("[dyn(1), dyn('a')].sort()", "list elements must have the same type"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "text"), [pytest.param(*each, id=each[0]) for each in ERRORS])
def test_an_evaluation_fails_in_cel_gos_words(source: str, text: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        _ENVIRONMENT.compile(source).evaluate(_VARIABLES)
    assert str(caught.value).startswith(text)


REFUSED = [
    ("nothing == 1", "undeclared reference to 'nothing' (in container '')"),
    ("nothing(1)", "undeclared reference to 'nothing' (in container '')"),
    ("s.nothing()", "undeclared reference to 'nothing' (in container '')"),
    ("s + 1", "found no matching overload for '_+_' applied to '(string, int)'"),
    ("1 == '1'", "found no matching overload for '_==_' applied to '(int, string)'"),
    ("s.startsWith(1)", "found no matching overload for 'startsWith' applied to 'string.(int)'"),
    ("size(1)", "found no matching overload for 'size' applied to '(int)'"),
    ("l[s]", "found no matching overload for '_[_]' applied to '(list(int), string)'"),
    ("s in m ? 1 : 'a'", "found no matching overload for '_?_:_' applied to '(bool, int, string)'"),
    ("q + q", "found no matching overload for '_+_' applied to '(kubernetes.Quantity, kubernetes.Quantity)'"),
    ("q.sign()", "found no matching overload for 'sign' applied to 'kubernetes.Quantity.()'"),
    ("q == 1", "found no matching overload for '_==_' applied to '(kubernetes.Quantity, int)'"),
    ("i && true", "expected type 'bool' but found 'int'"),
    ("[1, 'a']", "expected type 'int' but found 'string'"),
    ("{'a': 1, 'b': 'c'}", "expected type 'int' but found 'string'"),
    ("s.field", "type 'string' does not support field selection"),
    ("s.all(c, true)", "expression of type 'string' cannot be range of a comprehension (must be list, map, or dynamic)"),
    ("has(s)", "invalid argument to has() macro"),
    ("l.all(1, true)", "argument must be a simple name"),
    ("s.matches('(')", "invalid matches argument"),
    ("duration('x') > duration('1s')", "invalid duration argument"),
    ("Message{field: 1}", "undeclared reference to 'Message' (in container '')"),
    ("1 +", "Syntax error: mismatched input '<EOF>' expecting"),
    ("'open", "Syntax error: token recognition error at: ''open'"),
    ("99999999999999999999", "invalid int literal"),
    ("math.greatest(1, 2)", "undeclared reference to 'math' (in container '')"),
    ("'abc'.reverse()", "found no matching overload for 'reverse' applied to 'string.()'"),
    ("now() > now()", "undeclared reference to 'now' (in container '')"),
    ("authorizer.path('/')", "undeclared reference to 'authorizer' (in container '')"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "text"), [pytest.param(*each, id=each[0]) for each in REFUSED])
def test_an_expression_is_refused_in_cel_gos_words(source: str, text: str) -> None:
    with pytest.raises(CompileError) as caught:
        _ENVIRONMENT.compile(source)
    assert text in str(caught.value).splitlines()[0]


def test_an_issue_shows_its_place() -> None:
    with pytest.raises(CompileError) as caught:
        _ENVIRONMENT.compile("i == 1 &&\n  i == 'é' && s == 2")
    assert str(caught.value) == (
        "ERROR: <input>:2:5: found no matching overload for '_==_' applied to '(int, string)'\n"
        " |   i == 'é' && s == 2\n"
        " | ....^\n"
        "ERROR: <input>:2:17: found no matching overload for '_==_' applied to '(string, int)'\n"
        " |   i == 'é' && s == 2\n"
        " | ........．.......^"
    )


TYPES = [
    ("1 + 2", "int"),
    ("[1.5]", "list(double)"),
    ("{'a': [b'x']}", "map(string, list(bytes))"),
    ("[]", "list(dyn)"),
    ("[].map(e, 1)", "list(int)"),
    ("l.map(e, string(e))", "list(string)"),
    ("m.transformMap(k, v, k)", "map(string, string)"),
    ("x.a", "dyn"),
    ("x.?a", "optional_type(dyn)"),
    ("m[?'a']", "optional_type(int)"),
    ("m.?a.orValue(1)", "int"),
    ("true ? [] : [1]", "list(int)"),
    ("type(1)", "type(int)"),
    ("timestamp(1) - timestamp(0)", "duration"),
    ("l.sortBy(e, e)", "list(int)"),
    ("cel.bind(n, l, n)", "list(int)"),
    ("x.a == 1", "bool"),
    ("x.a + 1", "int"),
]


@pytest.mark.parametrize(
    ("source", "expected"), [pytest.param(*each, id=each[0]) for each in TYPES]
)
def test_the_checker_knows_the_type_of_the_result(source: str, expected: str) -> None:
    assert str(_ENVIRONMENT.compile(source).result_type) == expected


def test_the_variables_that_an_expression_mentions_are_known() -> None:
    program = _ENVIRONMENT.compile("l.all(s, s > i) && cel.bind(m, 1, m == 1)")
    assert program.variables == {"l", "i"}


def test_values_of_types_keep_them() -> None:
    assert type(_ENVIRONMENT.compile("1u + 2u").evaluate({})) is Uint
    assert type(_ENVIRONMENT.compile("2 * 3").evaluate({})) is int


COSTS = [
    ("i", 1),
    ("x.a", 2),
    ("i == 3", 2),
    ("1 + 2", 1),
    ("has(x.a)", 1),
    ("[1, 2]", 10),
    ("{'a': 1}", 30),
    ("s.startsWith('h')", 2),
    ("1 in l", 4),
    ("true && false", 0),
    ("s.matches('^h')", 2),
]


@pytest.mark.parametrize(("source", "cost"), [pytest.param(*each, id=each[0]) for each in COSTS])
def test_an_evaluation_costs_what_cel_go_reckons(source: str, cost: int) -> None:
    assert _ENVIRONMENT.compile(source).outcome(_VARIABLES).cost == cost


def test_an_evaluation_ends_at_its_limit() -> None:
    program = _ENVIRONMENT.compile("true || l.all(a, l.all(b, a + b > 0))")
    assert program.evaluate(_VARIABLES, limit=10) is True
    program = _ENVIRONMENT.compile("l.all(a, l.all(b, a + b > 0)) || true")
    with pytest.raises(EvaluationError, match="operation cancelled: actual cost limit exceeded"):
        program.evaluate(_VARIABLES, limit=10)


def test_an_expression_is_compiled_once() -> None:
    environment = Environment({"i": INT})
    program = environment.compile("i + 1")
    assert environment.compile("i + 1") is program


def test_compiled_programs_are_bounded() -> None:
    environment = Environment({})
    first = environment.compile("0")
    for number in range(1, 600):
        environment.compile(str(number))
    assert environment.compile("599") is environment.compile("599")
    assert environment.compile("0") is not first


def test_values_of_any_depth_end_in_an_answer() -> None:
    def nested() -> list[Any]:
        value: list[Any] = []
        for _ in range(20_000):
            value = [value]
        return value

    program = _ENVIRONMENT.compile("x == d")
    with pytest.raises(EvaluationError, match="nested too deep"):
        program.evaluate({"x": nested(), "d": nested()})

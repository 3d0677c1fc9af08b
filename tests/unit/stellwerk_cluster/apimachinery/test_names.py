import pytest

from stellwerk_cluster.apimachinery.names import (
    address_errors,
    label_errors,
    label_value_errors,
    qualified_name_errors,
    subdomain_errors,
)


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        pytest.param(label_errors("a-1"), (), id="a label"),
        pytest.param(subdomain_errors("a.b-1"), (), id="a subdomain"),
        pytest.param(label_value_errors(""), (), id="an empty label value"),
        pytest.param(qualified_name_errors("example.com/My.Name"), (), id="a qualified name"),
        pytest.param(
            label_errors("a" * 64), ("must be no more than 63 characters",), id="a long label"
        ),
        pytest.param(
            subdomain_errors("a" * 254),
            ("must be no more than 253 characters",),
            id="a long subdomain",
        ),
        pytest.param(
            label_value_errors("a" * 64), ("must be no more than 63 bytes",), id="a long value"
        ),
        pytest.param(
            qualified_name_errors("a" * 64),
            ("name part must be no more than 63 characters",),
            id="a long name part",
        ),
        pytest.param(
            qualified_name_errors("/name"), ("prefix part must be non-empty",), id="an empty prefix"
        ),
    ],
)
def test_what_is_wrong_is_worded_as_the_api_does(
    errors: tuple[str, ...], text: tuple[str, ...]
) -> None:
    assert errors == text


def test_a_malformed_label_is_answered_with_its_regular_expression() -> None:
    (error,) = label_errors("A")
    assert error.endswith("regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')")


@pytest.mark.parametrize("name", ["10.0.0.1", "2001:db8::1", "fe80::42:1dff:fe84:f9e2"])
def test_an_address_in_its_canonical_form_is_the_name_of_one(name: str) -> None:
    assert address_errors(name) == ()


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("example.com", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ("010.0.0.1", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ("fe80::1%eth0", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ("::ffff:10.0.0.1", "must not be an IPv4-mapped IPv6 address"),
        ("2001:DB8::1", 'must be in canonical form ("2001:db8::1")'),
    ],
)
def test_other_texts_are_no_names_of_addresses(name: str, error: str) -> None:
    assert address_errors(name) == (error,)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk_kube.quantity import canonical_quantity, parse_quantity
from stellwerk_kube.schema.decoder import SCHEMA_ALTERNATIVES, decode, zero
from stellwerk_kube.schema.mismatches import DecodeError
from stellwerk_kube.schema.types import types


@pytest.mark.parametrize(
    ("given_text", "canonical"),
    [
        ("1024Mi", "1Gi"),
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1000", "1k"),
        ("0.5Gi", "512Mi"),
        ("1.5Gi", "1536Mi"),
        ("512Ki", "512Ki"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("0", "0"),
        ("-1", "-1"),
        (2, "2"),
    ],
)
def test_quantities_are_stored_in_canonical_form(given_text: str | float, canonical: str) -> None:
    assert canonical_quantity(given_text) == canonical


@given(st.integers(0, 10**12), st.sampled_from(["", "m", "k", "Ki", "Mi", "M", "e3"]))
def test_the_canonical_form_names_the_same_amount(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    assert parse_quantity(canonical_quantity(text)) == parse_quantity(text)
    assert canonical_quantity(canonical_quantity(text)) == canonical_quantity(text)


def test_unknown_fields_are_named_with_their_path() -> None:
    body = {"metadata": {"labelz": 1}, "spec": {"containers": [{"name": "c", "imagee": "x"}]}}
    _, unknown = decode("Pod", body)
    assert unknown == ["metadata.labelz", "spec.containers[0].imagee"]


def test_zero_values_count_as_absent_unless_the_field_is_a_pointer() -> None:
    body = {"spec": {"hostNetwork": False, "hostname": "", "priority": 0, "containers": []}}
    decoded, _ = decode("Pod", body)
    assert decoded["spec"] == {"priority": 0, "containers": None}


def test_the_wrong_type_is_told_with_its_field() -> None:
    text = (
        "cannot unmarshal string into Go struct field PodSpec.spec.containers of type "
        "\\[\\]v1.Container"
    )
    with pytest.raises(DecodeError, match=text):
        decode("Pod", {"spec": {"containers": "c"}})


@pytest.mark.parametrize("type_name", sorted(types()))
def test_every_type_can_be_decoded_from_nothing(type_name: str) -> None:
    decoded, unknown = decode(type_name, {})
    assert unknown == []
    assert decoded == zero(type_name)


def test_every_field_has_a_type_that_exists() -> None:
    scalars = {"string", "int", "bool", "float", "any", "bytes", "Quantity", "IntOrString", "Time"}
    scalars |= {"MicroTime", "JSON", *SCHEMA_ALTERNATIVES}
    for fields in types().values():
        for field in fields.values():
            assert field.element in types() or field.element in scalars


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("0001-01-01T00:00:05+00:00", "0001-01-01T00:00:05"),
        ("0987-06-05T04:03:02+01:00", "0987-06-05T03:03:02"),
    ],
)
def test_years_have_four_digits(sent: str, shown: str) -> None:
    spec = {"renewTime": f"{sent[:19]}.000000{sent[19:]}"}
    decoded, _ = decode("Lease", {"metadata": {"deletionTimestamp": sent}, "spec": spec})
    assert decoded["metadata"]["deletionTimestamp"] == f"{shown}Z"
    assert decoded["spec"]["renewTime"] == f"{shown}.000000Z"

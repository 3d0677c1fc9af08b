"""Credentials in configuration: checked as texts, shown as stars, found where they stand."""

import orjson
import pytest

from stellwerk.profiles.spec.config_model import Secret, inline_credentials
from stellwerk.profiles.spec.profile import parse_spec
from stellwerk_kube.errors import ProfileError

INLINE = {
    "schedulerName": "s",
    "extenders": [
        {"urlPrefix": "https://user:hunter2@gpu.tools.svc/x", "filterVerb": "filter"},
        {
            "urlPrefix": "https://gpu.tools.svc/y",
            "filterVerb": "filter",
            "tlsConfig": {"certData": "YQ==", "keyData": "aHVudGVyMg=="},
        },
    ],
}


def test_nothing_that_prints_a_profile_shows_a_credential() -> None:
    spec = parse_spec(INLINE)
    for text in (repr(spec), str(spec), spec.model_dump_json(), f"{spec.extenders[0].url_prefix}"):
        assert "hunter2" not in text
        assert "aHVudGVyMg" not in text
    assert str(Secret("hunter2")) == repr(Secret("hunter2")) == "***"
    with pytest.raises(TypeError):
        orjson.dumps(Secret("hunter2"))


def test_secrets_are_equal_as_what_they_hide() -> None:
    assert parse_spec(INLINE) == parse_spec(INLINE)
    assert Secret("a") == Secret("a") != Secret("b")
    assert len({Secret("a"), Secret("a")}) == 1
    assert not Secret("")
    assert Secret("a").reveal() == "a"


def test_fields_with_credentials_are_named_and_no_others() -> None:
    assert list(inline_credentials(parse_spec(INLINE), "spec")) == [
        "spec.extenders[0].urlPrefix",
        "spec.extenders[1].tlsConfig.keyData",
    ]


def test_a_credential_is_held_to_the_rules_of_a_text() -> None:
    with pytest.raises(ProfileError, match=r"spec\.extenders\[0\]\.urlPrefix"):
        parse_spec({"schedulerName": "s", "extenders": [{"urlPrefix": "no url"}]})
    with pytest.raises(ProfileError) as refused:
        parse_spec(
            {
                "schedulerName": "s",
                "extenders": [
                    {
                        "urlPrefix": "http://user:hunter2@x",
                        "secretRef": {"namespace": "n", "name": "x"},
                    }
                ],
            }
        )
    assert "secretRef: not allowed together with a user in urlPrefix" in str(refused.value)
    assert "hunter2" not in str(refused.value)

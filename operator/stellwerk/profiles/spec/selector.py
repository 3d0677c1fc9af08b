"""`spec.selector` of a SchedulerProfile: pods that it schedules although they do not name it.

`spec_fields` has it as a field. The selectors of all profiles together, which find the profile of a
pod, are `world/profile_selectors.py`. Invariant: what a selector says of one pod depends on the
pod's schedulerName and labels and on the labels of its namespace, and on nothing else.
"""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from stellwerk.models.scheduling_spec import DEFAULT_SCHEDULER_NAME
from stellwerk.profiles.spec.config_model import ConfigModel, Items, QualifiedName, invalid
from stellwerk_kube.names import is_label_value, is_qualified_name
from stellwerk_kube.selectors import LabelSelector, Requirement

MAX_SCHEDULER_NAMES: Final = 16
"""schedulerNames of one selector. It and the next three bound what evaluating a selector costs."""
MAX_LABELS: Final = 32
"""Labels in matchLabels of one selector."""
MAX_EXPRESSIONS: Final = 32
"""Expressions in matchExpressions of one selector."""
MAX_VALUES: Final = 256
"""Values of one expression."""
_MAX_KEY_CHARACTERS: Final = 317
"""Characters of a label's key: a subdomain of 253, a slash and a name of 63."""
_MAX_VALUE_CHARACTERS: Final = 63
"""Characters of a label's value, and of a schedulerName."""

SchedulerName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=_MAX_VALUE_CHARACTERS,
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    ),
]


def _label_value(value: str) -> str:
    if not is_label_value(value):
        raise invalid("", f'"{value}" cannot be the value of a label')
    return value


LabelKey = Annotated[
    QualifiedName,
    Field(
        min_length=1,
        max_length=_MAX_KEY_CHARACTERS,
        json_schema_extra={
            "pattern": r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?"
            r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
        },
    ),
]
LabelValue = Annotated[
    str,
    AfterValidator(_label_value),
    Field(
        max_length=_MAX_VALUE_CHARACTERS,
        json_schema_extra={"pattern": r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"},
    ),
]


class LabelSelectorRequirement(ConfigModel):
    """One expression: key, operator, values."""

    key: LabelKey
    """Key of the label."""

    operator: Annotated[
        Literal["In", "NotIn", "Exists", "DoesNotExist"],
        Field(json_schema_extra={"maxLength": 16}),
    ]
    """Comparison of the label with the values."""

    values: Annotated[Items[LabelValue], Field(max_length=MAX_VALUES)] = ()
    """Values for In and NotIn, at least one. Exists and DoesNotExist have none."""

    @model_validator(mode="after")
    def _has_values_where_it_compares(self) -> "LabelSelectorRequirement":
        compares = self.operator in {"In", "NotIn"}
        if compares and not self.values:
            raise invalid("values", f"{self.operator} needs at least one")
        if not compares and self.values:
            raise invalid("values", f"{self.operator} has none")
        return self


class LabelSelectorSpec(ConfigModel):
    """Labels that have to be there; an empty selector matches everything."""

    match_labels: Annotated[
        dict[str, LabelValue], Field(max_length=MAX_LABELS, default_factory=dict)
    ]
    """Labels with exactly these values."""

    match_expressions: Annotated[
        Items[LabelSelectorRequirement], Field(max_length=MAX_EXPRESSIONS)
    ] = ()
    """Expressions that must all hold, in addition to matchLabels."""

    @model_validator(mode="after")
    def _keys_are_label_keys(self) -> "LabelSelectorSpec":
        for key in self.match_labels:
            if not is_qualified_name(key):
                raise invalid("matchLabels", f'"{key}" cannot be the key of a label')
        return self

    def compiled(self) -> LabelSelector:
        """The selector as it is evaluated."""
        exact = [
            Requirement(key, "In", frozenset({value}))
            for key, value in sorted(self.match_labels.items())
        ]
        others = [
            Requirement(each.key, each.operator, frozenset(each.values))
            for each in self.match_expressions
        ]
        return LabelSelector((*exact, *others))


class ProfileSelector(ConfigModel):
    """Pods that are scheduled by a profile without naming it. All that is said has to match."""

    scheduler_names: (
        Annotated[Items[SchedulerName], Field(min_length=1, max_length=MAX_SCHEDULER_NAMES)] | None
    ) = None
    """Only pods whose spec.schedulerName is one of these. Unset selects pods that name none; the
    API server sets default-scheduler for them. No other scheduler may serve these names."""

    namespace_selector: LabelSelectorSpec | None = None
    """Only pods in namespaces with these labels."""

    pod_selector: LabelSelectorSpec | None = None
    """Only pods with these labels."""

    @model_validator(mode="after")
    def _says_something(self) -> "ProfileSelector":
        said = (self.scheduler_names, self.namespace_selector, self.pod_selector)
        if all(each is None for each in said):
            raise invalid("", "needs schedulerNames, namespaceSelector or podSelector")
        names = self.scheduler_names or ()
        for index, name in enumerate(names):
            if name in names[:index]:
                raise invalid(f"schedulerNames[{index}]", f'duplicate "{name}"')
        return self


@dataclass(frozen=True, slots=True)
class PodsSelected:
    """A profile's selector as it is evaluated."""

    profile_name: str
    """The schedulerName of the profile."""
    scheduler_names: tuple[str, ...]
    namespaces: LabelSelector
    pods: LabelSelector

    @classmethod
    def by(
        cls, profile_name: str, selector: ProfileSelector, namespaces: LabelSelector | None = None
    ) -> "PodsSelected":
        """The pods that a profile's selector matches, of the namespaces whose pods it takes."""
        everything = LabelSelectorSpec.model_validate({})
        selected = (selector.namespace_selector or everything).compiled()
        if namespaces is not None:
            selected = LabelSelector((*selected.requirements, *namespaces.requirements))
        return cls(
            profile_name,
            selector.scheduler_names or (DEFAULT_SCHEDULER_NAME,),
            selected,
            (selector.pod_selector or everything).compiled(),
        )

    @property
    def reads_namespace(self) -> bool:
        """Whether a namespace's labels matter."""
        return bool(self.namespaces.requirements)

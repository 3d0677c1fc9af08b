"""DeviceTaintRules: taints that administrators give to devices of slices.

The pools of DynamicResources and the listing of devices each have one `TaintRules`, which follows
the object store. Invariant: after `refresh`, `applied_to` gives the taints of all rules that the
store shows and that can be parsed.
"""

import logging
from collections.abc import Sequence
from typing import Final

from stellwerk.framework.services import ObjectStore
from stellwerk.snapshot.columns import ChangeCursor
from stellwerk_kube.compatibility import Compatibility, ReleaseRule
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.resource_slice import Slice, TaintRule, parse_taint_rule, tainted_slice

logger = logging.getLogger(__name__)
TAINT_RULE: Final = "DeviceTaintRule"


class TaintRules:
    """DeviceTaintRules by name: taints that administrators give to devices of slices."""

    def __init__(self, objects: ObjectStore, release: Compatibility) -> None:
        """Follow the rules of a store, as far as the release observes them."""
        self._objects = objects
        self._are_watched = ReleaseRule.DEVICE_TAINT_RULES in release
        self._needs_selector = ReleaseRule.ABSENT_SELECTOR_TAINTS_NOTHING in release
        self._cursor = ChangeCursor(objects.changes(TAINT_RULE))
        self._rules: dict[str, TaintRule] = {}

    def refresh(self) -> Sequence[TaintRule]:
        """Take over what the store shows now; returns the rules that came, went or changed."""
        if not self._are_watched or self._cursor.current:
            return ()
        self._cursor.catch_up()
        before, self._rules = self._rules, {}
        for obj in sorted(
            self._objects.list(TAINT_RULE), key=lambda each: str(each["metadata"]["name"])
        ):
            rule = _parsed_rule(obj)
            if rule is not None and (rule.has_selector or not self._needs_selector):
                self._rules[str(obj["metadata"]["name"])] = rule
        changed = []
        for name in {**before, **self._rules}:
            old, new = before.get(name), self._rules.get(name)
            if old != new:
                changed += [rule for rule in (old, new) if rule is not None]
        return changed

    def applied_to(self, each: Slice) -> Slice:
        """The slice with the taints that the rules give to its devices."""
        rules = [rule for rule in self._rules.values() if rule.may_select(each.pool)]
        return tainted_slice(each, rules) if rules else each


def _parsed_rule(obj: JsonObject) -> TaintRule | None:
    """The rule; None: it is malformed, and as good as absent."""
    try:
        return parse_taint_rule(obj)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        logger.warning("DeviceTaintRule %s is left out: %r", obj["metadata"]["name"], error)
        return None

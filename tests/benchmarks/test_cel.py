"""What CEL rules cost to compile and to evaluate.

`pytest -m benchmark -s tests/benchmarks/test_cel.py` shows it.
"""

import time

import pytest

from stellwerk_kube.cel.environment import Environment
from stellwerk_kube.cel.types import DYN, INT, STRING, ObjectType, list_of

pytestmark = pytest.mark.benchmark

SELF = ObjectType("object", (), {"size": INT, "max": INT, "color": STRING, "list": list_of(INT)})
OBJECT = {"size": 5, "max": 10, "color": "red", "list": list(range(100))}
DEVICE = {
    "driver": "gpu.example.com",
    "attributes": {"gpu.example.com": {"model": "A100", "memory": 80}},
}
BUDGET_MICROSECONDS = 400
EXPRESSIONS = (
    "self.size <= self.max",
    "!has(oldSelf.color) || self.color == oldSelf.color",
    "self.color.matches('^[a-z]+$')",
    "self.list.all(x, x >= 0)",
    "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].memory >= 40",
)


@pytest.mark.parametrize("source", EXPRESSIONS)
def test_a_typical_expression_is_evaluated_within_its_budget(source: str) -> None:
    environment = Environment({"self": SELF, "oldSelf": SELF, "device": DYN})
    environment.compile("true")  # as the first one it is slower
    began = time.process_time()
    program = environment.compile(source)
    compiled = time.process_time() - began
    variables = {"self": OBJECT, "oldSelf": OBJECT, "device": DEVICE}
    rounds = 2_000
    began = time.process_time()
    for _ in range(rounds):
        program.evaluate(variables)
    each = (time.process_time() - began) / rounds
    print(f"{1 / each:10,.0f}/s  compiled in {compiled * 1e3:.2f} ms  {source}")
    assert each * 1e6 < BUDGET_MICROSECONDS

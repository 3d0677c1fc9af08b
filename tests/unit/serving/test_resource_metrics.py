"""What /metrics/resources says of a pod."""

from prometheus_client.parser import text_string_to_metric_families

from stellwerk.serving.resource_metrics import resource_metrics
from tests.support.builders import pod_info

_LABELS = 'namespace="default",pod="web",node="n1",scheduler="default-scheduler",priority="0"'


def text_of(**fields: object) -> list[str]:
    pod = pod_info("web", node_name="n1", uid="u1", **fields)
    lines = b"".join(resource_metrics([pod])).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_amounts_keep_all_their_digits() -> None:
    assert text_of(cpu="1234567m", memory="335544321") == [
        f'kube_pod_resource_request{{{_LABELS},resource="cpu",unit="cores"}} 1234.567',
        f'kube_pod_resource_request{{{_LABELS},resource="memory",unit="bytes"}} 335544321',
    ]


def test_the_overhead_of_a_runtime_class_stands_beside_the_requests_that_contain_it() -> None:
    lines = text_of(cpu="2", memory="200Mi", overhead={"cpu": "250m", "memory": "120Mi"})
    labels = 'namespace="default",pod="web",uid="u1"'
    assert f"kube_pod_overhead_cpu_cores{{{labels}}} 0.25" in lines
    assert f"kube_pod_overhead_memory_bytes{{{labels}}} {120 << 20}" in lines
    assert f'kube_pod_resource_request{{{_LABELS},resource="cpu",unit="cores"}} 2.25' in lines


def test_no_text_of_a_pod_ends_a_label_or_begins_a_line() -> None:
    forged = 'x"} 1\nforged_metric{a="b'
    mark = f"{forged}\\\x1b[2J\u202e"
    lines = text_of(cpu="1", scheduler_name=mark)
    assert len(lines) == 1
    assert all(each.isprintable() for each in lines)
    text = f"# TYPE kube_pod_resource_request gauge\n{lines[0]}\n"
    (family,) = text_string_to_metric_families(text)
    (sample,) = family.samples
    assert sample.name == "kube_pod_resource_request"
    assert sample.labels["scheduler"] == mark.replace("\n", " ").replace("\x1b", " ").replace(
        "\u202e", " "
    )

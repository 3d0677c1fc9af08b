"""CSV files of traces: what is read, and how a mistake is named."""

import lzma
from pathlib import Path

import pytest

from stellwerk_kube.errors import ConfigurationError
from stellwerk_simulation.trace import TraceNode, TracePod, read_nodes, read_pods

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,P100\nn2,96000,1,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\n"
    "a,1000,2048,1,460,V100M16|V100M32,LS\nb,1,1,0,300,T4,\nc,1,1,8,1200,,BE\n"
)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_nodes_and_pods(tmp_path: Path) -> None:
    assert read_nodes(written(tmp_path / "nodes.csv", NODES)) == [
        TraceNode("n1", 64_000, 262_144, 2, "P100"),
        TraceNode("n2", 96_000, 1, 0, ""),
    ]
    assert read_pods(written(tmp_path / "pods.csv", PODS)) == [
        TracePod("a", 1000, 2048, 1, 460, ("V100M16", "V100M32")),
        TracePod("b", 1, 1, 0, 0, ()),
        TracePod("c", 1, 1, 8, 1000, ()),
    ]


def test_fields_in_quotes_and_files_with_a_byte_order_mark(tmp_path: Path) -> None:
    text = '\ufeff"name","cpu_milli",memory_mib,num_gpu,gpu_milli,gpu_spec\r\n'
    text += '"a, b",1000,"2048",1,460,"V100M16|V100M32"\r\n\r\n'
    [pod] = read_pods(written(tmp_path / "pods.csv", text))
    assert pod == TracePod("a, b", 1000, 2048, 1, 460, ("V100M16", "V100M32"))


def test_xz_files_are_unpacked(tmp_path: Path) -> None:
    packed = tmp_path / "nodes.csv.xz"
    packed.write_bytes(lzma.compress(NODES.encode()))
    assert len(read_nodes(packed)) == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: there is no column sn"),
        (
            "timestamp,machine_id,cpus\n0,1,2\n",
            "a row needs sn, cpu_milli, memory_mib, gpu, model, as the openb traces have them, ",
        ),
        ("sn,cpu_milli,memory_mib,gpu\nn,1,1,1\n", "line 1: there is no column model"),
        ("sn,cpu_milli,memory_mib,gpu,model\n", "there is no row"),
        (NODES + "n3,x,1,1,T4\n", "line 4, column cpu_milli: 'x' is not a whole number"),
        (NODES + "n3,1,-1,1,T4\n", "line 4, column memory_mib: '-1' is not a whole number"),
        (NODES + f"n3,1,{'9' * 9999},1,T4\n", "line 4, column memory_mib: 9999"),
        (NODES + "n3,1,1,65,T4\n", "line 4, column gpu: 65 is more than 64"),
        (NODES + "n3,1,1,1\n" + "n3,1,1,1,\n", "line 5: the name n3 stands in line 4 already"),
        (NODES + ",1,1,1,T4\n", "line 4, column sn: is empty"),
        (NODES + "n3,1,1,1,T 4\n", "line 4, column model: 'T 4' cannot be the value of a label"),
        (NODES + "n3,1,1,1,T4,more\n", "line 4: more fields than columns"),
        (NODES + "n\0,1,1,1,T4\n", "line 4, column sn: 'n\\x00' cannot be a name"),
        (NODES + "n" * 254 + ",1,1,1,T4\n", "column sn: 'nnn"),
        ("sn," + NODES, "line 1: the column sn occurs twice"),
        (NODES + '"n3,1,1,1,T4\n', "unexpected end of data"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_column(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = written(tmp_path / "nodes.csv", text)
    with pytest.raises(ConfigurationError) as raised:
        read_nodes(path)
    assert str(path) in str(raised.value)
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("d,1,1,1,0,,", "line 5, column gpu_milli: is 0 where num_gpu is not"),
        ("d,1,1,2,500,,", "line 5, column gpu_milli: 500 of each of 2 devices"),
        ("d,1,1,1,500,a b,", "line 5, column gpu_spec: 'a b' cannot be the value of a label"),
    ],
)
def test_a_request_that_cannot_be_is_named(tmp_path: Path, row: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read_pods(written(tmp_path / "pods.csv", PODS + row + "\n"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*absent\.csv: No such file"):
        read_nodes(tmp_path / "absent.csv")
    for content in (b"no archive", lzma.compress(NODES.encode())[:40]):
        packed = tmp_path / "broken.csv.xz"
        packed.write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"broken.csv.xz: not an \.xz file"):
            read_nodes(packed)
    latin = tmp_path / "latin.csv"
    latin.write_bytes(NODES.encode() + b"\xe4")
    with pytest.raises(ConfigurationError, match="line 4: not UTF-8"):
        read_nodes(latin)

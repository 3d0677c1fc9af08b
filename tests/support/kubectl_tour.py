"""What kubectl does on the embedded cluster, command by command: run by tests, shown in the docs.

A step is one line of a shell; `{pod}` is a pod of the deployment `web`. The steps run in this order
in one namespace. `python -m tests.support.kubectl_tour` writes the table of the docs anew.
"""

import re
import shlex
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.kubectls import Kubectl
from tests.support.repository import ROOT

HOLLOW = "nodes of the embedded cluster are hollow and run no processes"

FILES = {
    "web.yaml": """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeName: node-1
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: registry.example/web:1, resources: {requests: {cpu: 100m}}}]
""",
    "list.yaml": """\
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: one}, data: {a: b}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: two}, data: {a: b}}
""",
    "typo.yaml": """\
apiVersion: v1
kind: ConfigMap
metadata: {name: typo}
dada: {a: b}
""",
    "shared.yaml": """\
apiVersion: v1
kind: ConfigMap
metadata: {name: shared}
data: {a: "2"}
""",
    "x.txt": "x\n",
    "access.yaml": """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: watcher}
rules: [{apiGroups: [""], resources: [pods], verbs: [watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: watchers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: watcher}
subjects: [{kind: User, name: erin, apiGroup: rbac.authorization.k8s.io}]
""",
}


@dataclass(frozen=True)
class Step:
    """A command and what must be in its output."""

    command: str
    says: str
    fails: bool = False
    since: int = 27
    until: int = 99
    stdin_of: str = ""
    """A command whose output goes into this one."""
    note: str = ""
    """What the table in the docs adds."""

    @property
    def versions(self) -> str:
        if self.since > 27:
            return f"from 1.{self.since}"
        return f"up to 1.{self.until}" if self.until < 99 else "all"


STEPS = (
    # Writing lists and single objects.
    Step("apply -f web.yaml", "deployment.apps/web created"),
    Step("apply -f web.yaml", "deployment.apps/web unchanged", note="and changes nothing"),
    Step("apply -f list.yaml", "configmap/two created", note="a manifest of kind List"),
    Step(
        "apply -f -",
        "configmap/two",
        stdin_of="get configmap one two -o yaml",
        note="a List again",
    ),
    Step("rollout status deployment/web --timeout=15s", "successfully rolled out"),
    # Creating: protobuf from 1.32 on.
    Step("create deployment idle --image=registry.example/x:1 --replicas=0", "created"),
    Step("create namespace other-{namespace}", "created"),
    Step("create configmap settings --from-literal=a=b", "created"),
    Step("create secret generic keys --from-literal=a=b", "created"),
    Step("create serviceaccount robot", "created"),
    Step("create job once --image=registry.example/x:1 -- true", "created"),
    Step(
        "create cronjob often --image=registry.example/x:1 --schedule='* * * * *' -- true",
        "created",
        note="stored; no controller makes its jobs",
    ),
    Step("create job now --from=cronjob/often", "created"),
    Step("create quota small --hard=services=100,pods=100", "created", note="enforced"),
    Step("create poddisruptionbudget web --selector=app=web --min-available=0", "created"),
    Step("create priorityclass high-{namespace} --value=10", "created"),
    Step("create role reader --verb=get --resource=pods", "created", note="stored, not enforced"),
    Step("create rolebinding readers --role=reader --user=bob", "created"),
    Step("create clusterrole reader-{namespace} --verb=get --resource=nodes", "created"),
    Step(
        "create clusterrolebinding readers-{namespace} --clusterrole=reader-{namespace} --group=x",
        "created",
    ),
    Step("create service clusterip web --tcp=80:8080", "created"),
    Step("create service nodeport doors --tcp=80", "created"),
    Step("create service externalname away --external-name=a.example", "created"),
    Step(
        "create ingress front --rule=a.example/=web:80",
        "created",
        note="stored; nothing serves it",
    ),
    Step("create token robot", "eyJ", note="kubectl shows it over TLS alone"),
    Step("create configmap dry --from-literal=a=b --dry-run=server", "created (server dry run)"),
    Step("run single --image=registry.example/x:1 --restart=Never", "pod/single created"),
    Step("expose deployment web --port=80 --name=exposed", "service/exposed exposed"),
    Step(
        "autoscale deployment web --min=1 --max=3 --cpu-percent=50",
        "autoscaled",
        note="scales by what pods are said to use",
    ),
    Step("get hpa web", "Deployment/web"),
    Step("get ingress front", "a.example"),
    Step("get cronjob often", "* * * * *"),
    Step("get rolebindings -o wide", "Role/reader"),
    Step("describe quota small", "Name:"),
    # Who am I, what may I do.
    Step("auth can-i create pods", "yes"),
    Step("auth can-i --list", "[*]"),
    Step("auth whoami", "system:masters", since=28),
    Step("auth whoami", "APISelfSubjectReview", fails=True, until=27, note="1.27 asks for a beta"),
    # What needs a process.
    Step("exec {pod} -- true", HOLLOW, fails=True),
    Step("attach {pod}", HOLLOW, fails=True),
    Step("cp x.txt {pod}:/x.txt", HOLLOW, fails=True),
    Step("cp {pod}:/x.txt y.txt", HOLLOW, fails=True),
    Step("port-forward {pod} 18080:80", HOLLOW, fails=True),
    Step("logs {pod}", "scheduled to node-", note="the story of the pod, as its kubelet saw it"),
    Step("logs {pod} --previous", "previous terminated container", fails=True),
    Step("get componentstatuses", "controller-manager   Healthy"),
    Step("top nodes", "node-1", note="what pods and nodes use by their annotations"),
    Step("top pods", "web-"),
    Step("top pod {pod} --containers", "0m"),
    # Looking and waiting.
    Step("events", "ScalingReplicaSet"),
    Step("get events", "ScalingReplicaSet"),
    Step("wait --for=condition=Ready pod/{pod} --timeout=10s", "condition met"),
    Step("wait --for=jsonpath={{.status.phase}}=Running pod/{pod} --timeout=10s", "condition met"),
    Step("wait --for=condition=Available deployment/web --timeout=10s", "condition met"),
    Step("explain pods.spec.nodeSelector", "<map[string]string>"),
    Step("explain cronjob.spec.schedule", "<string>"),
    Step("api-resources --api-group=batch", "cronjobs"),
    Step("get all", "deployment.apps/web"),
    # Changing.
    Step("label pod {pod} x=y", "labeled"),
    Step("label pod {pod} x=z", "already has a value", fails=True),
    Step("annotate pod {pod} note=1", " annotate"),
    Step("patch deployment web --subresource=status --type=merge -p '{{}}'", "web patched"),
    Step(
        "patch deployment web --subresource=scale --type=merge "
        """-p '{{"spec":{{"replicas":1}}}}'""",
        "web patched",
    ),
    Step("scale deployment web --replicas=2", "deployment.apps/web scaled"),
    Step("set image deployment/web c=registry.example/web:2", "image updated"),
    Step("rollout restart deployment/web", "restarted"),
    Step("rollout history deployment/web", "REVISION"),
    Step("rollout undo deployment/web", "rolled back"),
    Step("rollout status deployment/web --timeout=15s", "successfully rolled out"),
    Step("create -f web.yaml --dry-run=server", "already exists", fails=True),
    Step("replace -f web.yaml --dry-run=server", "replaced (server dry run)"),
    Step("apply -f web.yaml --dry-run=server", "(server dry run)"),
    Step("replace -f web.yaml", "replaced"),
    Step("apply -f typo.yaml", 'unknown field "dada"', fails=True),
    Step("create -f typo.yaml --validate=warn", 'unknown field "dada"'),
    # Nodes.
    Step("taint node node-2 dedicated=x:NoSchedule", "tainted"),
    Step("taint node node-2 dedicated-", "untainted"),
    Step("cordon node-2", "cordoned"),
    Step("uncordon node-2", "uncordoned"),
    Step("drain node-2 --ignore-daemonsets --force --timeout=15s", "drained"),
    Step("drain node-3 --ignore-daemonsets --dry-run=server", "drained (server dry run)"),
    Step("uncordon node-2", "uncordoned"),
    # Who owns which field.
    Step(
        "apply -f web.yaml",
        "deployment.apps/web configured",
        note="and notes what was applied, which `replace` forgot",
    ),
    Step("apply view-last-applied deployment web", "replicas: 2"),
    Step("create configmap shared --from-literal=a=1", "configmap/shared created"),
    Step(
        "apply --server-side -f shared.yaml",
        'conflict with "kubectl-create" using v1: .data.a',
        fails=True,
        note="another owner gave the field another value",
    ),
    Step(
        "apply --server-side --force-conflicts -f shared.yaml",
        "configmap/shared serverside-applied",
        note="and takes the field",
    ),
    Step("apply --server-side -f shared.yaml", "configmap/shared serverside-applied"),
    Step(
        "apply --server-side --field-manager=other -f shared.yaml --dry-run=server",
        "serverside-applied (server dry run)",
        note="equal values are shared",
    ),
    Step("get configmap shared -o yaml --show-managed-fields", "operation: Apply"),
    Step("diff --server-side -f shared.yaml", ""),
    Step(
        "apply --server-side -f web.yaml",
        "deployment.apps/web serverside-applied",
        note="takes over what `apply` applied before",
    ),
    Step("apply -f web.yaml", "deployment.apps/web"),
    Step(
        """patch configmap shared --type=json -p '[{"op":"test","path":"/data/a","value":"1"}]'""",
        "The request is invalid",
        fails=True,
    ),
    Step(
        """patch configmap shared --type=json -p '[{"op":"add","path":"/data/b","value":"c"}]'""",
        "configmap/shared patched",
    ),
    # What is not there.
    Step("delete deployment web --timeout=15s", "deleted"),
    Step("delete namespace other-{namespace} --timeout=15s", "deleted"),
)


ACCESS_STEPS = (
    Step("auth whoami", "system:masters", since=28),
    Step("create serviceaccount robot", "created"),
    Step("create token robot", "eyJ", note="signed by the cluster"),
    Step("auth whoami --token={token}", ":robot", since=28),
    Step("get pods --token={token}", "system:serviceaccount:", fails=True),
    Step("get pods --token=wrong", "must be logged in to the server", fails=True),
    Step("create token robot --duration=1m", "may not specify a duration less", fails=True),
    Step("create token robot --audience=vault", "eyJ", note="opens nothing here"),
    Step("auth can-i list pods --as=bob", "no", fails=True),
    Step("get pods --as=bob", 'User "bob" cannot list resource "pods"', fails=True),
    Step("get nodes --as=bob", "at the cluster scope", fails=True),
    Step("create role reader --verb=get,list --resource=pods", "created"),
    Step("create rolebinding readers --role=reader --group=dev", "created"),
    Step("auth can-i list pods --as=bob --as-group=dev", "yes"),
    Step("get pods --as=bob --as-group=dev", "No resources found"),
    Step("delete pod x --as=bob --as-group=dev", "cannot delete resource", fails=True),
    Step("auth can-i --list --as=bob --as-group=dev", "[get list]"),
    Step("auth can-i get pods --subresource=log --as=bob --as-group=dev", "no", fails=True),
    Step("auth can-i get /version --as=bob", "yes"),
    Step("auth can-i get /metrics --as=bob", "no", fails=True),
    Step("create rolebinding editors --clusterrole=edit --user=carol", "created"),
    Step("create configmap hers --from-literal=a=b --as=carol", "created"),
    Step("create role mine --verb=get --resource=pods --as=carol", "cannot create", fails=True),
    Step("create rolebinding admins --clusterrole=admin --user=dave", "created"),
    Step("create role his --verb=get --resource=pods --as=dave", "created"),
    Step(
        "create role more --verb=get --resource=nodes --as=dave", "not currently held", fails=True
    ),
    Step("auth reconcile -f access.yaml", "reconciled"),
    Step("auth reconcile -f access.yaml", "reconciled", note="and changes nothing"),
    Step("auth can-i watch pods --as=erin", "yes"),
    Step("run single --image=registry.example/x:1", "created"),
    Step(
        "get pod single -o jsonpath={{.spec.serviceAccountName}}",
        "default",
        note="each pod has a service account, and its token mounted",
    ),
    Step("get configmap kube-root-ca.crt", "kube-root-ca.crt"),
)
"""On a cluster that enforces access rules."""


GROUP_FILE = """\
apiVersion: scheduling.k8s.io/{version}
kind: PodGroup
metadata: {{name: g}}
spec: {{schedulingPolicy: {{gang: {{minCount: 2}}}}}}
"""


def release_steps(release: str) -> tuple[Step, ...]:
    """The steps that depend on the versions, schemas and defaults of a release, in short."""
    return (
        Step("version", f"v{release}."),
        Step("apply -f web.yaml", "deployment.apps/web created"),
        Step("apply -f web.yaml", "deployment.apps/web unchanged"),
        Step("apply -f list.yaml", "configmap/two created"),
        Step("rollout status deployment/web --timeout=15s", "successfully rolled out"),
        Step("create job once --image=registry.example/x:1 -- true", "created"),
        Step("run single --image=registry.example/x:1 --restart=Never", "pod/single created"),
        Step("wait --for=jsonpath={{.status.phase}}=Running pod/{pod} --timeout=10s", "met"),
        Step("describe pod {pod}", "Conditions:"),
        Step("get events", "ScalingReplicaSet"),
        Step("explain pods.spec.schedulingGroup", "podGroupName"),
        Step("api-resources --api-group=resource.k8s.io", "resourceclaims"),
        Step("api-resources --api-group=scheduling.k8s.io", "podgroups"),
        Step("explain podgroups.spec.schedulingPolicy.gang", "minCount"),
        Step("apply -f group.yaml", "podgroup.scheduling.k8s.io/g created"),
        Step("apply -f group.yaml", "podgroup.scheduling.k8s.io/g unchanged"),
        Step(
            "apply --server-side -f group.yaml", "podgroup.scheduling.k8s.io/g serverside-applied"
        ),
        Step("get podgroups g -o yaml", "minCount: 2"),
        Step("label podgroup g x=y", "labeled"),
        Step("delete -f group.yaml --timeout=15s", "deleted"),
        Step("apply -f typo.yaml", 'unknown field "dada"', fails=True),
        Step("scale deployment web --replicas=1", "deployment.apps/web scaled"),
        Step("apply --server-side --force-conflicts -f web.yaml", "web serverside-applied"),
        Step("delete deployment web --timeout=15s", "deleted"),
    )


def take(kubectl: Kubectl, minor: int, steps: tuple[Step, ...] = STEPS) -> list[str]:
    """Run all steps of a version; what went otherwise than said."""
    for name, content in FILES.items():
        (kubectl.home / name).write_text(content)
    return [
        problem
        for step in steps
        if step.since <= minor <= step.until
        for problem in _run(kubectl, step)
    ]


def _run(kubectl: Kubectl, step: Step) -> list[str]:
    stdin = kubectl(*shlex.split(step.stdin_of)) if step.stdin_of else ""
    words = shlex.split(_filled(step.command, kubectl))
    done = kubectl.run(*words, stdin=stdin)
    if (done.code != 0) == step.fails and step.says in done.text:
        return []
    return [f"{step.command}: exit {done.code}, said {done.text!r}"]


def _filled(command: str, kubectl: Kubectl) -> str:
    command = command.replace("{namespace}", kubectl.namespace)
    command = command.replace("{{", "{").replace("}}", "}")
    if "{token}" in command:
        command = command.replace("{token}", kubectl("create", "token", "robot").strip())
    if "{pod}" in command:
        command = command.replace("{pod}", _running_pod(kubectl))
    return command


def _running_pod(kubectl: Kubectl) -> str:
    """A pod of the deployment that stays: rolling out leaves some that are about to go."""
    for _ in range(300):
        pods = kubectl("get", "pods", "-l", "app=web", "--no-headers").splitlines()
        running = sorted(row.split()[0] for row in pods if " Running " in f"{row} ")
        if running:
            return running[0]
        time.sleep(0.1)
    raise AssertionError("no pod of the deployment is running")


def table(steps: tuple[Step, ...] = STEPS) -> str:
    """The steps as a table of docs/embedded-cluster.md."""
    rows = ["| command | kubectl | what happens |", "| --- | --- | --- |"]
    for step in steps:
        shown = re.sub(r"-?\{namespace\}", "", step.command).replace("{{", "{").replace("}}", "}")
        shown = shown.replace("{pod}", "POD").replace("{token}", "TOKEN")
        before = f"{step.stdin_of} \\| kubectl " if step.stdin_of else ""
        outcome = "refused" if step.fails else "works"
        said = f": `{step.says}`" if step.fails else ""
        note = f"; {step.note}" if step.note else ""
        rows.append(f"| `{before}{shown}` | {step.versions} | {outcome}{said}{note} |")
    return "\n".join(rows) + "\n"


def document_with_table(document: Path) -> str:
    """The document with each table between its two marks."""
    text = document.read_text()
    for mark, steps in (("kubectl", STEPS), ("kubectl access", ACCESS_STEPS)):
        before, _, rest = text.partition(f"<!-- {mark}: begin -->\n")
        _old, _, after = rest.partition(f"<!-- {mark}: end -->")
        text = f"{before}<!-- {mark}: begin -->\n{table(steps)}<!-- {mark}: end -->{after}"
    return text


if __name__ == "__main__":
    target = ROOT / "docs" / "embedded-cluster.md"
    target.write_text(document_with_table(target))

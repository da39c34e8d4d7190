#!/usr/bin/env python3
"""The files of deploy/ hold together: what Helm makes of the chart is what Kubernetes understands, and our programs too.

    run.py --helm PROGRAM --bin DIR [--update]

- The chart passes `helm lint`, and is rendered as it is and with everything switched on.
- Every object has the fields of its kind in Kubernetes' own OpenAPI description (api/openapi-spec of its Go module), and no others.
- deploy/kustomize/base/lockstep.yaml is the chart as it is; --update writes it.
- Every option that a container or a unit gives to a program of ours exists.
- The agent is not privileged, the server has no rights at all, neither gets a token of the API server.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHART = ROOT / "deploy" / "helm" / "lockstep"
BASE = ROOT / "deploy" / "kustomize" / "base" / "lockstep.yaml"
KUBERNETES = "k8s.io/kubernetes@v1.34.0"
HEAD = "# Made from the chart of deploy/helm/lockstep: ./dev test deploy --update. Change the chart.\n"
EVERYTHING = ["serviceMonitor.enabled=true", "serviceMonitor.tokenSecret=read", "server.tlsSecret=tls", "server.externalUrl=https://lockstep.example",
              "server.allowedHosts={lockstep.example}", "server.extraArgs={--step-days=14}", "server.storage.className=fast",
              "agent.extraArgs={--names=dcgm}", "server.nodeSelector.role=infra"]  # fmt: skip
PLAIN = ["server.adminTokenSecret=lockstep-admin"]
# Kinds of others, which Kubernetes does not describe.
FOREIGN = {"ServiceMonitor"}


def schema_file() -> pathlib.Path:
    with tempfile.TemporaryDirectory() as folder:
        told = subprocess.run(["go", "mod", "download", "-json", KUBERNETES], cwd=folder, check=True, capture_output=True, text=True).stdout
    return pathlib.Path(json.loads(told)["Dir"]) / "api" / "openapi-spec" / "swagger.json"


def render(helm: str, values: list[str]) -> list[dict]:
    arguments = [helm, "template", "lockstep", CHART, "--namespace", "lockstep", "--kube-version", KUBERNETES.rpartition("@v")[2]]
    for value in values:
        arguments += ["--set", value]
    text = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [one for one in yaml.safe_load_all(text) if one]


class Schemas:
    def __init__(self, path: pathlib.Path):
        self.definitions = json.loads(path.read_text())["definitions"]
        self.kinds = {}
        for name, definition in self.definitions.items():
            for kind in definition.get("x-kubernetes-group-version-kind", []):
                version = f"{kind['group']}/{kind['version']}".lstrip("/")
                self.kinds[version, kind["kind"]] = name

    def wrong(self, thing: object, schema: dict, where: str) -> list[str]:
        if "$ref" in schema:
            schema = self.definitions[schema["$ref"].rsplit("/", 1)[1]]
        if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
            return [] if isinstance(thing, (int, str)) else [f"{where}: neither number nor text"]
        kind = schema.get("type")
        if kind == "string" and not isinstance(thing, str) and "Quantity" not in where:
            return [f"{where}: {thing!r} is no text"]
        if kind == "integer" and (not isinstance(thing, int) or isinstance(thing, bool)):
            return [f"{where}: {thing!r} is no number"]
        if kind == "boolean" and not isinstance(thing, bool):
            return [f"{where}: {thing!r} is neither true nor false"]
        if kind == "array":
            if not isinstance(thing, list):
                return [f"{where}: no list"]
            return [problem for index, item in enumerate(thing) for problem in self.wrong(item, schema["items"], f"{where}[{index}]")]
        if "properties" not in schema:
            if "additionalProperties" in schema and isinstance(thing, dict):
                return [problem for key, item in thing.items() for problem in self.wrong(item, schema["additionalProperties"], f"{where}.{key}")]
            return []
        if not isinstance(thing, dict):
            return [f"{where}: no object"]
        missing = [f"{where}: {name} is missing" for name in schema.get("required", []) if name not in thing]
        unknown = [f"{where}: there is no {name}" for name in thing if name not in schema["properties"]]
        return missing + unknown + [
            problem for name, item in thing.items() if name in schema["properties"]
            for problem in self.wrong(item, schema["properties"][name], f"{where}.{name}")
        ]  # fmt: skip

    def wrong_object(self, thing: dict) -> list[str]:
        name = f"{thing.get('kind')} {thing.get('metadata', {}).get('name')}"
        if thing.get("kind") in FOREIGN:
            return []
        definition = self.kinds.get((thing.get("apiVersion"), thing.get("kind")))
        if definition is None:
            return [f"{name}: Kubernetes has no such kind in {thing.get('apiVersion')}"]
        return self.wrong(thing, self.definitions[definition], name)


def options_of(program: pathlib.Path) -> set[str]:
    return set(re.findall(r"(--[a-z][a-z0-9-]+)", subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout))


def wrong_options(things: list[dict], bins: pathlib.Path) -> list[str]:
    programs = {"server": "lockstepd", "agent": "lockstep-agent"}
    compose = yaml.safe_load((ROOT / "deploy" / "compose" / "compose.yaml").read_text())["services"]
    given = [(container["name"], container["args"]) for thing in things if thing["kind"] in ("StatefulSet", "DaemonSet")
             for container in thing["spec"]["template"]["spec"]["containers"]]  # fmt: skip
    given += [(name, service["command"]) for name, service in compose.items()]
    wrong = []
    for name, arguments in given:
        known = options_of(bins / programs[name])
        wrong += [f"{name}: {programs[name]} has no {one}" for one in (argument.split("=")[0] for argument in arguments) if one not in known]
    for unit, name in (("lockstepd.yaml", "lockstepd"), ("agent.conf", "lockstep-agent")):
        unit, program = ROOT / "deploy" / "systemd" / unit, bins / name
        names = re.findall(r"^(?:#  )?\s*([a-z-]+)(?: =|:) ", unit.read_text(), re.M)
        wrong += [f"{unit.name}: {program.name} has no --{name}" for name in names if f"--{name}" not in options_of(program)]
    return wrong


def wrong_rights(things: list[dict]) -> list[str]:
    wrong = []
    for thing in things:
        if thing["kind"] in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"):
            wrong.append(f"{thing['kind']} {thing['metadata']['name']}: nothing here needs rights")
        if thing["kind"] not in ("StatefulSet", "DaemonSet"):
            continue
        pod = thing["spec"]["template"]["spec"]
        name = thing["metadata"]["name"]
        if pod.get("automountServiceAccountToken") is not False:
            wrong.append(f"{name}: gets a token of the API server")
        for container in pod["containers"]:
            security = container["securityContext"]
            if security.get("privileged") or security.get("allowPrivilegeEscalation") is not False or not security.get("readOnlyRootFilesystem"):
                wrong.append(f"{name}: may do more than it needs")
            if thing["kind"] == "StatefulSet" and (security["capabilities"] != {"drop": ["ALL"]} or not pod["securityContext"]["runAsNonRoot"]):
                wrong.append(f"{name}: the server needs no capability and no root")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--helm", required=True)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    subprocess.run([options.helm, "lint", "--strict", CHART], check=True, stdout=subprocess.DEVNULL)
    schemas = Schemas(schema_file())
    plain, everything = render(options.helm, PLAIN), render(options.helm, EVERYTHING)
    base = HEAD + yaml.safe_dump_all(without_helm(plain), sort_keys=False, width=140)
    if options.update:
        BASE.write_text(base)
    wrong = [] if BASE.is_file() and BASE.read_text() == base else [f"{BASE.relative_to(ROOT)} is not what the chart makes: ./dev test deploy --update"]
    # One mistake of our own has to be seen.
    if not schemas.wrong_object({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"port": []}}):
        wrong.append("an unknown field is not seen")
    for things in (plain, everything, [one for one in yaml.safe_load_all((BASE.parent / "namespace.yaml").read_text())]):
        wrong += [problem for thing in things for problem in schemas.wrong_object(thing)]
        wrong += wrong_rights(things)
    wrong += wrong_options(plain, options.bin) + wrong_options(everything, options.bin)
    kinds = {thing["kind"] for thing in everything}
    wanted = {"StatefulSet", "DaemonSet", "Service", "ServiceAccount", "Secret", "NetworkPolicy", "ServiceMonitor"}
    wrong += [f"the chart has no {kind}" for kind in sorted(wanted - kinds)]
    for problem in dict.fromkeys(wrong):
        print(problem, file=sys.stderr)
    print(f"deploy: {len(plain)} objects, {len(everything)} with everything on, {len(wrong)} wrong")
    return 1 if wrong else 0


def without_helm(things: list[dict]) -> list[dict]:
    """As kubectl applies them: nobody manages them with Helm."""
    text = json.dumps(things)
    made = json.loads(text)

    def strip(thing: object) -> None:
        if isinstance(thing, dict):
            if thing.get("app.kubernetes.io/managed-by") == "Helm":
                del thing["app.kubernetes.io/managed-by"]
            for item in thing.values():
                strip(item)
        elif isinstance(thing, list):
            for item in thing:
                strip(item)

    strip(made)
    return made


if __name__ == "__main__":
    sys.exit(main())

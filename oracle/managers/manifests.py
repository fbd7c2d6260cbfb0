"""Checks manifests for Kubernetes against published schemas.

    python manifests.py [--crd FILE]... MANIFEST...

Core kinds are checked against the schemas of Kubernetes itself, of its oldest and newest release that the project
promises, with nothing allowed that they do not know. Custom kinds are checked against the fields that their operators
document, written down below, and their pods and jobs as core kinds; `--crd` adds the definition of a custom resource to
check against, as its operator publishes it. Prints a line per object.
"""

import argparse
import pathlib
import re

import jsonschema
import kubernetes_validate
import yaml

# The schema of 1.28 itself demands a condition in every rule about failed pods, by mistake.
VERSIONS = ("1.29", "1.37")

LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")

COUNT = {"type": "integer", "minimum": 1}
NATURAL = {"type": "integer", "minimum": 0}
TEXT = {"type": "string"}
FLAG = {"type": "boolean"}


def fields(required=(), **properties):
    """An object with these fields and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def one_of(*values):
    return {"enum": list(values)}


# https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/
REPLICA = fields(
    ("replicas", "template"),
    replicas=COUNT,
    restartPolicy=one_of("Always", "OnFailure", "Never", "ExitCode"),
    template={"type": "object"},
)
TF_JOB = fields(
    ("tfReplicaSpecs",),
    runPolicy=fields(
        cleanPodPolicy=one_of("None", "Running", "All"),
        ttlSecondsAfterFinished=NATURAL,
        activeDeadlineSeconds=COUNT,
        backoffLimit=NATURAL,
        suspend=FLAG,
    ),
    successPolicy=one_of("", "AllWorkers"),
    enableDynamicWorker=FLAG,
    tfReplicaSpecs=fields(**dict.fromkeys(("Chief", "Master", "PS", "Worker", "Evaluator"), REPLICA)),
)

# https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/
JOB_SET = fields(
    ("replicatedJobs",),
    network=fields(enableDNSHostnames=FLAG, subdomain=TEXT, publishNotReadyAddresses=FLAG),
    successPolicy=fields(
        ("operator",), operator=one_of("All", "Any"), targetReplicatedJobs={"type": "array", "items": TEXT}
    ),
    failurePolicy=fields(maxRestarts=NATURAL),
    replicatedJobs={
        "type": "array",
        "minItems": 1,
        "items": fields(
            ("name", "template"), name=TEXT, replicas=COUNT, template=fields(("spec",), spec={"type": "object"})
        ),
    },
)


def core(document):
    for version in VERSIONS:
        kubernetes_validate.validate(document, version, strict=True)


def tf_job(document):
    jsonschema.validate(document["spec"], TF_JOB)
    for replica in document["spec"]["tfReplicaSpecs"].values():
        pods(replica["template"])
        (container,) = replica["template"]["spec"]["containers"]
        assert container["name"] == "tensorflow", "the operator looks for this container"
        assert "tfjob-port" in [port["name"] for port in container["ports"]], "the operator looks for this port"


def job_set(document):
    jsonschema.validate(document["spec"], JOB_SET)
    names = [job["name"] for job in document["spec"]["replicatedJobs"]]
    assert set(document["spec"]["successPolicy"]["targetReplicatedJobs"]) <= set(names), names
    for job in document["spec"]["replicatedJobs"]:
        core({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, **job["template"]})


def pods(template):
    core({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "template"}, "template": template})


KINDS = {("kubeflow.org/v1", "TFJob"): tf_job, ("jobset.x-k8s.io/v1alpha2", "JobSet"): job_set}


def strict(schema):
    """A schema of a custom resource in which nothing is allowed that it does not know."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items() if key != "description"}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        closed["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        closed.pop("type", None)
    return closed


def definitions(files):
    """The schemas of custom resources by group, version and kind."""
    found = {}
    for file in files:
        for definition in yaml.safe_load_all(pathlib.Path(file).read_text()):
            spec = (definition or {}).get("spec", {})
            for version in spec.get("versions", ()):
                schema = strict(version["schema"]["openAPIV3Schema"])
                # Its own description of metadata is empty: every object has it.
                schema["properties"]["metadata"] = {"type": "object"}
                found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--crd", action="append", default=[])
    parser.add_argument("manifests", nargs="+")
    options = parser.parse_args()
    published = definitions(options.crd)
    for file in options.manifests:
        for document in yaml.safe_load_all(pathlib.Path(file).read_text()):
            kind = document["apiVersion"], document["kind"]
            KINDS.get(kind, core)(document)
            if kind in published:
                jsonschema.validate(document, published[kind])
            name = document["metadata"]["name"]
            assert LABEL.fullmatch(name), f"{name!r} is not a name"
            print(document["kind"], name)


if __name__ == "__main__":
    main()

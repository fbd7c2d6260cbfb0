"""Runs the pods of manifests as Kubernetes would, each as a process on a node of its own.

What controllers, the kubelet and DNS do for these manifests is done here: names of pods and where they are known, the
labels and annotations with a pod's number, variables filled in, `TF_CONFIG` as Kubeflow's operator writes it. Images are
not looked at: programs are those of this machine.
"""

import json
import os
import pathlib
import re
import signal
import subprocess

from nodes import Nodes

import yaml

NAMESPACE = "default"


def expand(text, variables):
    """`$(NAME)` as the kubelet fills it in; `$$(NAME)` stays."""
    known = lambda match: match.group(1) or variables.get(match.group(2), match.group(0))
    return re.sub(r"\$(\$\([^)]*\))|\$\(([^)]*)\)", known, text)


class Pod:
    """One container with its number, which controllers write to the place that `note` names."""

    def __init__(self, name, job, number, template, note, environment=()):
        (self._container,) = template["spec"]["containers"]
        self.name, self.job = name, job
        self._notes = {note: str(number)}
        self._environment = dict(environment)

    def command(self):
        """The command line and environment of its process."""
        variables = {}
        for variable in self._container["env"]:
            if "valueFrom" in variable:
                path = variable["valueFrom"]["fieldRef"]["fieldPath"]
                variables[variable["name"]] = self._notes[path]
            else:
                variables[variable["name"]] = expand(variable["value"], variables)
        variables.update(self._environment)
        return [expand(word, variables) for word in self._container["command"]], variables

    def probe(self):
        """The command that says whether the container lives; none without such a probe."""
        return self._container.get("livenessProbe", {}).get("exec", {}).get("command")


def pods_of(documents):
    """The pods that controllers make of manifests, and the domains in which they are known."""
    pods, domains = [], set()
    for document in documents:
        name, spec = document["metadata"]["name"], document["spec"]
        match document["kind"]:
            case "Service":
                assert spec["publishNotReadyAddresses"] and spec["clusterIP"] == "None"
                domains.add(name)
            case "StatefulSet":
                note = "metadata.labels['apps.kubernetes.io/pod-index']"
                assert spec["serviceName"] in domains
                for i in range(spec["replicas"]):
                    pods.append(Pod(f"{name}-{i}", name.rpartition("-")[2], i, spec["template"], note))
            case "Job":
                assert spec["template"]["spec"]["subdomain"] in domains
                pods.extend(indexed(name, name.rpartition("-")[2], spec))
            case "JobSet":
                assert spec["network"]["publishNotReadyAddresses"]
                domains.add(spec["network"]["subdomain"])
                for job in spec["replicatedJobs"]:
                    pods.extend(indexed(f"{name}-{job['name']}-0", job["name"], job["template"]["spec"]))
            case "TFJob":
                domains.add(f"{NAMESPACE}.svc")
                pods.extend(replicas(name, spec["tfReplicaSpecs"]))
    return pods, domains


def indexed(name, job, spec):
    note = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    return [Pod(f"{name}-{i}", job, i, spec["template"], note) for i in range(spec["completions"])]


def replicas(name, specs):
    """Pods of a TFJob with the variable that the operator sets."""
    note = "metadata.labels['training.kubeflow.org/replica-index']"
    tasks = {kind.lower(): range(spec["replicas"]) for kind, spec in specs.items()}
    cluster = {job: [f"{name}-{job}-{i}.{NAMESPACE}.svc:2222" for i in numbers] for job, numbers in tasks.items()}
    for kind, spec in specs.items():
        job = kind.lower()
        for i in tasks[job]:
            config = {"cluster": cluster, "task": {"type": job, "index": i}, "environment": "cloud"}
            environment = {"TF_CONFIG": json.dumps(config)}
            yield Pod(f"{name}-{job}-{i}", job, i, spec["template"], note, environment)


class Kubernetes:
    """Pods of a manifest, running."""

    def __init__(self, manifest, binary, directory):
        pods, domains = pods_of(list(yaml.safe_load_all(pathlib.Path(manifest).read_text())))
        self._directory = directory
        self._nodes = Nodes([pod.name for pod in pods], directory, domains)
        self._running = {}
        self._path = f"{os.path.dirname(binary)}:{os.environ['PATH']}"
        for pod in pods:
            command, variables = pod.command()
            with open(self._log(pod.name), "wb") as output:
                process = subprocess.Popen(
                    self._nodes.on(pod.name, *command),
                    env=dict(os.environ, PATH=self._path, **variables),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            self._running[pod] = process

    def _log(self, name):
        return os.path.join(self._directory, f"{name}.out")

    def said(self):
        logs = []
        for pod in self._running:
            with open(self._log(pod.name), errors="replace") as file:
                logs.append(f"== {pod.name}\n{file.read()}")
        return "\n".join(logs)

    def wait(self, jobs, seconds):
        """Waits until all pods of these jobs have ended well."""
        for pod, process in self._running.items():
            if pod.job in jobs:
                try:
                    code = process.wait(seconds)
                except subprocess.TimeoutExpired:
                    raise TimeoutError(f"{pod.name} does not end:\n{self.said()}") from None
                assert code == 0, f"{pod.name} ended with {code}:\n{self.said()}"

    def probe(self):
        """Asks the pods that are probed whether they live; gives their number."""
        probed = [pod for pod in self._running if pod.probe()]
        for pod in probed:
            asked = self._nodes.on(pod.name, *pod.probe())
            found = subprocess.run(
                asked, env=dict(os.environ, PATH=self._path), capture_output=True, text=True, check=False
            )
            assert found.returncode == 0, f"{pod.name} does not answer: {found.stdout}{found.stderr}"
        return len(probed)

    def delete(self, seconds):
        """Ends the pods that are left, as their deletion does; they must go when they are asked to."""
        left = [(pod, process) for pod, process in self._running.items() if process.poll() is None]
        for _, process in left:
            process.send_signal(signal.SIGTERM)
        for pod, process in left:
            code = process.wait(seconds)
            assert code in (0, 143), f"{pod.name} ended with {code}:\n{self.said()}"
        return [pod.name for pod, _ in left]

    def close(self):
        for process in self._running.values():
            process.kill()
            process.wait()
        self._nodes.close()

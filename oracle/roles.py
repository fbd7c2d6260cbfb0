"""Prints what stock's resolvers make of clusters, of TF_CONFIG and of Slurm's variables, one case per line as JSON.

`tests/tests/roles.rs` reads the same inputs. A case with `differs` is one that we answer otherwise, for that reason.
"""

import json
import os

import environment

import tensorflow as tf

SPEC = {"ps": ["a:1", "b:1"], "worker": ["c:1", "d:1"]}

# (cluster, why we differ)
CLUSTERS = [
    (SPEC, None),
    ({}, None),
    ({"worker": []}, None),
    ({"worker": {}}, None),
    ({"worker": {"0": "a:1"}}, None),
    ({"worker": {"2": "a:1", "0": "b:1"}}, None),
    ({"worker": {" 1 ": "a:1"}}, None),
    ({"worker": {"x": "a:1"}}, None),
    ({"worker": "a:1"}, None),
    ({"worker": [None]}, None),
    ({"worker": [1]}, None),
    ({"worker": None}, None),
    ("x", None),
    ([], None),
    ({"chief": ["a:1"], "evaluator": ["b:1"], "My_job9": {"3": "[::1]:5"}}, None),
    ({"worker": ["a"]}, "nobody can call an address without a port"),
    ({"worker": ["a:0"]}, "nobody can call port 0"),
    ({"worker": ["a:99999"]}, "stock's server cuts the number to 16 bits and listens elsewhere"),
    ({"worker": ["a:1", "a:1"]}, "two tasks with one address take each other for themselves"),
    ({"9ps": ["a:1"]}, "stock's server aborts the process for such a name"),
    ({"my-job": ["a:1"]}, "stock's server aborts the process for such a name"),
    ({"worker": {"-1": "a:1", "1": "b:1"}}, "stock loses the task below 0"),
]


def config(task=None, cluster=SPEC, **more):
    fields = dict(more)
    if cluster is not None:
        fields["cluster"] = cluster
    if task is not None:
        fields["task"] = task
    return json.dumps(fields)


# (TF_CONFIG, why we differ)
CONFIGS = [
    (None, None),
    ("{}", None),
    ("[]", None),
    ("", "a variable that is set to nothing says nothing, as stock's estimators have it"),
    ("null", None),
    ("{", None),
    ("3", None),
    ('{"cluster": {"worker": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 1}}', None),
    (config(), None),
    (config({"type": "worker", "index": 1}), None),
    (config({"type": "worker", "index": "1"}), None),
    (config({"type": "worker", "index": 1.9}), None),
    (config({"type": "worker", "index": " 1 "}), None),
    (config({"type": "worker", "index": True}), None),
    (config({"type": "worker", "index": "x"}), None),
    (config({"type": "worker", "index": [1]}), None),
    (config({"type": "worker"}), None),
    (config({"index": 0}), None),
    (config({"type": "ps", "index": 0}, rpc_layer="grpc"), None),
    (config({"type": "ps", "index": 0}, rpc_layer="grpc+verbs", environment="cloud", model_dir="x"), None),
    (config({"type": "worker", "index": 0}, session_master="grpc://x:1"), None),
    (config({"type": "evaluator", "index": 0}), None),
    (config({"type": "Worker", "index": 0}), None),
    (config({"type": "worker", "index": 7}), None),
    (config({"type": "worker", "index": 0}, cluster={"worker": ["a:1"]}), None),
    (config({"type": "worker", "index": 0}, cluster={"worker": ["a:1"]}, rpc_layer="grpc"), None),
    (config({"type": "worker", "index": 1}, cluster={"ps": ["a:1"], "worker": {"1": "b:1"}}), None),
    (config({"type": "worker", "index": 0}, cluster={"worker": []}), None),
    (config({"type": "master", "index": 0}, cluster={"master": ["a:1"], "worker": ["b:1"]}), None),
    (config({"type": "chief", "index": 0}, cluster={"chief": {"0": "a:1"}, "ps": ["b:1"]}), None),
    (config({"type": "worker", "index": 0}, cluster=None), None),
    (config({"type": "worker", "index": 0}, cluster=json.dumps(SPEC)), None),
    ('{"cluster": null, "task": {"type": "worker", "index": 0}}', None),
    ('{"cluster": {"worker": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 1}}', None),
    (
        config(
            {"type": "ps", "index": 0}, environment="cloud", service={}, eval_session_master="", job={}, coordinator=[]
        ),
        None,
    ),
    (config({"type": "ps", "index": 0, "trial": "3", "cloud": "x-ml"}), None),
    (config({"type": "worker", "index": 0}, cluster=None, clustre=SPEC), "stock's task would be alone, and chief"),
    (config({"type": "worker", "idnex": 1}), None),
    (config({"typ": "worker", "index": 1}), None),
    (config(cluster=SPEC, Task={"type": "worker", "index": 1}), None),
    (
        config({"type": "worker", "index": 1}, cluster=None, sparseCluster={"ps": ["a:1"], "worker": {"1": "b:1"}}),
        "old operators wrote this name for clusters whose workers come and go",
    ),
    (
        config({"type": "ps", "index": 1}, cluster={"ps": ["a:1"], "worker": {}}),
        "Kubeflow lists only the own address of a ps where workers come and go",
    ),
]

# (nodes, tasks per node, jobs in the order of their names, more variables, why we differ)
STEPS = [
    ("n[1-3]", "2(x2),1", {"ps": 2, "worker": 3}, {}, None),
    ("n1", "3", {"ps": 1, "worker": 2}, {}, None),
    ("a[1,5-7],b2", "1(x5)", {"chief": 1, "ps": 1, "worker": 3}, {}, None),
    ("n[01-03]", "1(x3)", {"worker": 3}, {}, None),
    ("n[1-2]", "1,2", {"a": 1, "b": 2}, {}, None),
    ("n[1-2]", "1(x2)", {"ps": 1, "worker": 4}, {}, None),
    (
        "n[9-11]",
        "1(x3)",
        {"ps": 1, "worker": 2},
        {},
        "stock sorts hosts as text, and every task is told a wrong address",
    ),
    (
        "n[1-2]",
        "2(x2)",
        {"ps": 1, "worker": 3},
        {"SLURM_DISTRIBUTION": "cyclic"},
        "stock assumes that nodes are filled one after the other",
    ),
    ("r[0-1]n[1-2]", "1(x4)", {"ps": 1, "worker": 3}, {}, "stock reads one bracket per entry"),
]


def tasks(spec):
    """Addresses by job and number; jobs without tasks left out."""
    jobs = {job: {str(i): spec.task_address(job, i) for i in spec.task_indices(job)} for job in spec.jobs}
    return {job: addresses for job, addresses in jobs.items() if addresses}


def answer(ask):
    try:
        return {"ok": ask()}
    except Exception as error:  # Whatever stock raises is its answer.
        return {"error": f"{type(error).__name__}: {error}"}


def tell(kind, given, differs, **answers):
    print(json.dumps({"kind": kind, "input": given, "differs": differs, **answers}))


def main():
    for cluster, differs in CLUSTERS:
        tell("cluster", cluster, differs, cluster=answer(lambda: tasks(tf.train.ClusterSpec(cluster))))
    for text, differs in CONFIGS:
        os.environ.pop("TF_CONFIG", None)
        if text is not None:
            os.environ["TF_CONFIG"] = text
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        tell(
            "tf_config",
            text,
            differs,
            cluster=answer(lambda: tasks(resolver.cluster_spec())),
            job=answer(lambda: resolver.task_type),
            index=answer(lambda: resolver.task_id),
            master=answer(resolver.master),
        )
    os.environ.pop("TF_CONFIG", None)
    for nodes, counts, jobs, more, differs in STEPS:
        size = sum(
            int(part.split("(x")[0]) * int(part.rstrip(")").split("(x")[1] if "(x" in part else 1)
            for part in counts.split(",")
        )
        for rank in range(size):
            variables = {
                "SLURM_JOB_ID": "1",
                "SLURM_STEP_ID": "0",
                "SLURM_STEP_NODELIST": nodes,
                "SLURM_STEP_TASKS_PER_NODE": counts,
                "SLURM_STEP_NUM_TASKS": str(size),
                "SLURM_PROCID": str(rank),
                **more,
            }
            os.environ.update(variables)

            def resolve():
                resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
                    jobs=jobs, gpus_per_node=16, gpus_per_task=1, auto_set_gpu=False
                )
                spec = resolver.cluster_spec()
                job, index = resolver.get_task_info()
                return {"cluster": tasks(spec), "job": job, "index": index}

            tell("slurm", {"variables": variables, "jobs": jobs}, differs, role=answer(resolve))
            for name in variables:
                os.environ.pop(name)


main()

"""Runs trainings under a real cluster manager.

    python run.py slurm|condor|kubernetes --binary FERROFLOW [--only WORDS] [--strict]

Installs the manager where that is possible; where the machine forbids it, says so and ends well unless `--strict`.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback

from nodes import Forbidden


def slurm_site(directory):
    import slurm
    import slurm_scenarios

    slurm.install()
    return slurm.Slurm(slurm_scenarios.NODES, directory), slurm_scenarios


def condor_site(directory):
    import condor
    import condor_scenarios

    condor.install()
    return condor.Condor(condor_scenarios.NODES, directory), condor_scenarios


def kubernetes_site(_):
    import kubernetes_scenarios

    # Every scenario has pods of its own.
    return None, kubernetes_scenarios


SITES = {"slurm": slurm_site, "condor": condor_site, "kubernetes": kubernetes_site}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("manager", choices=SITES)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--only", default="", help="scenarios whose name has these words")
    parser.add_argument("--strict", action="store_true", help="fail where the machine forbids it")
    options = parser.parse_args()

    directory = tempfile.mkdtemp(prefix=f"ferroflow-{options.manager}-")
    os.chmod(directory, 0o755)
    failed = 0
    start = time.monotonic()
    try:
        cluster, scenarios = SITES[options.manager](directory)
    except (Forbidden, OSError, RuntimeError) as error:
        print(f"skipped: {options.manager} does not come up on this machine: {error}")
        shutil.rmtree(directory)
        sys.exit(1 if options.strict else 0)
    print(f"{options.manager} is up after {time.monotonic() - start:.1f} s", flush=True)
    try:
        for scenario in scenarios.SCENARIOS:
            name = scenario.__name__.replace("_", " ")
            if options.only.replace("_", " ") not in name:
                continue
            place = os.path.join(directory, scenario.__name__)
            os.mkdir(place)
            start = time.monotonic()
            try:
                scenario(scenarios.Site(cluster, os.path.abspath(options.binary), place))
                print(f"ok: {name}, {time.monotonic() - start:.1f} s", flush=True)
            except Forbidden as error:
                failed += options.strict
                print(f"skipped: {name}: {error}", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED: {name}\n{traceback.format_exc()}", flush=True)
    finally:
        if cluster:
            cluster.close()
        if failed:
            print(f"what happened is in {directory}")
        else:
            shutil.rmtree(directory)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

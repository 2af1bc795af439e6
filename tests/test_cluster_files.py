"""The files in `examples/cluster`, as far as they can be checked without a cluster."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")
import jsonschema  # Ray needs both
import yaml

CLUSTER = Path(__file__).parents[1] / "examples" / "cluster"


def test_ray_up_accepts_its_file() -> None:
    schema = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"

    jsonschema.validate(
        yaml.safe_load((CLUSTER / "ray.yaml").read_text()), json.loads(schema.read_text())
    )


def test_the_cluster_of_kubernetes_confines_candidates_and_demands_a_token() -> None:
    """The whole file was checked once against the definition of KubeRay 1.6."""
    [spec] = [one["spec"] for one in yaml.safe_load_all((CLUSTER / "kuberay.yaml").read_text())]

    [group] = spec["workerGroupSpecs"]
    pod = group["template"]["spec"]
    security = pod["containers"][0]["securityContext"]
    assert "token" == spec["authOptions"]["mode"]
    assert (False, "Unmasked") == (pod["hostUsers"], security["procMount"])
    assert re.fullmatch(r"2\.\d+\.\d+", spec["rayVersion"])


def test_the_script_for_slurm_can_be_read_by_bash() -> None:
    subprocess.run(["bash", "-n", CLUSTER / "slurm.sh"], check=True)

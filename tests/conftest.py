"""What several test files share."""

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from speedstudy.expand import expand
from speedstudy.study import load_study

ROOT = Path(__file__).parents[1]
NOT_RUN = "NOT RUN: "  # how the reason of a skip begins that nobody may overlook


def pytest_terminal_summary(terminalreporter):
    """Say loudly, and count, what was skipped for want of something that CI should have."""
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())]
    missed = Counter(reason.partition(NOT_RUN)[2] for reason in reasons if NOT_RUN in reason)
    if missed:
        terminalreporter.section("NOT RUN", red=True, bold=True)
        for reason, tests in missed.items():
            terminalreporter.write_line(f"NOT RUN: {tests} tests: {reason}", red=True, bold=True)


@pytest.fixture(scope="session")
def shared():
    """The folder of real rows for tests; a user has none."""
    folder = Path(os.environ.get("SPEEDSTUDY_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip("no folder of real rows: SPEEDSTUDY_SHARED is not set")
    return folder


class Project:
    """A copy of the project to run in; it shares the content-addressed resources."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.printed = 0
        self.environment = {
            **os.environ,
            # The copy's own code, so that a test may edit it.
            "PYTHONPATH": str(directory / "workflow"),
            "HF_HUB_OFFLINE": "1",
        }

    def start(self, *command) -> tuple[subprocess.Popen, Path]:
        """Start a command; returns its process and the file that it prints to."""
        self.printed += 1
        path = self.directory.with_name(f"printed-{self.printed}.txt")
        with path.open("w") as sink:
            process = subprocess.Popen(
                [str(word) for word in command],
                cwd=self.directory,
                env=self.environment,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        return process, path

    def run(self, *command) -> tuple[int, str]:
        """Run a command; returns its exit status and all that it printed."""
        process, printed = self.start(*command)
        return process.wait(timeout=900), printed.read_text()

    def snakemake(self, *targets, hydra=(), experiment="ci") -> tuple[int, str]:
        return self.run(*self.snakemake_command(*targets, hydra=hydra, experiment=experiment))

    @staticmethod
    def snakemake_command(*targets, hydra=(), experiment="ci") -> list[str]:
        overrides = ",".join(f'"{override}"' for override in hydra)
        return [
            "snakemake",
            *targets,
            "--cores",
            "2",
            "--config",
            f"experiment={experiment}",
            f"hydra=[{overrides}]",
        ]

    def scheduled(self, *targets, hydra=()) -> dict[str, int]:
        """Return how often each rule would run now."""
        status, output = self.snakemake(*targets, "--dry-run", hydra=hydra)
        assert status == 0, output
        counts = {}
        if "Job stats:" in output:
            table = output.split("Job stats:")[1].split("total")[0].splitlines()
            for line in table[3:]:
                rule, count = line.split()
                counts[rule] = int(count)
        else:
            assert "Nothing to be done" in output, output
        counts.pop("all", None)
        return counts


def copy_project(directory: Path) -> Project:
    """Copy the project, without what was made in it but for resources and engines."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    for name in listed:
        if (ROOT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, directory / name)
    for shared in ("resources", ".engines"):
        (ROOT / shared).mkdir(exist_ok=True)
        shutil.rmtree(directory / shared, ignore_errors=True)
        (directory / shared).symlink_to(ROOT / shared)
    return Project(directory)


@pytest.fixture(scope="session")
def fresh_project(tmp_path_factory):
    """A copy of the project in which nothing has been run."""
    return copy_project(tmp_path_factory.mktemp("project") / "speedstudy")


@pytest.fixture(scope="session")
def model_folders(fresh_project):
    """The real target by format, `hf` and `openvino`, made by the graph itself."""
    plan = expand(load_study(ROOT / "config", ["experiment=ci"]))
    folders = {id_.split("--")[1]: Path("resources/models") / id_ for id_ in plan.data.models}
    targets = [folder / "config.json" for folder in folders.values()]
    status, output = fresh_project.snakemake(*targets)
    assert status == 0, output
    return {name: fresh_project.directory / folder for name, folder in folders.items()}


@pytest.fixture(scope="session")
def project(fresh_project):
    """A project in which the experiment `ci` has been run, on the real engine."""
    status, output = fresh_project.snakemake()
    assert status == 0, output
    return fresh_project

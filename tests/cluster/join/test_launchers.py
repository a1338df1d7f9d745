"""Launchers: environment variables as torchrun, Open MPI and Slurm really set them."""

from __future__ import annotations

import pytest

from tandem.cluster.join.launchers import (
    NO_PROCESS_BESIDE_MPIRUN,
    ProcessRank,
    Rendezvous,
    expected_hosts,
    launched_as,
    parse_hosts,
    process_rank,
    rendezvous,
    threads_of_task,
    unused_tasks_notice,
)
from tandem.errors import TandemError

Environment = dict[str, str]

ALONE = ProcessRank(0, 1, 0)

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "vm1",
    "MASTER_PORT": "29400",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_RESTART_COUNT": "2",
}
BY_HAND = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "vm1", "MASTER_PORT": "4444"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_MCA_orte_hnp_uri": "638386176.0;tcp://10.0.0.5,192.168.1.5:38245",
    "OMPI_MCA_ess_base_jobid": "638386177",
}
SLURM = {
    "SLURM_JOB_ID": "1234",
    "SLURM_PROCID": "4",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "5",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_NODELIST": "vm[1-2],login",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
}
# sbatch's own script is a task of the job and of no step.
SLURM_BATCH = {
    "SLURM_JOB_ID": "1234",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "5",
    "SLURM_JOB_NODELIST": "vm[1-2],login",
    "SLURM_TASKS_PER_NODE": "2(x2),1",
}


def without(environment: Environment, *names: str) -> Environment:
    return {name: value for name, value in environment.items() if name not in names}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({}, ALONE, id="nobody"),
        pytest.param(TORCHRUN, ProcessRank(3, 4, 1), id="torchrun"),
        pytest.param(BY_HAND, ProcessRank(1, 2, 0), id="by hand"),
        pytest.param(OPEN_MPI, ProcessRank(2, 4, 0), id="mpirun"),
        pytest.param(SLURM, ProcessRank(4, 5, 0), id="srun"),
        pytest.param(SLURM_BATCH, ALONE, id="the batch script of a Slurm job"),
        pytest.param({**SLURM_BATCH, **OPEN_MPI}, ProcessRank(2, 4, 0), id="mpirun in a Slurm job"),
        pytest.param({**SLURM, **OPEN_MPI}, ProcessRank(2, 4, 0), id="mpirun in a step of Slurm"),
        pytest.param({**OPEN_MPI, **TORCHRUN}, ProcessRank(3, 4, 1), id="torchrun in mpirun"),
        pytest.param({**SLURM, **TORCHRUN}, ProcessRank(3, 4, 1), id="torchrun in srun"),
        pytest.param({"MASTER_ADDR": "vm1", "MASTER_PORT": "4444"}, ALONE, id="an address alone"),
    ],
)
def test_process_rank(environment: Environment, expected: ProcessRank) -> None:
    assert process_rank(environment) == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ""),
        (BY_HAND, ""),
        ({**BY_HAND, "TANDEM_LAUNCH_ID": "5f3a"}, "tandem launch 5f3a"),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "x"}, "torchrun's run x, restart 2"),
        (OPEN_MPI, "mpirun's job 638386177"),
        ({**SLURM, "SLURM_STEP_ID": "0"}, "step 0 of Slurm job 1234"),
        ({**SLURM, "SLURM_STEP_ID": "1"}, "step 1 of Slurm job 1234"),
        ({**SLURM, "SLURM_STEP_ID": "1", "SLURM_RESTART_COUNT": "3"}, "step 1 of Slurm job 1234, restart 3"),
        ({**SLURM, **OPEN_MPI}, "mpirun's job 638386177"),
    ],
)
def test_launched_as(environment: Environment, expected: str) -> None:
    assert launched_as(environment) == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"SLURM_CPUS_PER_TASK": "3"}, 3),
        ({"SLURM_CPUS_PER_TASK": "3", "OMP_NUM_THREADS": "8"}, None),
        ({"SLURM_CPUS_PER_TASK": "many"}, None),
    ],
)
def test_threads_are_those_of_the_task(environment: Environment, expected: int | None) -> None:
    assert threads_of_task(environment) == expected


def test_tasks_without_processes_are_noticed() -> None:
    assert unused_tasks_notice(SLURM_BATCH) == (
        "Slurm gave this job 5 tasks, but only this one process was started; put srun before the command to use all of "
        "them"
    )
    for environment in ({}, SLURM, {**SLURM_BATCH, **OPEN_MPI}, {**SLURM_BATCH, "SLURM_NTASKS": "1"}):
        assert unused_tasks_notice(environment) is None


def test_only_the_first_leads() -> None:
    assert [ProcessRank(rank, 3, 0).is_leader for rank in range(3)] == [True, False, False]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (without(TORCHRUN, "RANK"), r"^WORLD_SIZE, LOCAL_RANK set but RANK not: start the processes with torchrun$"),
        ({"RANK": "1"}, r"^RANK set but LOCAL_RANK, WORLD_SIZE not: start the processes with torchrun$"),
        (
            {"OMPI_COMM_WORLD_SIZE": "2"},
            r"^OMPI_COMM_WORLD_SIZE set but OMPI_COMM_WORLD_LOCAL_RANK, OMPI_COMM_WORLD_RANK not: .* with mpirun$",
        ),
        ({"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"}, r"SLURM_LOCALID not: start the processes with srun$"),
        ({**TORCHRUN, "RANK": "first"}, r"^RANK, WORLD_SIZE, LOCAL_RANK: not whole numbers \(.*'first'\); unset them$"),
    ],
)
def test_half_a_launcher_is_an_error(environment: Environment, message: str) -> None:
    with pytest.raises(TandemError, match=message):
        process_rank(environment)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param(TORCHRUN, Rendezvous(("vm1",), 29400, launcher_serves=True, prefix="2"), id="torchrun"),
        pytest.param(BY_HAND, Rendezvous(("vm1",), 4444), id="by hand"),
        pytest.param(
            {**OPEN_MPI, **TORCHRUN},
            Rendezvous(("vm1",), 29400, launcher_serves=True, prefix="2"),
            id="torchrun in mpirun",
        ),
        pytest.param(
            OPEN_MPI,
            # 638386177 >> 16 = 9741: all jobs of one mpirun share what lies above the lowest 16 bits.
            Rendezvous(("10.0.0.5", "192.168.1.5"), 29500 + 741, here=False, remedy=NO_PROCESS_BESIDE_MPIRUN),
            id="mpirun",
        ),
        pytest.param(
            {**OPEN_MPI, "OMPI_MCA_orte_local_daemon_uri": OPEN_MPI["OMPI_MCA_orte_hnp_uri"]},
            Rendezvous(("10.0.0.5", "192.168.1.5"), 29500 + 741, here=True, remedy=NO_PROCESS_BESIDE_MPIRUN),
            id="mpirun on its own host",
        ),
        pytest.param(
            {**OPEN_MPI, "MASTER_PORT": "4444"},
            Rendezvous(("10.0.0.5", "192.168.1.5"), 4444, here=False, remedy=NO_PROCESS_BESIDE_MPIRUN),
            id="mpirun with a port",
        ),
        pytest.param(
            {**OPEN_MPI, "MASTER_ADDR": "vm7", "MASTER_PORT": "4444"},
            Rendezvous(("vm7",), 4444),
            id="mpirun with rank 0's host",
        ),
        pytest.param({**OPEN_MPI, "MASTER_ADDR": "vm7"}, Rendezvous(("vm7",), 29500), id="mpirun without a port"),
        pytest.param(SLURM, Rendezvous(("vm1",), 29500 + 234), id="srun"),
        pytest.param({**SLURM, "SLURM_STEP_ID": "1"}, Rendezvous(("vm1",), 29500 + 271), id="a second step of srun"),
        pytest.param({**SLURM, "MASTER_PORT": "4444"}, Rendezvous(("vm1",), 4444), id="srun with a port"),
        pytest.param({**SLURM, "MASTER_ADDR": "vm9"}, Rendezvous(("vm9",), 29500), id="srun with rank 0's host"),
    ],
)
def test_rendezvous(environment: Environment, expected: Rendezvous) -> None:
    assert rendezvous(environment) == expected


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (without(BY_HAND, "MASTER_ADDR"), "RANK set but MASTER_ADDR not"),
        (without(OPEN_MPI, "OMPI_MCA_orte_hnp_uri"), "add -x MASTER_ADDR=<host of rank 0>"),
        (without(SLURM, "SLURM_STEP_NODELIST"), "SLURM_STEP_NODELIST is not set: start the processes with srun"),
    ],
)
def test_a_rendezvous_that_nobody_told_is_an_error(environment: Environment, message: str) -> None:
    with pytest.raises(TandemError, match=message):
        rendezvous(environment)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({}, [], id="nobody"),
        pytest.param(TORCHRUN, ["node 0", "node 0", "node 1", "node 1"], id="torchrun"),
        pytest.param({**TORCHRUN, "GROUP_WORLD_SIZE": "3"}, [], id="torchrun on nodes that differ"),
        pytest.param(BY_HAND, [], id="by hand"),
        pytest.param(OPEN_MPI, [], id="mpirun"),
        pytest.param(SLURM, ["vm1", "vm1", "vm2", "vm2", "login"], id="srun"),
        pytest.param({**OPEN_MPI, "TANDEM_HOSTS": "vm1:2,vm2"}, ["vm1", "vm1", "vm2"], id="tandem launch"),
        pytest.param({**SLURM, "SLURM_DISTRIBUTION": "cyclic"}, [], id="srun that deals ranks out in turn"),
        pytest.param(
            {**SLURM, "SLURM_DISTRIBUTION": "block:cyclic"},
            ["vm1", "vm1", "vm2", "vm2", "login"],
            id="srun that fills hosts one after the other",
        ),
        pytest.param({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2(x3)"}, ["vm1"] * 2 + ["vm2"] * 2 + ["login"] * 2),
        pytest.param({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2"}, [], id="srun with too few counts"),
        pytest.param({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "many"}, [], id="srun with counts of another form"),
        pytest.param(without(SLURM, "SLURM_STEP_TASKS_PER_NODE"), [], id="srun without counts"),
    ],
)
def test_expected_hosts(environment: Environment, expected: list[str]) -> None:
    assert list(expected_hosts(environment)) == expected


@pytest.mark.parametrize(
    ("short", "names"),
    [
        ("vm1", ["vm1"]),
        ("vm1,vm2", ["vm1", "vm2"]),
        ("vm[1-3]", ["vm1", "vm2", "vm3"]),
        ("vm[08-10,12],login", ["vm08", "vm09", "vm10", "vm12", "login"]),
        ("a[1,3-4],b[007-008]", ["a1", "a3", "a4", "b007", "b008"]),
        ("vm[1-2].cluster.example,x-y", ["vm1.cluster.example", "vm2.cluster.example", "x-y"]),
        ("rack1-vm[9-11]", ["rack1-vm9", "rack1-vm10", "rack1-vm11"]),
    ],
)
def test_slurms_short_form_of_hosts(short: str, names: list[str]) -> None:
    environment = {**SLURM, "SLURM_STEP_NODELIST": short, "SLURM_STEP_TASKS_PER_NODE": f"1(x{len(names)})"}
    assert list(expected_hosts(environment)) == names
    assert rendezvous(environment).addresses == (names[0],)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vm1", [("vm1", 1)]),
        ("vm1:2,vm2:2", [("vm1", 2), ("vm2", 2)]),
        ("vm1, vm2:16", [("vm1", 1), ("vm2", 16)]),
        ("me@vm-1.example.org:2", [("me@vm-1.example.org", 2)]),
        ("10.0.0.1:8,10.0.0.2", [("10.0.0.1", 8), ("10.0.0.2", 1)]),
        ("[fe80::1]:2,[::1]", [("fe80::1", 2), ("::1", 1)]),
    ],
)
def test_parse_hosts(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_hosts(text) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "''"),
        ("vm1,,vm2", "''"),
        ("vm1:0", "'vm1:0'"),
        ("-oProxyCommand", "'-oProxyCommand'"),  # which ssh would take for an option
        ("vm1:-1", "'vm1:-1'"),
        ("vm1:two,vm2", "'vm1:two'"),
        ("vm1 vm2", "'vm1 vm2'"),
        ("vm1:2:3", "'vm1:2:3'"),
        ("fe80::1", "'fe80::1'"),
        ("vm1;reboot", "'vm1;reboot'"),
        ("me@-vm1", "'me@-vm1'"),
        ("vm1$(id)", "'vm1$(id)'"),
        ("vm1`id`", "'vm1`id`'"),
        ("vm1|id:2", "'vm1|id:2'"),
        ("vm1'", '"vm1\'"'),
    ],
)
def test_parse_hosts_names_what_is_no_host(text: str, part: str) -> None:
    with pytest.raises(TandemError) as error:
        parse_hosts(text)
    assert str(error.value) == f"-H {text}: {part} is not of the form host or host:processes, for example vm1:2,vm2:2"


def test_parse_hosts_takes_each_host_once() -> None:
    with pytest.raises(TandemError, match=r"^-H b:1,a,b:2,a: a, b named twice; give each host once"):
        parse_hosts("b:1,a,b:2,a")

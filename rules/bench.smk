"""
Measure: one engine process and one load a cell, or one engine process for a session's loads.

REQUIRED INPUTS:
    results/workloads/, resources/models/    from select.smk and collect.smk

OUTPUTS:
    results/cells/{cell}/requests.parquet    one row a turn, as seen
    results/cells/{cell}/cell.json           versions, hardware, self-check; status ok or failed

Whatever starts an engine takes all of `quiet`: nothing runs beside a measurement where the profile
gives a total of 100.
"""


rule serve_engine:
    """Keep one engine up for all loads of its session, until the last one is done."""
    input:
        unpack(session_input),
    output:
        endpoint=service("results/sessions/{session}/endpoint.json"),
    log:
        supervisor="logs/serve_engine/{session}.log",
        engine="logs/serve_engine/{session}.engine.log",
    conda:
        "../envs/study.yaml"
    resources:
        gpu=lambda wildcards: PLAN.sessions[wildcards.session].cfg["engine"]["gpus"],
        quiet=100,
    params:
        cfg=lambda wildcards: canonical(PLAN.sessions[wildcards.session].cfg),
        # What depends on `input` is not compared by Snakemake: it never repeats a measurement.
        engine=lambda wildcards, input: engine_flags(PLAN.sessions[wildcards.session], input),
    shell:
        # `exec`: Snakemake's signals reach the supervisor, and it dies with Snakemake.
        "exec speedstudy serve-engine --config {params.cfg:q} --workload {input.workload}"
        " --endpoint {output.endpoint} {params.engine} --engine-log {log.engine}"
        " 2> {log.supervisor}"


rule run_cell:
    """Have the engine, send the workload, record; a failed engine is a record too."""
    input:
        unpack(cell_input),
    output:
        requests="results/cells/{cell}/requests.parquet",
        cell="results/cells/{cell}/cell.json",
    log:
        client="logs/run_cell/{cell}.log",
        engine="logs/run_cell/{cell}.engine.log",
    conda:
        "../envs/study.yaml"
    # The demands of a session's jobs add up, and its engine has asked for everything.
    threads: lambda wildcards: 0 if wildcards.cell in JOINING else 1
    resources:
        gpu=lambda wildcards: (
            0 if wildcards.cell in JOINING else PLAN.cells[wildcards.cell].cfg["engine"]["gpus"]
        ),
        quiet=lambda wildcards: 0 if wildcards.cell in JOINING else 100,
    params:
        cfg=lambda wildcards: canonical(PLAN.cells[wildcards.cell].cfg),
        engine=lambda wildcards, input: (
            f"--endpoint {input.endpoint}"
            if wildcards.cell in JOINING
            else engine_flags(PLAN.cells[wildcards.cell], input)
        ),
        memory=lambda wildcards, input: memory_flag(PLAN.cells[wildcards.cell].target),
    shell:
        "exec speedstudy run-cell --config {params.cfg:q} --id {wildcards.cell}"
        " --workload {input.workload} --warmup {input.warmup} {params.engine} {params.memory}"
        " --engine-log {log.engine} --out $(dirname {output.cell}) 2> {log.client}"

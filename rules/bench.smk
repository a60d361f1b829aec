"""
Measure: one engine process and one load a cell.

REQUIRED INPUTS:
    results/workloads/, resources/models/    from select.smk and collect.smk

OUTPUTS:
    results/cells/{cell}/requests.parquet    one row a turn, as seen
    results/cells/{cell}/cell.json           versions, hardware, self-check; status ok or failed
"""


rule run_cell:
    """Start the engine, send the workload, record; a failed engine is a record too."""
    input:
        # Named after its content's recipe, so a newer file of the same name means the same
        # prompts: it orders the jobs but never repeats a measurement. `aggregate` compares digests.
        workload=lambda wildcards: ancient(
            f"results/workloads/{PLAN.cells[wildcards.cell].workload}.parquet"
        ),
        warmup=lambda wildcards: ancient(
            f"results/workloads/{PLAN.cells[wildcards.cell].workload}.warmup.parquet"
        ),
        model=lambda wildcards: ancient(
            f"resources/models/{PLAN.cells[wildcards.cell].model}/config.json"
        ),
        draft_model=lambda wildcards: [
            ancient(f"resources/models/{model}/config.json")
            for model in [PLAN.cells[wildcards.cell].draft_model]
            if model
        ],
    output:
        requests="results/cells/{cell}/requests.parquet",
        cell="results/cells/{cell}/cell.json",
    log:
        client="logs/run_cell/{cell}.log",
        engine="logs/run_cell/{cell}.engine.log",
    conda:
        "../envs/study.yaml"
    resources:
        gpu=lambda wildcards: PLAN.cells[wildcards.cell].cfg["engine"]["gpus"],
    params:
        cfg=lambda wildcards: canonical(PLAN.cells[wildcards.cell].cfg),
        draft_model=lambda wildcards, input: (
            f"--draft-model {Path(input.draft_model[0]).parent}" if input.draft_model else ""
        ),
    shell:
        "speedstudy run-cell --config {params.cfg:q} --id {wildcards.cell}"
        " --workload {input.workload} --warmup {input.warmup}"
        " --model $(dirname {input.model}) {params.draft_model} --out $(dirname {output.cell})"
        " --engine-log {log.engine} 2> {log.client}"

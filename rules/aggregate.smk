"""
Tables, and what they were made from.

REQUIRED INPUTS:
    results/cells/, results/workloads/    from bench.smk and select.smk

OUTPUTS:
    results/tables/cells.parquet (.csv)    one row a cell
    results/tables/prompts.parquet         one row a cell and prompt
    results/tables/categories.parquet      one row a cell and category
    results/tables/accepted.parquet        how many steps accepted how many tokens
    results/tables/lossless.csv            replies that a drafter changed, and by what gap
    results/tables/agreement.csv           share of equal replies, drafters' and the engine's own
    results/study.json                     the resolved study, versions, hardware
"""


rule aggregate:
    """Compute every metric from the records, one row a cell."""
    input:
        cells=expand("results/cells/{cell}/cell.json", cell=PLAN.cells),
        requests=expand("results/cells/{cell}/requests.parquet", cell=PLAN.cells),
        workloads=expand("results/workloads/{workload}.parquet", workload=PLAN.data.workloads),
    output:
        cells="results/tables/cells.parquet",
        csv="results/tables/cells.csv",
        prompts="results/tables/prompts.parquet",
        categories="results/tables/categories.parquet",
        accepted="results/tables/accepted.parquet",
    log:
        "logs/aggregate.log",
    conda:
        "../envs/study.yaml"
    params:
        cfg=canonical(CELL_HASHES),
        code=fingerprint("speedstudy.aggregate"),
    shell:
        "speedstudy aggregate --config {params.cfg:q} --cells results/cells"
        " --workloads {input.workloads} --out results/tables 2> {log}"


rule check_lossless:
    """Compare greedy replies with a drafter to those without; weigh each first difference."""
    input:
        cells=expand("results/cells/{cell}/cell.json", cell=PLAN.cells),
        requests=expand("results/cells/{cell}/requests.parquet", cell=PLAN.cells),
        workloads=expand("results/workloads/{workload}.parquet", workload=PLAN.data.workloads),
        models=expand("resources/models/{model}/config.json", model=HF_MODELS),
    output:
        differences="results/tables/lossless.csv",
        agreement="results/tables/agreement.csv",
    log:
        "logs/check_lossless.log",
    conda:
        "../envs/study.yaml"
    params:
        cfg=canonical(CELL_HASHES),
        code=fingerprint("speedstudy.check_lossless"),
        models=lambda wildcards, input: [str(Path(path).parent) for path in input.models],
    shell:
        "speedstudy check-lossless --config {params.cfg:q} --cells results/cells"
        " --workloads {input.workloads} --models {params.models} --out {output.differences}"
        " --agreement {output.agreement} 2> {log}"


rule write_study:
    """Write the resolved study with versions, commit and hardware."""
    input:
        cells="results/tables/cells.parquet",
    output:
        "results/study.json",
    log:
        "logs/write_study.log",
    conda:
        "../envs/study.yaml"
    params:
        cfg=canonical(STUDY.model_dump(mode="json")),
    shell:
        "speedstudy write-study --config {params.cfg:q} --out {output} 2> {log}"

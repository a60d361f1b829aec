"""The study's graph: collect -> embed -> select | bucket -> tokenize -> run_cell -> tables, figures.

    snakemake --cores all results/pareto.pdf
    snakemake --cores all results/pareto.pdf --config experiment=ci

Science is in config/, machines are in profiles/, code is in workflow/speedstudy/.
"""

from snakemake.utils import min_version

min_version("9.20")


configfile: "config/workflow.yaml"


include: "rules/common.smk"
include: "rules/collect.smk"
include: "rules/select.smk"
include: "rules/bench.smk"
include: "rules/aggregate.smk"
include: "rules/figures.smk"


localrules:
    all,
    write_study,


rule all:
    """Everything that the study gives."""
    default_target: True
    input:
        FIGURES,
        TABLES,
        "results/study.json",


onstart:
    remove_other_figures()


onsuccess:
    report_failed_cells()


onerror:
    print("The run did not finish; what is done is kept. `make study` goes on from here.")

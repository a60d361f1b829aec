"""
Figures, each a .pdf and a .png.

REQUIRED INPUTS:
    results/tables/    from aggregate.smk and select.smk

OUTPUTS:
    results/pareto.pdf            user tokens/s against output tokens/s per device
    results/acceptance.pdf        acceptance length by category, accepted lengths
    results/random_vs_real.pdf    the same load with random tokens and with real prompts
    results/diversity.pdf         how alike the selected prompts are
"""


rule plot_pareto:
    """Draw user tokens/s against output tokens/s per device, a line a drafter."""
    input:
        cells="results/tables/cells.parquet",
    output:
        pdf=report(
            "results/pareto.pdf",
            caption="../workflow/report/plot_pareto.rst",
            category="Figures",
        ),
        png="results/pareto.png",
    log:
        "logs/plot_pareto.log",
    conda:
        "../envs/study.yaml"
    params:
        cfg=figure_json("pareto"),
        code=fingerprint("speedstudy.figures.plot_pareto"),
    shell:
        "speedstudy plot-pareto --config {params.cfg:q} --cells {input.cells}"
        " --out {output.pdf} 2> {log}"


rule plot_acceptance:
    """Draw acceptance length by category and the distribution of accepted lengths."""
    input:
        cells="results/tables/cells.parquet",
        prompts="results/tables/prompts.parquet",
        accepted="results/tables/accepted.parquet",
    output:
        pdf=report(
            "results/acceptance.pdf",
            caption="../workflow/report/plot_acceptance.rst",
            category="Figures",
        ),
        png="results/acceptance.png",
    log:
        "logs/plot_acceptance.log",
    conda:
        "../envs/study.yaml"
    params:
        cfg=figure_json("acceptance"),
        code=fingerprint("speedstudy.figures.plot_acceptance"),
    shell:
        "speedstudy plot-acceptance --config {params.cfg:q} --cells {input.cells}"
        " --prompts {input.prompts} --accepted {input.accepted} --out {output.pdf} 2> {log}"


rule plot_random_vs_real:
    """Draw the same load with random tokens and with real prompts."""
    input:
        cells="results/tables/cells.parquet",
        prompts="results/tables/prompts.parquet",
    output:
        pdf=report(
            "results/random_vs_real.pdf",
            caption="../workflow/report/plot_random_vs_real.rst",
            category="Figures",
        ),
        png="results/random_vs_real.png",
    log:
        "logs/plot_random_vs_real.log",
    conda:
        "../envs/study.yaml"
    params:
        cfg=figure_json("random_vs_real"),
        code=fingerprint("speedstudy.figures.plot_random_vs_real"),
    shell:
        "speedstudy plot-random-vs-real --config {params.cfg:q} --cells {input.cells}"
        " --prompts {input.prompts} --out {output.pdf} 2> {log}"


rule plot_diversity:
    """Draw how alike the selected prompts are, beside what else could have been chosen."""
    input:
        table="results/tables/diversity.csv",
    output:
        pdf=report(
            "results/diversity.pdf",
            caption="../workflow/report/plot_diversity.rst",
            category="Figures",
        ),
        png="results/diversity.png",
    log:
        "logs/plot_diversity.log",
    conda:
        "../envs/study.yaml"
    params:
        cfg=figure_json("diversity"),
        code=fingerprint("speedstudy.figures.plot_diversity"),
    shell:
        "speedstudy plot-diversity --config {params.cfg:q} --table {input.table}"
        " --out {output.pdf} 2> {log}"

"""
Figures, each a .pdf and a .png.

REQUIRED INPUTS:
    results/tables/    from aggregate.smk

OUTPUTS:
    results/pareto.pdf            user tokens/s against output tokens/s per device
    results/acceptance.pdf        acceptance length by category, accepted lengths
    results/random_vs_real.pdf    the same load with random tokens and with real prompts
"""


rule plot_pareto:
    """Draw user tokens/s against output tokens/s per device, a line a drafter."""
    input:
        plan=plan_file("plot_pareto"),
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
        cfg=slice_json("plot_pareto"),
    shell:
        "speedstudy plot-pareto --plan {input.plan} --cells {input.cells}"
        " --out {output.pdf} 2> {log}"


rule plot_acceptance:
    """Draw acceptance length by category and the distribution of accepted lengths."""
    input:
        plan=plan_file("plot_acceptance"),
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
        cfg=slice_json("plot_acceptance"),
    shell:
        "speedstudy plot-acceptance --plan {input.plan} --cells {input.cells}"
        " --prompts {input.prompts} --accepted {input.accepted} --out {output.pdf} 2> {log}"


rule plot_random_vs_real:
    """Draw the same load with random tokens and with real prompts."""
    input:
        plan=plan_file("plot_random_vs_real"),
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
        cfg=slice_json("plot_random_vs_real"),
    shell:
        "speedstudy plot-random-vs-real --plan {input.plan} --cells {input.cells}"
        " --prompts {input.prompts} --out {output.pdf} 2> {log}"

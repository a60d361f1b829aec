"""
Choose the prompts and turn them into token ids.

REQUIRED INPUTS:
    resources/candidates/, resources/artifacts/, resources/models/   from collect.smk

OUTPUTS:
    resources/embeddings/{embeddings}.npz    embeddings of one source's candidates
    results/prompts/{selected}.parquet       the selected prompts, and how alike they are (.json)
    results/buckets/{bucket}.parquet         prompts of one fixed length, in entropy tiers
    results/workloads/{workload}.parquet     token ids, as every engine gets them
    results/tables/diversity.csv             how alike the selected prompts are, beside other choices
    results/tables/describe.csv              what the selected prompts are, beside the paper
"""


rule embed:
    """Embed the candidates of one source; an embedding endpoint is asked over the network."""
    input:
        candidates=lambda wildcards: need_paths(
            "resources/candidates/{}.parquet",
            PLAN.data.embeddings,
            wildcards.embeddings,
            PLAN.data.candidates,
        ),
        embedder=lambda wildcards: need_paths(
            "resources/artifacts/{}/manifest.json",
            PLAN.data.embeddings,
            wildcards.embeddings,
            PLAN.data.artifacts,
        ),
    output:
        "resources/embeddings/{embeddings}.npz",
    log:
        "logs/embed/{embeddings}.log",
    conda:
        "../envs/study.yaml"
    threads: 2
    params:
        cfg=lambda wildcards: node_json(PLAN.data.embeddings, wildcards.embeddings),
        code=fingerprint("speedstudy.embed"),
    shell:
        # An embedding endpoint is no artifact: --embedder then has no value.
        "speedstudy embed --config {params.cfg:q} --candidates {input.candidates}"
        " --embedder {input.embedder} --out {output} 2> {log}"


rule select:
    """Select the prompts of every category that are least alike."""
    input:
        candidates=lambda wildcards: need_paths(
            "resources/candidates/{}.parquet",
            PLAN.data.selected,
            wildcards.selected,
            PLAN.data.candidates,
        ),
        embeddings=lambda wildcards: need_paths(
            "resources/embeddings/{}.npz",
            PLAN.data.selected,
            wildcards.selected,
            PLAN.data.embeddings,
        ),
    output:
        prompts="results/prompts/{selected}.parquet",
        report="results/prompts/{selected}.json",
    log:
        "logs/select/{selected}.log",
    conda:
        "../envs/study.yaml"
    params:
        cfg=lambda wildcards: node_json(PLAN.data.selected, wildcards.selected),
        code=fingerprint("speedstudy.select"),
    shell:
        "speedstudy select --config {params.cfg:q} --candidates {input.candidates}"
        " --embeddings {input.embeddings} --out {output.prompts}"
        " --report {output.report} 2> {log}"


rule compare_selections:
    """Compare the selection with greedy, random and Spec-Bench's choice and the least possible."""
    input:
        candidates=selected_needs("resources/candidates/{}.parquet", PLAN.data.candidates),
        compared=[
            path
            for id_ in PLAN.data.compared
            for path in need_paths(
                "resources/candidates/{}.parquet",
                PLAN.data.compared,
                id_,
                PLAN.data.candidates,
            )
        ],
        embeddings=selected_needs("resources/embeddings/{}.npz", PLAN.data.embeddings)
        + expand("resources/embeddings/{embeddings}.npz", embeddings=PLAN.data.compared),
        prompts=expand("results/prompts/{selected}.parquet", selected=PLAN.data.selected),
        report=expand("results/prompts/{selected}.json", selected=PLAN.data.selected),
    output:
        "results/tables/diversity.csv",
    log:
        "logs/compare_selections.log",
    conda:
        "../envs/study.yaml"
    params:
        # The names of what it reads, since its output is named plainly.
        made_from=canonical(list(PLAN.data.selected)),
        code=fingerprint("speedstudy.compare_selections"),
    shell:
        "speedstudy compare-selections --candidates {input.candidates}"
        " --compared {input.compared} --embeddings {input.embeddings} --prompts {input.prompts} --report {input.report}"
        " --out {output} 2> {log}"


rule describe:
    """Count and measure the selected prompts by category, source, difficulty, language, turns."""
    input:
        prompts=expand("results/prompts/{selected}.parquet", selected=PLAN.data.selected),
        tokenizer=expand("resources/models/{model}/config.json", model=HF_MODELS[:1]),
    output:
        "results/tables/describe.csv",
    log:
        "logs/describe.log",
    conda:
        "../envs/study.yaml"
    params:
        made_from=canonical([*PLAN.data.selected, *HF_MODELS[:1]]),
        code=fingerprint("speedstudy.describe"),
    shell:
        "speedstudy describe --prompts {input.prompts}"
        " --tokenizer $(dirname {input.tokenizer}) --out {output} 2> {log}"


rule bucket:
    """Cut texts to one exact length in tokens."""
    input:
        texts=lambda wildcards: need_paths(
            "resources/candidates/{}.parquet",
            PLAN.data.buckets,
            wildcards.bucket,
            PLAN.data.candidates,
        ),
        target=lambda wildcards: need_paths(
            "resources/models/{}/config.json",
            PLAN.data.buckets,
            wildcards.bucket,
            PLAN.data.models,
        ),
    output:
        "results/buckets/{bucket}.parquet",
    log:
        "logs/bucket/{bucket}.log",
    conda:
        "../envs/study.yaml"
    params:
        cfg=lambda wildcards: node_json(PLAN.data.buckets, wildcards.bucket),
        target=lambda wildcards, input: str(Path(input.target[0]).parent),
        tokenizer=lambda wildcards, input: (
            str(Path(input.target[0]).parent)
            if PLAN.data.buckets[wildcards.bucket].cfg["tokenizer"] == "target"
            else "o200k_base"
        ),
        code=fingerprint("speedstudy.bucket"),
    shell:
        "speedstudy bucket --config {params.cfg:q} --texts {input.texts}"
        " --tokenizer {params.tokenizer} --target {params.target} --out {output} 2> {log}"


rule tokenize:
    """Render the target's chat template and encode, once, outside every engine."""
    input:
        model=lambda wildcards: need_paths(
            "resources/models/{}/config.json",
            PLAN.data.workloads,
            wildcards.workload,
            PLAN.data.models,
        ),
        prompts=lambda wildcards: need_paths(
            "results/prompts/{}.parquet",
            PLAN.data.workloads,
            wildcards.workload,
            PLAN.data.selected,
        )
        + need_paths(
            "results/buckets/{}.parquet",
            PLAN.data.workloads,
            wildcards.workload,
            PLAN.data.buckets,
        ),
    output:
        workload="results/workloads/{workload}.parquet",
        warmup="results/workloads/{workload}.warmup.parquet",
    log:
        "logs/tokenize/{workload}.log",
    conda:
        "../envs/study.yaml"
    params:
        cfg=lambda wildcards: node_json(PLAN.data.workloads, wildcards.workload),
        code=fingerprint("speedstudy.tokenize"),
    shell:
        "speedstudy tokenize --config {params.cfg:q} --prompts {input.prompts}"
        " --tokenizer $(dirname {input.model}) --out {output.workload}"
        " --warmup-out {output.warmup} 2> {log}"

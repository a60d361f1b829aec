"""
Make local what the study is made from: the only rules that may touch a network
(but for an embedding endpoint, see select.smk).

REQUIRED INPUTS:
    none; artifacts are pinned in config/source, config/embedder and config/target

OUTPUTS:
    resources/artifacts/{artifact}/manifest.json   checksummed files of one artifact
    resources/candidates/{candidates}.parquet      candidates, or long texts, of one source
    resources/models/{model}/config.json           a target in the format of an engine
"""


rule fetch:
    """Fetch one pinned artifact (package index, hub, GitHub or file) and check its sums."""
    output:
        "resources/artifacts/{artifact}/manifest.json",
    log:
        "logs/fetch/{artifact}.log",
    retries: 2
    conda:
        "../envs/study.yaml"
    params:
        cfg=lambda wildcards: node_json(PLAN.data.artifacts, wildcards.artifact),
    shell:
        "speedstudy fetch --config {params.cfg:q} --name {wildcards.artifact}"
        " --out {output} 2> {log}"


rule collect:
    """Turn the rows of one source into candidates, or long texts."""
    input:
        manifest=lambda wildcards: need_paths(
            "resources/artifacts/{}/manifest.json",
            PLAN.data.candidates,
            wildcards.candidates,
            PLAN.data.artifacts,
        ),
    output:
        "resources/candidates/{candidates}.parquet",
    log:
        "logs/collect/{candidates}.log",
    conda:
        "../envs/study.yaml"
    params:
        cfg=lambda wildcards: node_json(PLAN.data.candidates, wildcards.candidates),
        code=collect_code,
    shell:
        "speedstudy collect --config {params.cfg:q} --manifest {input.manifest}"
        " --out {output} 2> {log}"


rule convert:
    """Convert a target once into the format that an engine loads."""
    input:
        # By name, not by time: the same name is the same model, however often it is made.
        source=lambda wildcards: [ancient(path) for path in model_sources(wildcards.model)],
    output:
        "resources/models/{model}/config.json",
    log:
        "logs/convert/{model}.log",
    conda:
        "../envs/study.yaml"
    params:
        cfg=lambda wildcards: node_json(PLAN.data.models, wildcards.model),
        # As with cells, what depends on `input` is not compared: where it lies changes no model.
        converter=lambda wildcards, input: converter_flag(wildcards.model),
    shell:
        "speedstudy convert --config {params.cfg:q} --source {input.source} {params.converter}"
        " --out {output} 2> {log}"

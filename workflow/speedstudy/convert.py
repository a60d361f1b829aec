"""One set of weights in the formats the engines want: GGUF -> HF folder -> OpenVINO IR or GGUF.

An acceptance study compares engines on *the same model*. OpenVINO's own GGUF reader does not give
the model that transformers reads from the same file (its first greedy token agreed for 7 of 20
prompts), so a GGUF is dequantised once into an HF folder with bfloat16 weights, and that folder
is the model from then on: transformers and vLLM read it, and OpenVINO gets an IR that holds the
same bfloat16 numbers, bit by bit. What comes as an HF folder becomes a GGUF by the converter that
belongs to the llama.cpp that will read it: names and layouts are theirs to change.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speedstudy.artifacts import MANIFEST, read_manifest
from speedstudy.openvino_eagle3 import check_head, export_eagle3, is_eagle3_head
from speedstudy.openvino_export import check_convertible, export_causal_lm

CONVERTER = Path("convert/convert_hf_to_gguf.py")  # beside llama.cpp's server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``speedstudy convert``."""
    parser.add_argument(
        "--config",
        type=json.loads,
        required=True,
        help='JSON: {"from": "gguf" | "hf", "to": "gguf" | "hf" | "openvino"}; from hf to gguf '
        'also {"llamacpp": version}',
    )
    parser.add_argument(
        "--source",
        type=Path,
        required=True,
        nargs="+",
        help="manifest.json of the model's artifact, or config.json of a converted model; for the "
        "GGUF of a drafter then config.json of its target's HF folder",
    )
    parser.add_argument(
        "--engine-command",
        type=json.loads,
        help="JSON list: the command of the llama.cpp that will read a GGUF made from an HF folder",
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="config.json to write; the model goes beside it"
    )


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run ``speedstudy convert``; returns the folder.

    Raises:
        ValueError: There is no such conversion, or as the conversion itself.
    """
    (source, *target), out = arguments.source, arguments.out.parent
    match arguments.config:
        case {"from": "gguf", "to": "hf"}:
            gguf_to_hf(_only_file(source, "*.gguf"), out)
        case {"from": "gguf", "to": "gguf"}:
            _link_gguf(_only_file(source, "*.gguf"), out)
        case {"from": "hf", "to": "hf"}:
            _link_folder(_only_file(source, "config.json").parent, out)
        case {"from": "hf", "to": "openvino"}:
            hf_to_openvino(_hf_folder(source), out)
        case {"from": "hf", "to": "gguf"}:
            target_dir = _hf_folder(target[0]) if target else None
            hf_to_gguf(_hf_folder(source), out, _converter(arguments.engine_command), target_dir)
        case other:
            raise ValueError(f"convert: no way from {other.get('from')} to {other.get('to')}")
    return {"folder": str(out)}


def _only_file(manifest: Path, pattern: str) -> Path:
    found = [path for path in read_manifest(manifest).values() if path.match(pattern)]
    if len(found) != 1:
        raise ValueError(f"{manifest}: {len(found)} files are {pattern}; a model needs one")
    return found[0]


def _hf_folder(source: Path) -> Path:
    """Return the folder of a converted model, or of a downloaded one after a look at its files."""
    return (_only_file(source, "config.json") if source.name == MANIFEST else source).parent


def _link_gguf(gguf: Path, out: Path) -> None:
    """Give a GGUF file a folder as other models have one: ``model.gguf``, and config.json last."""
    with _new_folder(out) as folder:
        (folder / "model.gguf").symlink_to(gguf.resolve())
        (folder / "config.json").write_text(json.dumps({"gguf": gguf.name}), encoding="utf-8")


def _link_folder(source: Path, out: Path) -> None:
    """Give a downloaded HF folder the name of a converted one, without a copy of its weights."""
    with _new_folder(out) as folder:
        for path in sorted(source.iterdir()):
            (folder / path.name).symlink_to(path.resolve())


def gguf_to_hf(gguf: Path, out: Path) -> Path:
    """Dequantise a GGUF file into an HF folder with tokenizer and chat template.

    The weights are what the GGUF's blocks decode to, rounded to bfloat16: that rounding is part
    of the model's definition here, and every engine gets it. Takes about 30 s for a vocabulary of
    49,152, most of it for the tokenizer's merges.

    Args:
        gguf: The file; transformers must know its architecture.
        out: The folder to make. It appears whole or not at all.

    Returns:
        ``out``.

    Raises:
        ValueError: ``gguf`` is not a file, transformers can't read it, or ``out`` exists.
    """
    if not gguf.is_file():
        raise ValueError(f"{gguf}: no such GGUF file")
    with _new_folder(out) as folder:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

        try:
            _progress(f"reading {gguf.name}")
            model = AutoModelForCausalLM.from_pretrained(
                gguf.parent,
                gguf_file=gguf.name,
                dtype=torch.bfloat16,
                # Packed weights, the default, can't be written by save_pretrained.
                quantization_config=GgufConfig(dequantize=True),
            )
            _progress("reading the tokenizer")
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        except (ValueError, KeyError, NotImplementedError) as error:
            raise ValueError(f"{gguf}: transformers can't read this GGUF file: {error}") from error
        _progress(f"writing {model.num_parameters():,} bfloat16 parameters")
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return out


def hf_to_openvino(hf_dir: Path, out: Path) -> Path:
    """Convert an HF folder into a stateful OpenVINO IR with the same bfloat16 weights.

    Args:
        hf_dir: HF folder of a decoder-only model or an EAGLE-3 head, weights in bfloat16.
        out: The folder to make: ``openvino_model.xml``/``.bin``, ``config.json``, and of a model
            ``generation_config.json``, the HF tokenizer's files and OpenVINO's, by which GenAI
            tells whether a draft model suits its target. It appears whole or not at all.

    Returns:
        ``out``.

    Raises:
        ValueError: The architecture is not one that a test holds to its torch model, its attention
            or rotary embedding is of a kind that the trace can't hold, or ``out`` exists.
    """
    head = is_eagle3_head(hf_dir)
    (check_head if head else check_convertible)(hf_dir)
    with _new_folder(out) as folder:
        import openvino as ov

        _progress(f"tracing {hf_dir}")
        ir = (export_eagle3 if head else export_causal_lm)(hf_dir)
        _progress("writing")
        ov.save_model(ir, folder / "openvino_model.xml", compress_to_fp16=False)
        if not head and (hf_dir / "tokenizer.json").is_file():
            _progress("converting the tokenizer")
            _write_openvino_tokenizer(hf_dir, folder)
        for source in sorted(hf_dir.iterdir()):
            if (
                source.is_file()
                and source.suffix in (".json", ".jinja")
                and source.name != MANIFEST
            ):
                shutil.copyfile(source, folder / source.name)
    return out


def _write_openvino_tokenizer(hf_dir: Path, folder: Path) -> None:
    import openvino as ov
    from openvino_tokenizers import convert_tokenizer
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(hf_dir, local_files_only=True)
    parts = zip(
        ("tokenizer", "detokenizer"),
        convert_tokenizer(tokenizer, with_detokenizer=True),
        strict=True,
    )
    for name, part in parts:
        ov.save_model(part, folder / f"openvino_{name}.xml")


def _converter(engine_command: list[str] | None) -> Path:
    """Return the path of the converter that belongs to a llama.cpp server."""
    server = Path(engine_command[0] if engine_command else "llama-server")
    converter = server.parent / CONVERTER
    if not converter.is_file():
        raise ValueError(
            f"{converter}: no such converter; `make engine-llamacpp` leaves it there, for a "
            f"llama.cpp of your own link its sources as {converter.parent}"
        )
    return converter


def hf_to_gguf(hf_dir: Path, out: Path, converter: Path, target_dir: Path | None) -> Path:
    """Convert an HF folder into ``model.gguf``, with weights as they are stored where GGUF can.

    Args:
        hf_dir: HF folder of a model or of an EAGLE-3 head.
        out: The folder to make. It appears whole or not at all.
        converter: llama.cpp's ``convert_hf_to_gguf.py``. It runs in our own environment.
        target_dir: HF folder of a head's target, whose tokenizer and sizes go into the head's
            file; None for a model.

    Returns:
        ``out``.

    Raises:
        ValueError: The converter failed, for the reason that it printed, or ``out`` exists.
    """
    with _new_folder(out) as folder:
        target = () if target_dir is None else ("--target-model-dir", target_dir)
        command = (sys.executable, converter, hf_dir, "--outfile", folder / "model.gguf", *target)
        if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
            raise ValueError(
                f"{hf_dir}: llama.cpp's converter can't make a GGUF of it; it says why above"
            )
        (folder / "config.json").write_text(json.dumps({"gguf": "model.gguf"}), encoding="utf-8")
    return out


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``out`` that becomes ``out`` unless the body raises."""
    if (out / "config.json").exists():
        raise ValueError(f"{out} exists already; remove it to convert again")
    folder = out.with_name(f".{out.name}.partial")
    shutil.rmtree(folder, ignore_errors=True)  # of a conversion that was killed
    folder.mkdir(parents=True)
    try:
        yield folder
        shutil.rmtree(out, ignore_errors=True)  # without config.json it is not a model
        folder.rename(out)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _progress(message: str) -> None:
    print(f"convert: {message}", file=sys.stderr, flush=True)

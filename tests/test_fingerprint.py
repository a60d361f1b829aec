"""The code fingerprint: content, not time; this package, not others."""

import pytest

from speedstudy import fingerprint as module
from speedstudy.fingerprint import fingerprint

A = '"""Doc."""\nfrom speedstudy.b import f\n\ndef g():\n    """Doc."""\n    return f() + 1\n'
B = "def f():\n    return 1\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    def write(a=A, b=B, c="x = 1\n"):
        for name, text in (("__init__", ""), ("a", a), ("b", b), ("c", c)):
            (tmp_path / f"{name}.py").write_text(text)
        module._parse.cache_clear()
        return fingerprint("speedstudy.a")

    monkeypatch.setattr(module, "ROOT", tmp_path)
    yield write
    module._parse.cache_clear()


def test_docstrings_comments_and_layout_do_not_count(package):
    edited = A.replace("Doc.", "Other words.").replace("return", "# why\n    return")
    assert package() == package(a=edited)


def test_code_counts_here_and_in_what_it_imports(package):
    assert package() != package(a=A.replace("+ 1", "+ 2"))
    assert package() != package(b=B.replace("1", "2"))


def test_imports_inside_functions_count(package):
    lazy = "def g():\n    from speedstudy.b import f\n    return f()\n"
    assert package(a=lazy) != package(a=lazy, b=B.replace("1", "2"))


def test_an_unrelated_module_does_not_count(package):
    assert package() == package(c="x = 2\n")


def test_an_unknown_module_is_an_error(package):
    package()
    with pytest.raises(ValueError, match=r"no module speedstudy\.nosuch"):
        fingerprint("speedstudy.nosuch")

"""mkdocs: what pages take from the library and from the records.

`{{ settings NAME … }}` is a table of the fields of each class of `mfauc_jax`, `{{ settings parts }}` of every part of a
model, `{{ metrics }}` the table of metrics, `{{ version }}` the version, `{{ notebook FILE }}` the cells of a notebook
with their outputs. Pictures of the experiments' records are copied into `images`.
"""

import json
import pathlib
import re

from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURES = ("study_top.png",)  # of experiments/results


def on_files(files: Files, config, **_) -> Files:
    """Add the pictures of the records."""
    for name in PICTURES:
        source = ROOT / "experiments" / "results" / name
        files.append(File.generated(config, f"images/{name}", abs_src_path=str(source)))
    return files


def on_page_markdown(markdown: str, **_) -> str:
    """Put in what a page asks for."""
    made = {"settings": settings, "metrics": metrics, "version": version, "notebook": notebook}

    def replaced(found: re.Match) -> str:
        name, _, words = found.group(1).partition(" ")
        return made[name](words) if words else made[name]()

    return re.sub(rf"\{{\{{ ((?:{'|'.join(made)})(?: [\w ./]+)?) \}}\}}", replaced, markdown)


def on_page_content(html: str, page, **_) -> str:
    """Make links of the citations in docstrings: of sections of the derivations, and of errata."""
    root = "../" if page.url else ""
    html = re.sub(
        r"(?<![\w/\"])docs/derivations\.md#([\w-]+)",
        rf'<a href="{root}derivations/#\1">derivations, \1</a>',
        html,
    )
    return re.sub(
        r"(?<![\w/\">])theory/README\.md, (E\d+)", rf'<a href="{root}errata/">errata, \1</a>', html
    )


def version() -> str:
    """The version of the library."""
    import mfauc_jax

    return mfauc_jax.__version__


def notebook(path: str) -> str:
    """The cells of a notebook as Markdown: text, code, and what it printed."""
    parts = []
    for cell in json.loads((ROOT / path).read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            text = "".join(output.get("text") or output["data"]["text/plain"]).rstrip()
            parts.append(f"```text\n{text}\n```")
    return "\n\n".join(parts)


def settings(names: str) -> str:
    """One table per class: name, default, what a value must be, what it is."""
    import mfauc_jax
    from mfauc_jax._core.settings import Settings

    classes = [getattr(mfauc_jax, name) for name in names.split()] if names != "parts" else parts()
    tables = []
    for cls in classes:
        rows = [
            f"| `{name}` | `{cls.defaults()[name]!r}` | {spec.bounds} | {spec.help} |"
            for name, spec in cls.specs().items()
        ]
        if issubclass(cls, Settings):
            tables.append(f"**`{cls.__name__}`**: {(cls.__doc__ or '').splitlines()[0]}\n")
        if rows:
            tables.append(
                "\n".join(
                    ["| field | default | a value is | |", "| --- | --- | --- | --- |", *rows, ""]
                )
            )
    return "\n".join(tables)


def parts() -> list[type]:
    """Every class that a field of a model may be, family by family."""
    from mfauc_jax import MFAUC, Averaging

    found = []
    for spec in MFAUC.specs().values():
        if spec.base is not None:
            found += [c for c in spec.base.registry.values() if isinstance(c, type)] or [spec.base]
    return [*found, Averaging]


def metrics() -> str:
    """One row per registered metric."""
    from mfauc_jax.evaluation import formulas

    named = zip(formulas.KNOWN, formulas.METRICS.values(), strict=True)
    rows = [f"| `{name}` | {(formula.__doc__ or '').splitlines()[0]} |" for name, formula in named]
    return "\n".join(["| metric | |", "| --- | --- |", *rows])

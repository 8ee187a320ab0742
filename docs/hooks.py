"""mkdocs: tables that the library's own declarations fill in.

`{{ settings NAME … }}` is a table of the fields of each class of `mfauc_jax`, `{{ settings parts }}` of every part of a
model, `{{ metrics }}` the table of metrics.
"""

import re


def on_page_markdown(markdown: str, **_) -> str:
    """Put the tables where a page wants them."""
    markdown = re.sub(
        r"\{\{ settings ([\w ]+) \}\}", lambda found: settings(found.group(1)), markdown
    )
    return markdown.replace("{{ metrics }}", metrics()) if "{{ metrics }}" in markdown else markdown


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

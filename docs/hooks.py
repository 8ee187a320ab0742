"""mkdocs: `{{ hyper_parameters }}` on a page is the table of MFAUC's fields, from the class itself."""

import dataclasses


def on_page_markdown(markdown: str, **_) -> str:
    """Put the table where it is asked for."""
    mark = "{{ hyper_parameters }}"
    return markdown.replace(mark, table()) if mark in markdown else markdown


def table() -> str:
    """A row a field: name, default, what it is."""
    from mfauc_jax import MFAUC

    rows = [
        f"| `{f.name}` | `{f.default!r}` | {f.metadata['help']} |"
        for f in dataclasses.fields(MFAUC)
    ]
    return "\n".join(["| name | default | |", "| --- | --- | --- |", *rows])

"""Every figure and table of the paper, and a report with the paper's numbers beside ours.

    python -m experiments.regenerate [--preset=quick|paper] [--only=fig_roc,tab_synthetic]
                                     [--out=DIR] [--data_dir=DIR] [--draw_only]

Records go to DIR/<artefact>.jsonl, figures beside them, the report to DIR/report.html and
DIR/RESULTS.md. Finished cells are read back, so a run that was killed goes on where it stopped.
`--preset=paper` is each module's `Config()`, `quick` what its `QUICK` makes of it.
"""

import dataclasses
import importlib
import json
import pathlib
import sys
import time
import traceback
from typing import Any

import jax

from experiments import flags, report, results
from mfauc_jax._core import registry

ARTEFACTS = {  # by module; what the paper calls them
    "fig_loss_plots": "Fig. 1",
    "fig_blocks": "Fig. 2",
    "tab_datasets": "Table 3",
    "fig_roc": "Fig. 3",
    "fig_timings": "Fig. 4 and Table 1",
    "tab_synthetic": "Table 2",
    "tab_real": "Table 4",
    "fig_bounds": "Section 3",
}
TEXT_ONLY = (
    "tab_datasets",
    "tab_synthetic",
    "tab_real",
)  # the report sets them; there is no figure


@dataclasses.dataclass(frozen=True)
class Config:
    """What to make, how thoroughly, and where."""

    preset: str = flags.option("quick", "quick or paper")
    only: tuple[str, ...] = flags.option(("all",), f"of {', '.join(ARTEFACTS)}")
    out: str = flags.option("out", "folder of records, figures and report")
    data_dir: str = flags.option("", "folder of the real data sets; without it they are left out")
    draw_only: bool = flags.option(False, "figures and report from the records that are there")
    limit: int = flags.option(0, "stop each artefact after so many new cells; 0: no limit")


def main(config: Config) -> int:
    """Run, draw, report; the exit code is 1 if an artefact failed."""
    registry.lookup("preset", {"quick": 0, "paper": 0}, config.preset)
    wanted = list(ARTEFACTS) if config.only == ("all",) else list(config.only)
    for name in wanted:
        registry.lookup("artefact", ARTEFACTS, name)
    begun, failed = time.perf_counter(), []
    for place, name in enumerate(wanted, 1):
        print(f"[{place}/{len(wanted)}] {ARTEFACTS[name]}: {name}", file=sys.stderr, flush=True)
        try:
            make(name, config)
        except results.Enough as enough:
            print(f"{name}: stopped, {enough}", file=sys.stderr)
        except Exception:  # the other artefacts are worth having
            traceback.print_exc()
            failed.append(name)
    for path in report.write(config.out, failed):
        print(path)
    print(f"{(time.perf_counter() - begun) / 60:.1f} minutes", file=sys.stderr)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def make(name: str, config: Config) -> list[pathlib.Path]:
    """One artefact: its records, then its figures from them."""
    module = importlib.import_module(f"experiments.{name}")
    its = configured(module, name, config)
    path = pathlib.Path(its.results)
    try:
        if not (config.draw_only or (path.exists() and _same(its, results.read(path)))):
            results.keep(its, module.run(its))
    finally:  # what is there is drawn, whether the run came to its end or not
        found = results.read(path) if path.exists() else []
        drawn = module.draw(found, config.out) if found and name not in TEXT_ONLY else []
    return drawn


def configured(module: Any, name: str, config: Config) -> Any:
    """The module's Config at the preset, with our folders."""
    known = {f.name for f in dataclasses.fields(module.Config)}
    ours = {
        "out": config.out,
        "results": f"{config.out}/{name}.jsonl",
        "limit": config.limit,
        "data_dir": config.data_dir,
    }
    quick = getattr(module, "QUICK", {}) if config.preset == "quick" else {}
    return module.Config(**quick, **{k: v for k, v in ours.items() if k in known})


def _same(its: Any, records: list[dict]) -> bool:
    """Whether whole-run records are of this config, whatever its folders.

    Where data were missing, another folder of data is worth another run; no folder at all is not.
    """
    ignored = {"out", "results", "limit", "data_dir"}
    if getattr(its, "data_dir", "") and any(r.get("note") for r in records):
        ignored.remove("data_dir")

    def plain(values: dict) -> dict:
        return json.loads(json.dumps({k: v for k, v in values.items() if k not in ignored}))

    mine = plain(dataclasses.asdict(its))
    return bool(records) and all(plain(r.get("config", {})) == mine for r in records)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 2)  # for the blocks of fig_timings
    flags.run(Config, main)

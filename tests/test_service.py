"""The service of docs/production.md, exactly as printed: it answers, follows its link, and survives a bad model."""

import json
import pathlib
import time
import urllib.error
import urllib.request

import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'mfauc_jax[service]'")
pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'mfauc_jax[service]'")

from experiments import bench_service
from mfauc_jax import MFAUC

ROOT = pathlib.Path(__file__).parent.parent


def ask(port: int, path: str, body: object = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_the_page_prints_the_service_that_is_run():
    page = (ROOT / "docs" / "production.md").read_text()
    assert '--8<-- "docs/service/app.py"' in page
    assert '--8<-- "docs/service/Dockerfile"' in page


def test_the_service_answers_and_follows_its_link(tmp_path):
    config = bench_service.Config(data_dir="", rank=4)
    X = bench_service.positives(config)
    models = [MFAUC(rank=4, seed=seed).fit(X) for seed in range(2)]
    for version, model in enumerate(models):
        model.save(tmp_path / f"{version}.model")
    (tmp_path / "2.model").write_bytes(b"no model")
    bench_service.switch(tmp_path, 0)
    with bench_service.served(tmp_path, reload_seconds=0.1) as (port, _):
        answer = ask(port, "/users/u7?n=3")
        items, _ = models[0].recommend(["u7"], n=3)
        assert answer["version"] == "0.model"
        assert [found["item"] for found in answer["items"]] == items[0].tolist()
        popular = models[0].recommend(["nobody"], n=4, unknown="popular").items[0].tolist()
        for path, body in (("/users/nobody?n=4", None), ("/baskets?n=4", ["none such"])):
            assert [found["item"] for found in ask(port, path, body)["items"]] == popular
        basket = ["i1", "none such", "i2"]
        visitor = models[0].fold_in((["v", "v"], ["i1", "i2"])).recommend("v", n=4).items
        assert [f["item"] for f in ask(port, "/baskets?n=4", basket)["items"]] == visitor.tolist()
        near = models[0].similar_items("i1", n=2)[0].tolist()
        assert [found["item"] for found in ask(port, "/items/i1?n=2")["items"]] == near
        for path, code in (("/items/none", 404), ("/users/u1?n=0", 422), ("/users/u1?n=101", 422)):
            with pytest.raises(urllib.error.HTTPError) as error:
                ask(port, path)
            assert error.value.code == code

        bench_service.switch(tmp_path, 2)  # cannot be loaded: the old one goes on
        wait_for(lambda: "goes on" in (tmp_path / "log.txt").read_text())
        assert ask(port, "/health")["version"] == "0.model"
        bench_service.switch(tmp_path, 1)
        wait_for(lambda: ask(port, "/health")["version"] == "1.model")
    assert "ModelFileError" in (tmp_path / "log.txt").read_text()


def wait_for(what) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, "waited for a minute"
        time.sleep(0.05)


def test_a_second_under_load_has_no_error():
    config = bench_service.Config(data_dir="", rank=4, seconds=3.0, reload_seconds=0.1, clients=4)
    (found,) = bench_service.run(config)
    assert found["errors"] == 0 and found["requests"] > 20
    assert found["versions"] == ["0.model", "1.model"]
    assert bench_service.met(found | {"p99": 20.0, "growth": 1.02})
    for missed in ({"p99": 20.1}, {"growth": 1.03}, {"errors": 1}, {"versions": ["0.model"]}):
        assert not bench_service.met(found | {"p99": 1.0, "growth": 1.0} | missed)

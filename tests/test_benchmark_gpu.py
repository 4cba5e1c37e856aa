"""The GPU's few minutes, tried on a CPU with small shapes: every part runs and says what it saw."""

import json

import pytest

from arr_coc.benchmark import gpu

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    out = tmp_path_factory.mktemp("gpu") / "gpu.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "CROSSOVER", (64,))  # the least that such a base sees
        patch.setattr(gpu, "AT_ONCE", (1, 2))
        patch.setattr(gpu, "REPETITIONS", 1)
        gpu.main(["--device", "cpu", "--shapes", "tiny", "--sizes", "128", "--out", str(out)])
    return json.loads(out.read_text())


def test_every_part_runs_in_both_dtypes(report):
    assert report["left_out"] == [] and set(report["dtypes"]) == set(gpu.DTYPES)
    for parts in report["dtypes"].values():
        assert set(parts) == set(gpu.PARTS)
        assert parts["identity"]["bit_for_bit"] == {"before": True, "after": True}
        assert {e["case"] for e in parts["stages"]} == {"stock", *gpu.NAMES}
        assert {e["image_tokens"] for e in parts["crossover"]} == {64}
        assert [(row["look"], row["questions"]) for row in parts["many"]] == [
            ("stock", 1), ("focused", 1), ("stock", 2), ("focused", 2)
        ]  # fmt: skip


def test_what_there_was_no_time_for_is_named(tmp_path):
    out = tmp_path / "gpu.json"
    gpu.main(
        [
            "--device",
            "cpu",
            "--shapes",
            "tiny",
            "--sizes",
            "64",
            "--minutes",
            "0",
            "--out",
            str(out),
        ]
    )
    left = json.loads(out.read_text())["left_out"]
    assert len(left) == len(gpu.PARTS) * len(gpu.DTYPES) and left[0] == "identity in bfloat16"


def test_without_cuda_it_says_so(capsys):
    with pytest.raises(SystemExit):
        gpu.main(["--out", "nowhere.json"])
    assert "no CUDA device" in capsys.readouterr().err

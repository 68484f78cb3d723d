"""Times from numbers, durations and labels."""

from __future__ import annotations

import numpy as np
import pytest

from ordiff import single_cell as sc

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")  # comes with anndata


@pytest.mark.parametrize(
    ("labels", "values", "unit"),
    [
        (["0h", "24h", "48 hr"], [0, 24, 48], "hour"),
        (["day 2", "Day_10", "d0.5"], [2, 10, 0.5], "day"),
        (["E8.5", "E9.0", "E10"], [8.5, 9, 10], "day"),
        (["12h", "day 1", "1 week"], [12, 24, 168], "hour"),
        (["0", "30 min", "1h"], [0, 30, 60], "minute"),
        (["3", "1.5", "-2"], [3, 1.5, -2], ""),
        (["t=6", "T12", "time 18"], [6, 12, 18], ""),
        (["10hpf", "24 hpf", "2dpf"], [10, 24, 48], "hour"),
        ([5, 6, 7], [5, 6, 7], ""),
    ],
)
@pytest.mark.parametrize("kind", ["object", "category", "string"])
def test_times_in_words(labels, values, unit, kind):
    cells = anndata.AnnData(
        obs=pd.DataFrame({"t": pd.Series(labels).astype(kind).to_numpy(copy=True)}, index=list("abc"))
    )
    cells.obs["t"] = pd.Series(labels, index=cells.obs_names).astype(kind)
    times = sc.read_times(cells, "t")
    np.testing.assert_allclose(times.values, values)
    assert times.unit == unit


def test_durations_and_nullable_numbers():
    obs = pd.DataFrame(
        {"d": pd.to_timedelta([0, 36], unit="h"), "n": pd.array([1, 2], dtype="Int64")}, index=list("ab")
    )
    cells = anndata.AnnData(obs=obs)
    assert sc.read_times(cells, "d").values.tolist() == [0, 36]
    assert sc.read_times(cells, "d").unit == "hour"
    assert sc.read_times(cells, "n").values.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (["iPSC", "day 1", "day 2"], "no times: 'iPSC'"),
        (["E8.5", "P0", "P7"], "do not count from one moment"),
        (["24h", "48", "72h"], "without: '48'"),
        (["0-2h", "2-4h", "4-6h"], "no times: '0-2h'"),
        (["day-2", "day 1", "day 3"], "no times: 'day-2'"),
        ([True, False, True], "no time"),
    ],
)
def test_labels_that_are_no_times(labels, says):
    cells = anndata.AnnData(obs=pd.DataFrame({"t": labels}, index=list("abc")))
    with pytest.raises(ValueError, match=says):
        sc.read_times(cells, "t")

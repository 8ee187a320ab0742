import gzip
import sys

import jax
import numpy as np
import polars as pl
import pytest
import scipy.io

from mfauc_jax import data
from mfauc_jax.data import Filter, catalogue, layouts, splits

ROWS = [  # user, item, rating, time; (7, 30) twice
    (7, 10, 5.0, 100),
    (7, 30, 2.0, 300),
    (9, 10, 4.0, 150),
    (7, 30, 4.0, 250),
    (8, 20, 3.0, 400),
    (9, 20, 3.5, 120),
]
DATED = [(u, i, r, f"2007-10-10 00:{t // 60:02}:{t % 60:02}") for u, i, r, t in ROWS]
RECBOLE = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
BX = (
    '"User-ID";"ISBN";"Book-Rating"\r\n"8";"034545104X";"0"\r\n"8";"\\"0210000010";"5"\r\n'
    '"9";"8475560806º";"10"\r\n"9";"0155061224";"4"\r\n'
)


def lines(separator, rows=ROWS, header=""):
    return header + "".join(separator.join(map(str, row)) + "\n" for row in rows)


def whole(rows):
    return [(u, i, int(r), t) for u, i, r, t in rows]


def pairs(X):
    """The positives as external ids."""
    users, items = X.to_scipy().nonzero()
    return sorted(zip(X.user_ids[users].tolist(), X.item_ids[items].tolist(), strict=True))


def write(path, text, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.encode(encoding) if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


ALL = sorted({(u, i) for u, i, _, _ in ROWS})
ABOVE_3 = sorted({(u, i) for u, i, r, _ in ROWS if r > 3})


@pytest.mark.parametrize("gz", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("u.data", lines("\t")),
        ("u.data", lines("\t").replace("\n", "\r\n")),
        ("ratings.dat", lines("::")),
        ("ratings.csv", lines(",", header="userId,movieId,rating,timestamp\n")),
        (
            "mine.csv",
            "when,stars,User-ID,note,item_id\n"
            + "".join(f'{t},{r},{u},"a, ""b"" {u}",{i}\n' for u, i, r, t in ROWS),
        ),
        ("mine.tsv", lines("\t", header="user\titem\trating\ttime\n").rstrip("\n")),
        ("x.inter", lines("\t", header=RECBOLE)),
        ("Ratings.timed.txt", lines("\t", DATED, header="userid\tmovieid\trating\tdate\n")),
        ("ratings.txt", lines("\t", [row[:3] for row in ROWS])),
    ],
)
def test_every_text_layout_gives_the_same_positives(tmp_path, name, text, gz):
    path = write(tmp_path / (name + gz), text)
    assert pairs(data.read_ratings(path)) == ALL
    X = data.read_ratings(path, filter=Filter(above=3))
    assert pairs(X) == ABOVE_3
    assert X.user_ids.dtype == np.int64 and X.shape == (2, 3)


def test_parquet_mat_and_npz_give_the_same_positives(tmp_path):
    table = np.array(ROWS)
    frame = pl.DataFrame(ROWS, schema=["user_id", "item", "rating", "timestamp"], orient="row")
    frame.write_parquet(tmp_path / "r.parquet")
    fours = np.column_stack([table[:, 0], table[:, 1], np.zeros(6), table[:, 2]])
    scipy.io.savemat(tmp_path / "rating.mat", {"rating": fours})
    kinds = {"row": table[:, 0].astype(int), "col": table[:, 1].astype(int), "rating": table[:, 2]}
    np.savez(tmp_path / "r.npz", **kinds)
    for name in ("r.parquet", "rating.mat", "r.npz"):
        assert pairs(data.read_ratings(tmp_path / name)) == ALL
        assert pairs(data.read_ratings(tmp_path / name, filter=Filter(above=3))) == ABOVE_3


def test_columns_may_be_named_and_ids_may_be_text(tmp_path):
    path = write(tmp_path / "log.csv", "who,what,x\nann,007,1\nann,7,2\nböb,007,3\n")
    X = data.read_ratings(path, user="who", item="what", rating="x", filter=Filter(above=1))
    assert pairs(X) == [("ann", "7"), ("böb", "007")]


def test_lightgcn_lists_a_users_items_on_a_line(tmp_path):
    path = write(tmp_path / "train.txt", "0 3 1\n1 \n2 1\n\n")
    assert pairs(data.read_ratings(path)) == [(0, 1), (0, 3), (2, 1)]


def test_book_crossing_is_latin_1_with_escaped_quotes(tmp_path):
    write(tmp_path / "book-crossing" / "BX-Book-Ratings.csv.gz", BX, "latin-1")
    X = data.load("book-crossing", tmp_path, "everything")
    assert pairs(X) == [
        (8, '"0210000010'),
        (8, "034545104X"),
        (9, "0155061224"),
        (9, "8475560806º"),
    ]
    rule = catalogue.DATASETS["book-crossing"].filters["table"]._replace(user_min=1, item_min=1)
    X = data.load("book-crossing", tmp_path, rule)  # > 4 or = 0
    assert pairs(X) == [(8, '"0210000010'), (8, "034545104X"), (9, "8475560806º")]


def test_a_byte_order_mark_tells_the_encoding(tmp_path):
    text = lines("\t", header="userid\tmovieid\trating\tdate\n")
    for encoding in ("utf-16", "utf-8-sig"):
        path = write(tmp_path / "Ratings.timed.txt", text, encoding)
        assert pairs(data.read_ratings(path)) == ALL


def test_filters_agree_with_a_loop(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        (int(u), int(i), int(r), 0)
        for u, i, r in zip(
            rng.zipf(1.5, 2000) % 60,
            rng.zipf(1.4, 2000) % 90,
            rng.integers(1, 6, 2000),
            strict=True,
        )
    ]
    write(tmp_path / "ml-100k" / "u.data", lines("\t", rows))
    kept = {(u, i) for u, i, r, _ in rows if r > 3}
    while True:
        before = len(kept)
        for axis, least in ((0, 10), (1, 2)):
            counts = {}
            for pair in kept:
                counts[pair[axis]] = counts.get(pair[axis], 0) + 1
            kept = {pair for pair in kept if counts[pair[axis]] >= least}
        if len(kept) == before:
            break
    assert len(kept) > 50
    assert pairs(data.load("ml-100k", tmp_path)) == sorted(kept)


def test_times_follow_their_positives(tmp_path):
    path = write(tmp_path / "u.data", lines("\t", whole(ROWS)))
    X, times = data.read_timed(path)
    expected = {}
    for u, i, _, t in ROWS:
        expected[u, i] = max(t, expected.get((u, i), 0))
    assert dict(zip(pairs(X), times.tolist(), strict=True)) == expected
    assert pairs(splits.leave_last_out(X, times).test) == [(7, 30), (9, 10)]
    X, times = data.read_timed(path, filter=Filter(above=3, user_min=2))
    assert dict(zip(pairs(X), times.tolist(), strict=True)) == {(7, 10): 100, (7, 30): 250}


def test_dates_are_times_too(tmp_path):
    text = "user,item,date\n1,1,2020-01-02\n1,2,2020-01-01 10:00:00\n1,3,2019-05-05T08:00:00Z\n"
    X, times = data.read_timed(write(tmp_path / "d.csv", text))
    assert np.argsort(times).tolist() == [2, 1, 0]
    assert pairs(splits.leave_last_out(X, times).test) == [(1, 1)]


def test_gowalla_keeps_its_split(tmp_path):
    write(tmp_path / "gowalla" / "train.txt.gz", "0 0 1\n1 1 2\n2 3\n")
    write(tmp_path / "gowalla" / "test.txt.gz", "0 2\n1 0 4\n2 \n")
    train, test = data.load_split("gowalla", tmp_path)
    assert train.shape == test.shape == (3, 5)
    assert pairs(train) == [(0, 0), (0, 1), (1, 1), (1, 2), (2, 3)]
    assert pairs(test) == [(0, 2), (1, 0), (1, 4)]
    assert data.load("gowalla", tmp_path).nnz == 8
    split = splits.hold_out(jax.random.key(0), train, 1)
    assert split.train.user_ids is train.user_ids


def test_ml_10m_is_found_under_its_archives_name(tmp_path):
    write(tmp_path / "ml-10M100K" / "ratings.dat", lines("::"))
    assert pairs(data.load("ml-10m", tmp_path, "everything")) == ALL


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("u.data", "1\t2\t3\t4\n1\t2\t3\n", r"line 2: 3 columns instead of 4 \(user, item, rating"),
        ("u.data", "1\t2\t3\n1\t2\t3\t4\n", "line 1: 3 columns"),
        ("u.data", "1\t2\t3\t4\n1\t3\t3\t4\t5\n", "line 2: 5 columns"),
        ("u.data", "1\t2\t3\t4\n\n1\t3\t3\t4\n", "line 2: 1 columns"),
        ("u.data", "1\t2\t3\t4\n1\t3\tfive\t4\n", "line 2: rating 'five' is not a finite number"),
        ("u.data", "1\t2\t3\t4\n1\t3\tnan\t4\n", "line 2: rating 'nan'"),
        ("u.data", "1\t2\t3\t4\n1\t3\t\t4\n", "line 2: rating ''"),
        ("u.data", "1\t2\t3\t4\nx\t3\t1\t4\n", "line 2: user 'x' is not an integer"),
        ("u.data", "", "is empty"),
        ("ratings.dat", "1::2::3::4\n1::3::3\n", "line 2: 3 columns"),
        ("ratings.dat", "1::2::3::4\n1\t3\t3\t4\n", "line 2: a tab where :: separates"),
        ("ratings.csv", "userId,movieId,rating\n1,2,3\n1,2,x\n", "line 3: rating 'x'"),
        ("a.csv", 'user,item,rating\n1,"a, b",3\n2,c\n', "line 3: 2 columns instead of 3"),
        ("a.csv", "user,item,note\n1,2,x\n3,4\n", "line 3: 2 columns instead of 3"),
        ("a.csv", "user,item,rating\n1,2,3\n2,2,good\n", "line 3: rating 'good'"),
        ("a.csv", "user,item,rating\n1,2,3\n,2,3\n", "line 3: user is empty"),
        ("a.csv", "user,item,rating\n", "no ratings below its header"),
        ("a.csv", "user,thing\n1,2\n", "looks like item ids among user, thing: pass item="),
        ("a.csv", "user,item,item\n1,2,2\n", "comes twice"),
        ("a.inter", "user_id\titem_id:token\n1\t2\n", "line 1: column 'user_id' has no type"),
        ("train.txt", "0 1 2\n1 x\n", "line 2: 'x' is not an item number"),
        ("BX-Book-Ratings.csv", BX + "9;1234;3\r\n", "line 6: 1 columns instead of 3"),
        ("BX-Book-Ratings.csv", BX + '"9";"1234";"ten"\r\n', "line 6: rating 'ten'"),
        ("ratings.unknown", "1 2 3", "does not tell its layout: pass layout="),
        ("r.parquet", "PAR1 or not", "is not sound parquet"),
        ("rating.mat", "no matlab", "is not a sound MATLAB file"),
        ("r.npz", "no numpy", "is not a sound .npz"),
        ("u.data", b"PK\x03\x04 something", "is a zip archive"),
        ("u.data", "1\t2\t3\t4\n".encode("utf-16-le"), "zero bytes, so it is not utf-8"),
        ("a.csv", "user,item\n1,2\n3,é\n".encode("latin-1"), "line 3: byte 0xe9 is not utf-8"),
    ],
)
def test_a_bad_file_is_told_to_the_line(tmp_path, name, text, message):
    path = write(tmp_path / name, text, "latin-1" if name.startswith("BX") else "utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        data.read_ratings(path)
    assert name in str(caught.value)


def test_the_encoding_may_be_said(tmp_path):
    path = write(tmp_path / "a.csv", "user,item\n1,é\n", "latin-1")
    assert pairs(data.read_ratings(path, encoding="latin-1")) == [(1, "é")]
    with pytest.raises(ValueError, match="encoding 'latin-99' is unknown"):
        data.read_ratings(path, encoding="latin-99")


@pytest.mark.parametrize("cut", [5, 20, -9, -1])
def test_a_truncated_or_damaged_gzip_is_an_error(tmp_path, cut):
    path = write(tmp_path / "u.data.gz", lines("\t", whole(ROWS) * 50))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError, match=r"u\.data\.gz is a truncated or damaged gzip"):
        data.read_ratings(path)


def test_a_flipped_byte_in_a_gzip_is_an_error(tmp_path):
    path = write(tmp_path / "u.data.gz", lines("\t", whole(ROWS) * 50))
    content = bytearray(path.read_bytes())
    content[-7] ^= 0xFF  # the checksum
    path.write_bytes(content)
    with pytest.raises(ValueError, match="truncated or damaged gzip"):
        data.read_ratings(path)


def test_nothing_left_is_an_error_that_says_why(tmp_path):
    path = write(tmp_path / "u.data", lines("\t", whole(ROWS)))
    with pytest.raises(ValueError, match=r"none of 6 ratings, from 2.0 to 5.0, is above 5"):
        data.read_ratings(path, filter=Filter(above=5))
    with pytest.raises(ValueError, match="no positives are left of 5 when users need 9"):
        data.read_ratings(path, filter=Filter(user_min=9))
    path = write(tmp_path / "train.txt", "0 1 2\n")
    with pytest.raises(ValueError, match="has no ratings to compare with above = 3"):
        data.read_ratings(path, filter=Filter(above=3))
    with pytest.raises(ValueError, match="has no column for time: it has user, item"):
        data.read_timed(path)


def test_unknown_names_list_what_there_is_and_where_it_was_looked_for(tmp_path):
    write(tmp_path / "mine" / "x", "")
    with pytest.raises(
        ValueError, match=r"did you mean 'ml-100k'\? choose from ml-100k, ml-1m"
    ) as e:
        data.load("ml-100", tmp_path)
    assert f"looked in {tmp_path}, which holds mine" in str(e.value)
    with pytest.raises(ValueError, match="which is empty or not there"):
        data.load("nothing", tmp_path / "nowhere")
    write(tmp_path / "ml-100k" / "u.data", lines("\t", whole(ROWS)))
    with pytest.raises(ValueError, match="unknown filter 'tabel': did you mean 'table'"):
        data.load("ml-100k", tmp_path, "tabel")
    with pytest.raises(ValueError, match=r"no split of its own \(flixster-3k-subset, gowalla do\)"):
        data.load_split("ml-100k", tmp_path)
    with pytest.raises(ValueError, match="unknown layout 'cvs': did you mean 'csv'"):
        data.read_ratings(tmp_path / "ml-100k" / "u.data", layout="cvs")


def test_a_missing_file_says_which_and_how_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"ml-1m/ratings.dat .*download\('ml-1m'"):
        data.load("ml-1m", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"Flixster not found at .* get it by asking"):
        data.load("flixster", tmp_path)
    write(tmp_path / "gowalla" / "train.txt", "0 1\n")
    with pytest.raises(FileNotFoundError, match=r"gowalla/test.txt "):
        data.load("gowalla", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nowhere.csv does not exist"):
        data.read_ratings(tmp_path / "nowhere.csv")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        data.read_ratings(tmp_path, layout="csv")


def test_float_ids_are_refused(tmp_path):
    pl.DataFrame({"user": [1.0], "item": [2]}).write_parquet(tmp_path / "f.parquet")
    with pytest.raises(TypeError, match="column user is Float64"):
        data.read_ratings(tmp_path / "f.parquet")


def test_the_papers_filters_are_the_ones_of_its_table():
    filters = {name: catalogue.DATASETS[name].filters for name in ("epinions", "book-crossing")}
    assert filters["epinions"]["table"] == Filter(3, 10, 3)
    assert filters["epinions"]["text"] == Filter(3, 10, 2)
    assert filters["book-crossing"]["table"] == Filter(4, 10, 3, zero=True)
    assert filters["book-crossing"]["text"] == Filter(4, 10, 2)


def test_every_file_of_the_catalogue_has_a_layout():
    for dataset in catalogue.DATASETS.values():
        assert {file.layout for file in dataset.files} <= set(layouts.LAYOUTS)


def test_importing_the_data_door_does_not_import_polars():
    import subprocess

    code = "import sys, mfauc_jax.data; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

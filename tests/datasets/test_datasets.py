"""Files in the formats that people download become data sets; generated logs are what they are said to be."""

from __future__ import annotations

import datetime
import gzip
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import everypair as ep
from everypair import datasets
from everypair.datasets.generated import CATEGORIES, LANGUAGES, MIXTURE, _probabilities

GENRES_100K = ["unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy"]
GENRES_100K += ["Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"]


def write(folder: Path, files: dict[str, str], encoding: str = "utf-8") -> Path:
    for name, text in files.items():
        (folder / name).write_text(text, encoding=encoding, newline="")
    return folder


def events(dataset: ep.Dataset) -> list[tuple[Any, Any]]:
    """Users and items by their own ids, in the order of the data set."""
    return [(dataset.users[u], dataset.items[i]) for u, i in zip(dataset.user, dataset.item, strict=True)]


def users(dataset: ep.Dataset) -> dict[Any, dict[str, Any]]:
    return dict(zip(dataset.users.values.to_pylist(), dataset.user_table.to_pylist(), strict=True))


def items(dataset: ep.Dataset) -> dict[Any, dict[str, Any]]:
    return dict(zip(dataset.items.values.to_pylist(), dataset.item_table.to_pylist(), strict=True))


def movie_100k(number: int, title: str, date: str, genres: set[str]) -> str:
    flags = "|".join(str(int(name in genres)) for name in GENRES_100K)
    return f"{number}|{title}|{date}||http://us.imdb.com/M/title-exact?{number}|{flags}\n"


@pytest.fixture
def movielens_100k(tmp_path: Path) -> Path:
    return write(
        tmp_path,
        {
            "u.data": "2\t10\t5\t900\n1\t30\t2\t300\n1\t10\t4\t100\n2\t20\t3\t800\n1\t40\t1\t200\n",
            "u.user": "1|24|M|technician|85711\n2|53||other|T8H1N\n3|23|F|writer|32067\n",
            "u.item": movie_100k(10, 'Misérables, Les: "A Tale" (1995)', "01-Jan-1995", {"Drama", "Musical"})
            + movie_100k(20, "unknown", "", {"unknown"})
            + movie_100k(30, "Land Before Time III (1995) (V)", "01-Jan-1995", {"Animation", "Children's"})
            + movie_100k(40, "Two Friends (1986) ", "26-Apr-1986", {"Western"}),
            "u.genre": "".join(f"{name}|{number}\n" for number, name in enumerate(GENRES_100K)) + "\n",
        },
        "latin-1",
    )


@pytest.fixture
def movielens_1m(tmp_path: Path) -> Path:
    return write(
        tmp_path,
        {
            "ratings.dat": "1::1193::5::978300760\n1::661::3::978302109\n2::1193::4::978298413\n2::3::1::978299000\n",
            "users.dat": "1::F::1::10::48067\n2::M::56::16::98107-2117\n",
            "movies.dat": '661::James and the Peach: 2, "the" (1996)::Animation|Children\'s|Musical\n'
            "1193::Cité des enfants perdus, La (1995)::Adventure\n3::Nothing Known::\n",
        },
        "latin-1",
    )


@pytest.fixture
def movielens_latest(tmp_path: Path) -> Path:
    return write(
        tmp_path,
        {
            "ratings.csv": "userId,movieId,rating,timestamp\r\n1,7,4.0,964982703\r\n1,5,0.5,964981247\r\n2,6,3.5,964982224\r\n"
            "2,8,5.0,964982225\r\n",
            "movies.csv": 'movieId,title,genres\r\n5,"American President, The (1995)",Comedy|Drama|Romance\r\n'
            '6,"""Great Performances"" Cats: Amélie ★ (1998)",Musical\r\n7,Babylon 5,Sci-Fi\r\n'
            "8,Death Note (2006\N{EN DASH}2007),(no genres listed)\r\n9,NULL (1999),War\r\n",
            "tags.csv": "userId,movieId,tag,timestamp\r\n",
        },
    )


def test_movielens_100k(movielens_100k: Path) -> None:
    dataset = datasets.movielens(str(movielens_100k))
    assert events(dataset) == [(1, 10), (1, 40), (1, 30), (2, 20), (2, 10)]
    assert dataset.time is not None
    assert dataset.time.tolist() == [100, 200, 300, 800, 900]
    assert dataset.event_table.to_pydict() == {"rating": [4.0, 1.0, 2.0, 3.0, 5.0]}
    assert users(dataset) == {
        1: {"age": 24, "gender": "M", "occupation": "technician", "zip": "85711"},
        2: {"age": 53, "gender": None, "occupation": "other", "zip": "T8H1N"},
    }
    assert items(dataset) == {
        10: {"title": 'Misérables, Les: "A Tale" (1995)', "year": 1995, "genres": ["Drama", "Musical"]},
        20: {"title": "unknown", "year": None, "genres": []},
        30: {"title": "Land Before Time III (1995) (V)", "year": 1995, "genres": ["Animation", "Children's"]},
        40: {"title": "Two Friends (1986) ", "year": 1986, "genres": ["Western"]},
    }
    assert dataset.notes == ["1 row of users has an id without interactions, such as 3: left out."]


def test_movielens_1m(movielens_1m: Path) -> None:
    dataset = datasets.movielens(movielens_1m)
    assert events(dataset) == [(1, 1193), (1, 661), (2, 1193), (2, 3)]
    assert users(dataset) == {
        1: {"gender": "F", "age": 1, "occupation": 10, "zip": "48067"},
        2: {"gender": "M", "age": 56, "occupation": 16, "zip": "98107-2117"},
    }
    assert items(dataset) == {
        3: {"title": "Nothing Known", "year": None, "genres": []},
        661: {"title": 'James and the Peach: 2, "the" (1996)', "year": 1996, "genres": ["Animation", "Children's", "Musical"]},
        1193: {"title": "Cité des enfants perdus, La (1995)", "year": 1995, "genres": ["Adventure"]},
    }
    assert dataset.notes == []


def test_movielens_10m_has_no_users_and_utf8(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "ratings.dat": "1::122::5::838985046\n1::185::4.5::838983525\n",
            "movies.dat": "122::Boomerang (1992)::Comedy|Romance\n185::Samurai: 七人の侍 (1954)::(no genres listed)\n",
        },
    )
    dataset = datasets.movielens(tmp_path)
    assert events(dataset) == [(1, 185), (1, 122)]
    assert dataset.event_table["rating"].to_pylist() == [4.5, 5.0]
    assert dataset.user_table.num_columns == 0
    assert items(dataset)[185] == {"title": "Samurai: 七人の侍 (1954)", "year": 1954, "genres": []}


def test_movielens_csv(movielens_latest: Path) -> None:
    dataset = datasets.movielens(movielens_latest)
    assert events(dataset) == [(1, 5), (1, 7), (2, 6), (2, 8)]
    assert items(dataset) == {
        5: {"title": "American President, The (1995)", "year": 1995, "genres": ["Comedy", "Drama", "Romance"]},
        6: {"title": '"Great Performances" Cats: Amélie ★ (1998)', "year": 1998, "genres": ["Musical"]},
        7: {"title": "Babylon 5", "year": None, "genres": ["Sci-Fi"]},
        8: {"title": "Death Note (2006\N{EN DASH}2007)", "year": None, "genres": []},
    }
    assert dataset.item_table["genres"].type == pa.list_(pa.string())
    assert pa.types.is_integer(dataset.item_table["year"].type)
    assert dataset.notes == ["1 row of items has an id without interactions, such as 9: left out."]


def test_movielens_at_least(movielens_latest: Path) -> None:
    dataset = datasets.movielens(movielens_latest, at_least=3.5)
    assert events(dataset) == [(1, 7), (2, 6), (2, 8)]
    assert dataset.event_table.num_columns == 0
    assert dataset.notes[0] == "1 event is left out: rating below 3.5."


@pytest.mark.parametrize(("repeats", "n"), [("keep", 3), ("sum", 3), ("drop", 2)])
def test_movielens_repeats(tmp_path: Path, repeats: str, n: int) -> None:
    ratings = "userId,movieId,rating,timestamp\n1,5,4.0,20\n1,5,4.0,10\n2,5,4.0,10\n"
    write(tmp_path, {"ratings.csv": ratings, "movies.csv": "movieId,title,genres\n5,A,B\n"})
    dataset = datasets.movielens(tmp_path, repeats=repeats)
    assert len(dataset) == n
    assert dataset.repeats == repeats


@pytest.mark.parametrize("missing", ["u.user", "u.item", "u.genre"])
def test_movielens_missing_file(movielens_100k: Path, missing: str) -> None:
    (movielens_100k / missing).unlink()
    with pytest.raises(FileNotFoundError) as caught:
        datasets.movielens(movielens_100k)
    message = str(caught.value)
    assert "must hold u.data, u.user, u.item and u.genre" in message
    assert f"but {missing} cannot be found. It holds: u.data, " in message


def test_movielens_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"u\.data.*ratings\.dat.*ratings\.csv.*It is empty"):
        datasets.movielens(tmp_path)
    write(tmp_path, {f"file{j:02d}": "" for j in range(20)})
    with pytest.raises(FileNotFoundError, match=r"It holds: file00, .*file11 and 8 more\."):
        datasets.movielens(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no such folder: .*nowhere"):
        datasets.movielens(tmp_path / "nowhere")
    with pytest.raises(NotADirectoryError, match=r"must be a folder, got the file .*file00"):
        datasets.movielens(tmp_path / "file00")


def test_movielens_damaged_csv(movielens_latest: Path) -> None:
    write(movielens_latest, {"ratings.csv": "userId,movieId,stars,timestamp\n1,5,4.0,20\n"})
    with pytest.raises(ValueError, match=r"ratings\.csv must have a header with the columns userId, movieId, rating, .*rating"):
        datasets.movielens(movielens_latest)


def test_movielens_damaged_dat(movielens_1m: Path) -> None:
    write(movielens_1m, {"ratings.dat": "1::5::4::20\n1::5::4\n"})
    with pytest.raises(ValueError, match=r"ratings\.dat must have no header, and the columns user, .*Expected 4 columns, got 3"):
        datasets.movielens(movielens_1m)


PLAYS = "usersha1-artmbid-artname-plays.tsv"
PROFILES = "usersha1-profile.tsv"


@pytest.fixture
def lastfm(tmp_path: Path) -> Path:
    return write(
        tmp_path,
        {
            PLAYS: "00a\t3bd73256\tbetty blowtorch, the\t2137\n"
            "00a\t\tsigur rós\t7\n"
            "00a\t3bd73256\tbetty blowtorch\t13\n"
            '00b\t\t"weird al"\t4\n'
            "00b\t\tnull\t5\n"
            "00b\t9e4c\tbjörk: live\t0\n"
            "00c\t9e4c\tbjörk: live\t-2\n"
            "00c\t\t\t8\n"
            "00c\t\tsigur rós\t1\n",
            PROFILES: "00a\tf\t22\tGermany\tFeb 1, 2007\n00b\t\t\tCôte d'Ivoire\tOct 30, 2006\n"
            "00c\tm\t-1\t\t\n00d\tm\t111\tMexico\tMay 2, 2005\n",
        },
    )


def test_lastfm_events(lastfm: Path) -> None:
    dataset = datasets.lastfm_360k(str(lastfm))
    assert events(dataset)[:3] == [("00a", "3bd73256"), ("00a", "sigur rós"), ("00a", "3bd73256")]
    assert events(dataset)[3:] == [("00b", '"weird al"'), ("00b", "null"), ("00c", "sigur rós")]
    assert dataset.time is None
    assert dataset.weight is not None
    assert dataset.weight.tolist() == [2137, 7, 13, 4, 5, 1]
    assert dataset.event_table.num_columns == 0
    assert dataset.notes == [
        "1 row has neither artist id nor name: left out.",
        "2 rows have no plays (0, less, or missing): left out.",
        "1 row of users has an id without interactions, such as '00d': left out.",
    ]


def test_lastfm_attributes(lastfm: Path) -> None:
    dataset = datasets.lastfm_360k(lastfm)
    assert users(dataset) == {
        "00a": {"gender": "f", "age": 22, "country": "Germany", "signup": datetime.date(2007, 2, 1)},
        "00b": {"gender": None, "age": None, "country": "Côte d'Ivoire", "signup": datetime.date(2006, 10, 30)},
        "00c": {"gender": "m", "age": None, "country": None, "signup": None},
    }
    assert items(dataset) == {
        '"weird al"': {"artist": '"weird al"'},
        "3bd73256": {"artist": "betty blowtorch, the"},
        "null": {"artist": "null"},
        "sigur rós": {"artist": "sigur rós"},
    }


def test_lastfm_ages(tmp_path: Path) -> None:
    ages = {"a": "0", "b": "1", "c": "110", "d": "111", "e": "-5", "f": ""}
    write(
        tmp_path,
        {
            PLAYS: "".join(f"{user}\tx\tX\t1\n" for user in ages),
            PROFILES: "".join(f"{user}\tm\t{age}\tPeru\tJan 12, 2008\n" for user, age in ages.items()),
        },
    )
    assert datasets.lastfm_360k(tmp_path).user_table["age"].to_pylist() == [None, 1, 110, None, None, None]


def test_lastfm_plays_of_repeated_rows_are_summed(lastfm: Path) -> None:
    _, confidence = datasets.lastfm_360k(lastfm).counted()
    np.testing.assert_array_equal(confidence, [2150, 7, 4, 5, 1])
    _, confidence = datasets.lastfm_360k(lastfm, repeats="drop").counted()
    np.testing.assert_array_equal(confidence, [2137, 7, 4, 5, 1])


def test_lastfm_errors(lastfm: Path) -> None:
    (lastfm / PROFILES).unlink()
    with pytest.raises(FileNotFoundError, match=f"must hold {PLAYS} and {PROFILES}, but {PROFILES} cannot.*It holds: {PLAYS}"):
        datasets.lastfm_360k(lastfm)
    write(lastfm, {PROFILES: "00a\tf\told\tGermany\tFeb 1, 2007\n"})
    with pytest.raises(ValueError, match=r"profile\.tsv must have .*columns user, gender, age, .*'old'"):
        datasets.lastfm_360k(lastfm)


ROWS_2014 = (
    "A39HTATAQ9V7YF,0205616461,5.0,1369699200\nA3JM6GV9MNOF9X,0558925278,3.0,1355443200\nA39HTATAQ9V7YF,B00005N5PF,1.0,1300000000\n"
)
ROWS_2018 = (
    "0205616461,A39HTATAQ9V7YF,5.0,1369699200\n0558925278,A3JM6GV9MNOF9X,3.0,1355443200\nB00005N5PF,A39HTATAQ9V7YF,1.0,1300000000\n"
)
ROWS_2023 = (
    "user_id,parent_asin,rating,timestamp\n"
    "A39HTATAQ9V7YF,0205616461,5.0,1369699200123\n"
    "A3JM6GV9MNOF9X,0558925278,3.0,1355443200000\n"
    "A39HTATAQ9V7YF,B00005N5PF,1.0,1300000000456\n"
)
ROWS_2023_WITH_HISTORY = (
    "user_id,parent_asin,rating,timestamp,history\n"
    "A39HTATAQ9V7YF,0205616461,5.0,1369699200123,B00005N5PF\n"
    "A3JM6GV9MNOF9X,0558925278,3.0,1355443200000,\n"
    "A39HTATAQ9V7YF,B00005N5PF,1.0,1300000000456,\n"
)
ORDERED = [("A39HTATAQ9V7YF", "B00005N5PF"), ("A39HTATAQ9V7YF", "0205616461"), ("A3JM6GV9MNOF9X", "0558925278")]


@pytest.mark.parametrize("text", [ROWS_2014, ROWS_2018, ROWS_2023, ROWS_2023_WITH_HISTORY])
def test_amazon_formats(tmp_path: Path, text: str) -> None:
    dataset = datasets.amazon_reviews(write(tmp_path, {"All_Beauty.csv": text}) / "All_Beauty.csv")
    assert events(dataset) == ORDERED
    assert dataset.event_table.to_pydict() == {"rating": [1.0, 5.0, 3.0]}
    assert dataset.time is not None
    assert dataset.time[1] == (1369699200123 if text.startswith("user_id") else 1369699200)
    assert dataset.notes == []


def test_amazon_compressed(tmp_path: Path) -> None:
    file = tmp_path / "ratings_Beauty.csv.gz"
    file.write_bytes(gzip.compress(ROWS_2018.encode()))
    assert events(datasets.amazon_reviews(str(file))) == ORDERED


def test_amazon_a_file_longer_than_what_is_looked_at_first(tmp_path: Path) -> None:
    rows = "".join(f"{j:010d},A{j:013d},4.0,{j}\n" for j in range(10_000))
    dataset = datasets.amazon_reviews(write(tmp_path, {"Books.csv": rows}) / "Books.csv")
    assert len(dataset) == 10_000
    assert dataset.items[3] == "0000000003"
    assert dataset.users[3] == "A0000000000003"


def test_amazon_products_that_are_all_digits_stay_texts(tmp_path: Path) -> None:
    dataset = datasets.amazon_reviews(write(tmp_path, {"b.csv": "A39HTATAQ9V7YF,0205616461,5.0,1369699200\n"}) / "b.csv")
    assert dataset.items[0] == "0205616461"


@pytest.mark.parametrize("row", ["A234567890,B234567890,5.0,1", "B234567890,A234567890,5.0,1"])
def test_amazon_users_as_long_as_products(tmp_path: Path, row: str) -> None:
    assert events(datasets.amazon_reviews(write(tmp_path, {"b.csv": row}) / "b.csv")) == [("A234567890", "B234567890")]


def test_amazon_at_least(tmp_path: Path) -> None:
    dataset = datasets.amazon_reviews(write(tmp_path, {"b.csv": ROWS_2014}) / "b.csv", at_least=4)
    assert events(dataset) == [("A39HTATAQ9V7YF", "0205616461")]
    assert dataset.notes == ["2 events are left out: rating below 4."]


def test_amazon_repeats(tmp_path: Path) -> None:
    file = write(tmp_path, {"b.csv": ROWS_2014 + ROWS_2014}) / "b.csv"
    assert len(datasets.amazon_reviews(file)) == 6
    assert len(datasets.amazon_reviews(file, repeats="drop")) == 3


@pytest.mark.parametrize("rows", ["ann,x,5,1\nbob,y,4,2\n", "A234567890,A234567891,5,1\n", "\n", "user,stars\n"])
def test_amazon_columns_that_cannot_be_told(tmp_path: Path, rows: str) -> None:
    file = write(tmp_path, {"b.csv": rows}) / "b.csv"
    with pytest.raises(ValueError, match="it is not clear which column") as caught:
        datasets.amazon_reviews(file)
    assert "columns=('user', 'item', 'rating', 'timestamp')" in str(caught.value)
    assert rows.split("\n")[0] in str(caught.value)


def test_amazon_columns(tmp_path: Path) -> None:
    file = write(tmp_path, {"b.csv": "5,ann,1,007\n4,bob,2,008\n"}) / "b.csv"
    assert events(datasets.amazon_reviews(file, columns=["rating", "user", "timestamp", "item"])) == [
        ("ann", "007"),
        ("bob", "008"),
    ]
    for columns in (("user", "item"), "user", ("user", "item", "rating", "time")):
        with pytest.raises(ValueError, match="columns must be 'user', 'item', 'rating', 'timestamp' in the order of the file, got"):
            datasets.amazon_reviews(file, columns=columns)


def test_amazon_errors(tmp_path: Path) -> None:
    write(tmp_path, {"Beauty.csv": ROWS_2014, "bad.csv": ROWS_2014.replace("3.0", "good")})
    with pytest.raises(FileNotFoundError, match=r"no such file: Book\.csv in .*It holds: Beauty\.csv, bad\.csv\."):
        datasets.amazon_reviews(tmp_path / "Book.csv")
    with pytest.raises(FileNotFoundError, match=r"no such folder: .*nowhere"):
        datasets.amazon_reviews(tmp_path / "nowhere" / "Book.csv")
    with pytest.raises(IsADirectoryError, match=r"must be a CSV file, got the folder .*It holds: Beauty\.csv"):
        datasets.amazon_reviews(tmp_path)
    with pytest.raises(ValueError, match=r"bad\.csv must have .*columns user, item, rating, timestamp, .*'good'"):
        datasets.amazon_reviews(tmp_path / "bad.csv")


EVENTS = {"user": [2, 1, 1], "item": ["b", "b", "a"], "user_order": [0, 1, 0], "timestamp": [5, 3, 4]}


def parquet_folder(path: Path, events: dict[str, list[Any]], **others: dict[str, list[Any]]) -> Path:
    for name, columns in {"interactions": events, **others}.items():
        pq.write_table(pa.table(columns), path / f"{name}.parquet")
    return path


@pytest.mark.parametrize(
    ("dropped", "order", "found"),
    [
        ([], "timestamp", ["b", "a", "b"]),
        (["timestamp"], "user_order", ["a", "b", "b"]),
        (["timestamp", "user_order"], None, ["b", "a", "b"]),
    ],
)
def test_parquet_order(tmp_path: Path, dropped: list[str], order: str | None, found: list[str]) -> None:
    columns = {name: values for name, values in EVENTS.items() if name not in dropped}
    dataset = datasets.parquet(str(parquet_folder(tmp_path, columns)))
    assert dataset.timestamp == order
    assert events(dataset) == list(zip([1, 1, 2], found, strict=True))


def test_parquet_tables(tmp_path: Path) -> None:
    parquet_folder(tmp_path, EVENTS, users={"user": [1, 2], "age": [30, None]}, items={"item": ["a"], "tags": [["x", "y"]]})
    dataset = datasets.parquet(tmp_path)
    assert users(dataset) == {1: {"age": 30}, 2: {"age": None}}
    assert items(dataset) == {"a": {"tags": ["x", "y"]}, "b": {"tags": None}}
    assert dataset.event_table.column_names == ["user_order"]
    assert dataset.notes == ["1 item has no row in items: attributes missing."]


def test_parquet_options(tmp_path: Path) -> None:
    parquet_folder(tmp_path, {**EVENTS, "stars": [1, 2, 3]}, users={"user": [1, 2], "age": [30, None]})
    dataset = datasets.parquet(tmp_path, timestamp=None, rating="stars", at_least=2, users=None)
    assert events(dataset) == [(1, "b"), (1, "a")]
    assert dataset.timestamp is None
    assert dataset.user_table.num_columns == 0


def test_parquet_errors(tmp_path: Path) -> None:
    write(tmp_path, {"train.parquet": ""})
    with pytest.raises(FileNotFoundError, match=r"must hold interactions\.parquet.*It holds: train\.parquet\."):
        datasets.parquet(tmp_path)
    write(tmp_path, {"interactions.parquet": "no"})
    with pytest.raises(ValueError, match=r"interactions\.parquet is not a Parquet table"):
        datasets.parquet(tmp_path)


def same(left: ep.Dataset, right: ep.Dataset) -> bool:
    assert left.time is not None
    assert right.time is not None
    tables = left.user_table.equals(right.user_table) and left.item_table.equals(right.item_table)
    return tables and events(left) == events(right) and left.time.tolist() == right.time.tolist()


def test_youtube_like_seed() -> None:
    first, again, other = (datasets.youtube_like(40, 30, seed, events_per_user=6) for seed in (1, 1, 2))
    assert same(first, again)
    assert not same(first, other)


@pytest.mark.parametrize(("n_users", "n_items"), [(60, 40), (1, 10), (25, 10)])
def test_youtube_like_nobody_watches_a_video_twice(n_users: int, n_items: int) -> None:
    dataset = datasets.youtube_like(n_users, n_items, seed=3, events_per_user=8)
    assert len(set(events(dataset))) == len(dataset)
    assert dataset.n_users == n_users
    assert dataset.n_items <= n_items
    assert np.diff(dataset.bounds).min() >= 3


def test_youtube_like_sizes() -> None:
    dataset = datasets.youtube_like(300, 50, seed=1, events_per_user=10)
    assert (dataset.n_users, dataset.n_items) == (300, 50)
    assert 8 < len(dataset) / 300 < 11
    assert dataset.user_table.column_names == ["age", "gender", "country", "device"]
    assert dataset.item_table.column_names == ["category", "language"]


def test_youtube_like_events_of_a_user_are_in_the_order_of_time() -> None:
    dataset = datasets.youtube_like(50, 40, events_per_user=8)
    assert dataset.time is not None
    for start, stop in zip(dataset.bounds[:-1], dataset.bounds[1:], strict=True):
        assert (np.diff(dataset.time[start:stop]) >= 0).all()
    assert dataset.time.min() >= 1_491_177_600
    assert dataset.time.max() <= 1_491_177_600 + 56 * 86_400


def test_youtube_like_missing() -> None:
    dataset = datasets.youtube_like(400, 20, seed=2, events_per_user=4, missing=0.3)
    for name in dataset.user_table.column_names:
        assert 0.2 < dataset.user_table[name].null_count / 400 < 0.4, name
    assert all(dataset.item_table[name].null_count == 0 for name in dataset.item_table.column_names)
    assert all(c.null_count == 0 for c in datasets.youtube_like(20, 20, events_per_user=4, missing=0).user_table.columns)
    assert all(c.null_count == 20 for c in datasets.youtube_like(20, 20, events_per_user=4, missing=1).user_table.columns)


@pytest.mark.parametrize("source", MIXTURE)
def test_youtube_like_a_single_source(source: str) -> None:
    mixture = {**dict.fromkeys(MIXTURE, 0.0), source: 1.0}
    dataset = datasets.youtube_like(20, 30, events_per_user=5, mixture=mixture)
    assert len(set(events(dataset))) == len(dataset)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n_users": 0}, ["n_users", "at least 1", "0"]),
        ({"n_users": 2.5}, ["n_users", "integer", "2.5"]),
        ({"n_items": 9}, ["n_items", "at least 10", "9"]),
        ({"seed": -1}, ["seed", "-1"]),
        ({"seed": None}, ["seed", "integer", "None"]),
        ({"events_per_user": 3}, ["events_per_user", "at least 4", "3"]),
        ({"events_per_user": float("nan")}, ["events_per_user", "nan"]),
        ({"missing": 1.5}, ["missing", "at most 1", "1.5"]),
        ({"missing": -0.1}, ["missing", "-0.1"]),
        ({"mixture": {"user": 1.0}}, ["mixture", "previous", "{'user': 1.0}"]),
        ({"mixture": {**MIXTURE, "user": -1.0}}, ["mixture", "-1.0"]),
        ({"mixture": dict.fromkeys(MIXTURE, 0.0)}, ["mixture", "0 for all"]),
        ({"mixture": {**MIXTURE, "other": 1.0}}, ["mixture", "other"]),
    ],
)
def test_youtube_like_bad_arguments(arguments: dict[str, Any], words: list[str]) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        datasets.youtube_like(**arguments)
    for word in words:
        assert word in str(caught.value), word


def test_youtube_like_gives_no_chance_to_what_has_no_videos() -> None:
    """Else attribute draws would be lost, and with them the share of their source."""
    random = np.random.default_rng(0)
    there = random.random(len(CATEGORIES) * len(LANGUAGES)) < 0.3
    chances = np.diff(_probabilities(random.normal(size=(5, len(CATEGORIES))), np.arange(5), there), axis=1, prepend=0.0)
    assert np.all(chances[:, ~there] == 0.0)
    assert np.all(chances[:, there] > 0.0)


@pytest.mark.full
def test_a_million_events_take_seconds() -> None:
    """From texts to codes, in order of time; about one second on an idle core."""
    random = np.random.default_rng(0)
    n = 1_000_000
    names = np.array([f"user {j}" for j in range(50_000)])
    table = {"user": names[random.integers(0, 50_000, n)], "item": random.integers(0, 20_000, n), "t": random.integers(0, 10**9, n)}
    began = time.process_time()
    dataset = ep.Dataset(table, timestamp="t")
    assert time.process_time() - began < 15
    assert len(dataset) == n


def test_titles_change_nothing_else() -> None:
    plain, titled = (datasets.youtube_like(60, 80, seed=4, titles=titles) for titles in (False, True))
    assert events(plain) == events(titled)
    names = titled.item_table["title"].to_pylist()
    assert len(set(names)) == len(names)
    assert titled.item_table.drop_columns(["title"]).equals(plain.item_table)
    assert datasets.youtube_like(60, 80, seed=4, titles=True).item_table.equals(titled.item_table)

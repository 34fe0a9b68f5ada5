"""kbrl init looks at texts that somebody made to keep it busy, to fill the machine, or to mislead its proposal."""

import gzip
import sqlite3
from time import process_time

import pytest

from kbrl import load_log
from kbrl.logs.check import check_log
from kbrl.proposing.guessed_roles import propose
from kbrl.tables import sniffing
from kbrl.tables.databases import all_of
from kbrl.tables.faults import LogError
from kbrl.tables.sniffing import guess_dialect

CELLS = {
    "blanks before a sign": "a" + " " * 100_000 + "a",
    "thousands without an end": "1" + ",111" * 30_000 + "a",
    "points without an end": "1" + ".111" * 30_000 + "a",
    "digits without an end": "1" * 120_000 + "a",
}


@pytest.mark.parametrize("cell", CELLS)
def test_init_looks_at_long_cells_in_a_time_that_rises_with_their_length(tmp_path, cell):
    rows = "".join(f'{t},"{CELLS[cell]}",{t % 2},{t}\n' for t in range(20))
    (tmp_path / "log.csv").write_text(f"patient,note,action,reward\n{rows}")
    start = process_time()
    guess_dialect(tmp_path / "log.csv")
    assert process_time() - start < 5  # a search that starts again at each letter takes minutes


def test_init_takes_a_part_of_lines_that_have_no_end(tmp_path, monkeypatch):
    monkeypatch.setattr(sniffing, "_LETTERS", 1000)
    with gzip.open(tmp_path / "log.csv.gz", "wt") as file:
        file.write("patient,action\n" + f"{'1' * 600},2\n" * 20)
    with gzip.open(tmp_path / "log.csv.gz", "rt") as file:
        assert len(list(sniffing._first_lines(file))) == 3


NO_TABLES = {
    "half of UTF-16": b"\xff\xfe" + b"\xd8" * 1001,
    "a cell longer than any": b'patient,note\n1,"' + b"x" * 200_000 + b'"\n',
    "a quotation that nothing closes": b'patient,note\n1,"' + (b"x" * 1000 + b"\n") * 2000,
}


@pytest.mark.parametrize("raw", NO_TABLES.values(), ids=NO_TABLES)
def test_init_refuses_what_no_table_can_be_read_from_by_the_name_of_the_file(tmp_path, raw):
    path = tmp_path / "log.csv"
    path.write_bytes(raw)
    with pytest.raises(LogError, match=r"log\.csv cannot be read"):
        guess_dialect(path)


BROKEN = {
    "a row of another length": b"patient,sofa\n1,2\n1,2,3\n" * 2,
    "blank lines": b"patient,sofa\n\n\n\n",
    "a packed file cut short": gzip.compress(b"patient,sofa\n" + b"1,2\n" * 5000)[:-20],
    "a file that only says it is packed": b"patient,sofa\n1,2\n",
}


@pytest.mark.parametrize("case", BROKEN)
def test_init_says_what_is_wrong_with_a_file_of_which_no_row_can_be_read(tmp_path, case):
    path = tmp_path / ("log.csv.gz" if "packed" in case else "log.csv")
    path.write_bytes(BROKEN[case])
    with pytest.raises(LogError, match=r"cannot be read|no rows"):
        propose(str(path))


@pytest.mark.parametrize("name", ['a"b', "a'b", 'x" where 1=0 --', "a, b"])
def test_a_table_of_any_name_is_proposed_by_its_name(tmp_path, name):
    path = tmp_path / "log.sqlite"
    connection = sqlite3.connect(path)
    connection.execute(f"create table {all_of(name).removeprefix('select * from ')} (age, drug, score)")
    connection.execute("create table other (x)")
    connection.execute(f"insert into {all_of(name).removeprefix('select * from ')} values (1, 2, 3)")
    connection.commit()
    connection.close()
    assert guess_dialect(path).dialect.query == all_of(name)


@pytest.mark.parametrize("end", ["didn't go home", "died'", 'went "home"'])
def test_a_level_with_a_quotation_mark_is_proposed_as_an_end_that_check_can_read(tmp_path, end):
    rows = ["patient,visit,sofa,drug,outcome"]
    for t in range(80):
        last = '"' + end.replace('"', '""') + '"' if t % 4 == 3 else ""
        rows.append(f"{t // 4},{t % 4},{t * 7 % 11},{'low' if t % 3 else 'high'},{last}")
    path = tmp_path / "log.csv"
    path.write_text("\n".join(rows) + "\n")
    stated = propose(str(path)).stated
    assert end in stated["terminated"]
    columns = {role: stated[role] for role in ("episode", "step", "action", "terminated")}
    columns |= {"state": ["sofa"], "reward": "-1 * sofa"}
    assert int(load_log(path, columns=columns).terminals.sum()) == 20
    assert not check_log(path, columns=columns).stops_learning

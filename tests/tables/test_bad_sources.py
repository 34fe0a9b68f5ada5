"""Sources that cannot be read: each is refused with the words that name the thing, the rule and a way out."""

import gzip
import sqlite3
import zipfile

import openpyxl
import pytest

from kbrl.logs.check import check_log
from kbrl.logs.log import load_log
from kbrl.tables.faults import LogError
from kbrl.tables.text_files import Dialect

GOOD = "obs;action;reward;done\n1,5;a;0,1;0\n2,5;b;0,2;1\n"
COMMA = {"decimal": ","}


def text(name, content, encoding="utf-8"):
    return lambda folder: (folder / name).write_bytes(content.encode(encoding)) and folder / name


def packed(content, cut=None):
    return lambda folder: (
        (folder / "log.csv.gz").write_bytes(gzip.compress(content.encode())[:cut]) and (folder / "log.csv.gz")
    )


def sheets(**named):
    def write(folder):
        book = openpyxl.Workbook()
        book.remove(book.active)
        for name, rows in named.items():
            sheet = book.create_sheet(name)
            for row in rows:
                sheet.append(row)
        book.save(folder / "log.xlsx")
        return folder / "log.xlsx"

    return write


def database(*statements):
    def write(folder):
        connection = sqlite3.connect(folder / "log.sqlite")
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()
        return folder / "log.sqlite"

    return write


ROWS = [["obs", "action", "reward", "done"], [1.0, "a", 0.0, 0], [2.0, "b", 1.0, 1]]
TABLE = "create table visits (obs real, action text, reward real, done int)"
FILLED = (TABLE, "insert into visits values (1.0, 'a', 0.0, 0), (2.0, 'b', 1.0, 1)")


def swollen(folder):
    """Write an Excel file whose texts unpack to more than they may."""
    path = sheets(log=ROWS)(folder)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/more.xml", b" " * (300 << 20))
    return path


CASES = {
    "a point where decimals have a comma": (text("log.csv", GOOD.replace("2,5", "2.5")), COMMA, "not_a_number", "line 3 of .*: '2.5 .the decimal sign is stated as ,.'"),
    "a comma where nothing is stated": (text("log.csv", GOOD), {}, "not_a_number", "'obs' must be numbers, but line 2 of .* is '1,5'. If , is the decimal sign, state it: --decimal ,"),
    "a reward with a comma": (text("log.csv", GOOD.replace("1,5", "1").replace("2,5", "2")), {}, "not_a_number", "line 2 of .*: '0,1'. If , is the decimal sign, state it: --decimal ,"),
    "thousands in odd groups": (text("log.csv", GOOD.replace("2,5", "12.34,5")), COMMA | {"thousands": "."}, None, "12.34,5"),
    "another encoding than is stated": (text("log.csv", GOOD.replace("b", "ö"), "latin-1"), COMMA | {"encoding": "ascii"}, "unreadable", "its text is not in ascii .* State another encoding"),
    "latin-1 without a word": (text("log.csv", GOOD.replace("b", "ö"), "latin-1"), COMMA, "unreadable", "--encoding latin-1.*kbrl init log.csv proposes one"),
    "a packed file cut short": (packed(GOOD * 200, 60), COMMA, "unreadable", "Truncated compressed stream"),
    "a text that only says it is packed": (text("log.csv.gz", GOOD), COMMA, "unreadable", "log.csv.gz cannot be read"),
    "packed nothing": (packed(""), {}, "empty_log", "has no header line"),
    "a packed Parquet file": (text("log.parquet.gz", "x"), {}, "unknown_format", "unknown ending, '.gz'"),
    "two sheets": (sheets(one=ROWS, two=ROWS), {}, "unreadable", "must be one sheet, but .* has 2: 'one', 'two'. Name one: --sheet NAME"),
    "a sheet that is not there": (sheets(one=ROWS), {"sheet": "two"}, "unreadable", "has no sheet 'two' with cells, but 'one'"),
    "an empty sheet": (sheets(one=[]), {}, "empty_log", "has no sheet with cells"),
    "a sheet with a header only": (sheets(one=ROWS[:1]), {}, "empty_log", "The sheet 'one' of .* has a header, but no row"),
    "a word in a column of numbers": (sheets(one=[*ROWS, [3.0, "a", "much", 1]]), {}, "not_a_number", "row of the sheet 4 .* of .*log.xlsx: 'much'"),
    "a text called .xlsx": (text("log.xlsx", GOOD), {}, "unreadable", "log.xlsx cannot be read"),
    "texts that would fill the memory": (swollen, {}, "too_large", "asks for 15.7 GB of memory, .* raise the limit"),
    "a line that is no JSON": (text("log.jsonl", '{"obs": 1}\n{"obs": \n'), {}, "unreadable", "log.jsonl cannot be read: JSON parse error"),
    "a list of JSON": (text("log.jsonl", "[1, 2]\n"), {}, "unreadable", "JSON"),
    "a key and a field of one name": (text("log.jsonl", '{"obs": {"x": 1}, "obs_x": 2}\n'), {}, "repeated_column", "'obs_x' occur more than once"),
    "objects without keys": (text("log.jsonl", "{}\n{}\n"), {}, "empty_log", "has no object with keys"),
    "words and numbers under one key": (text("log.jsonl", '{"obs": 1}\n{"obs": "a"}\n'), {}, "unreadable", "changed from number to string"),
    "two tables and no query": (database(TABLE, "create table notes (a)"), {}, "unreadable", "must have one table or a query, but it has 'visits', 'notes'. State a query: --query"),
    "no table": (database(), {}, "empty_log", "log.sqlite is empty"),
    "a table without rows": (database(TABLE), {}, "empty_log", "no rows"),
    "a query of a table that is not there": (database(*FILLED), {"query": "select * from visit"}, "unreadable", "no such table: visit"),
    "a query that changes something": (database(*FILLED), {"query": "delete from visits"}, "unreadable", "a query that starts with SELECT or WITH, but it is 'delete from visits'"),
    "a query with a hidden change": (database(*FILLED), {"query": "with a as (select 1) delete from visits"}, "unreadable", "not authorized"),
    "two queries in one": (database(*FILLED), {"query": "select * from visits; drop table visits"}, "unreadable", "one statement at a time"),
    "another file by a query": (database(*FILLED), {"query": "select * from pragma_database_list"}, "unreadable", "not authorized|prohibited"),
    "a text called .sqlite": (text("log.sqlite", GOOD), {}, "unreadable", "file is not a database"),
    "a database that is not there": (lambda folder: f"sqlite:{folder}/none.db?select 1", {}, "missing_file", "There is no file .*none.db. Write sqlite:FILE.QUERY"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_bad_source_is_refused_by_reader_and_check(tmp_path, case):
    write, stated, name, words = CASES[case]
    source = write(tmp_path)
    with pytest.raises(LogError, match=words) as error:
        load_log(source, columns=stated)
    assert name is None or error.value.fault.name == name
    assert check_log(source, columns=stated).stops_learning


def test_nothing_was_changed_by_queries_that_were_refused(tmp_path):
    path = database(*FILLED)(tmp_path)
    for query in ("delete from visits", "with a as (select 1) delete from visits", "select 1; drop table visits"):
        with pytest.raises(LogError):
            load_log(path, columns={"query": query})
    assert len(load_log(path)) == 2


DIALECTS = {
    "an unknown encoding": ({"encoding": "latin-99"}, "encoding must be one that Python knows, such as latin-1 or utf-16"),
    "an encoding that is no text": ({"encoding": "rot13"}, "encoding must be one that Python knows"),
    "a long delimiter": ({"delimiter": "::"}, "delimiter must be one character, such as ; or |, but it is '::'"),
    "a quote as delimiter": ({"delimiter": '"'}, "delimiter must be one character"),
    "a word as decimal sign": ({"decimal": "comma"}, "decimal must be . or , but it is 'comma'"),
    "one sign for both": ({"decimal": ",", "thousands": ","}, "and not the decimal sign, ',', but it is ','"),
    "a digit between thousands": ({"thousands": "0"}, "thousands must be one of"),
    "a number as sheet": ({"sheet": 3}, "sheet must be a text, but it is 3"),
    "an empty query": ({"query": ""}, "query must be a text, but it is ''"),
}  # fmt: skip


@pytest.mark.parametrize("case", DIALECTS)
def test_a_dialect_that_makes_no_sense_is_refused(case):
    stated, words = DIALECTS[case]
    with pytest.raises(ValueError, match="must be") as error:
        Dialect(**stated)
    assert words in str(error.value)


@pytest.mark.parametrize(("written", "plain"), [
    ("1.234,5", "1234.5"), ("-1.234.567", "-1234567"), ("0,5", "0.5"), (",5", ".5"), ("1e3", "1e3"), (" 7 ", " 7 "),
    ("", ""), ("n/a", "n/a"), ("low", "low"),
])  # fmt: skip
def test_numbers_of_a_dialect_are_written_plainly(written, plain):
    assert Dialect(decimal=",", thousands=".").plain(written) == plain


@pytest.mark.parametrize("space", [" ", "\u00a0", "\u202f"])
def test_any_blank_separates_thousands(space):
    assert Dialect(decimal=",", thousands=" ").plain(f"12{space}345,6") == "12345.6"

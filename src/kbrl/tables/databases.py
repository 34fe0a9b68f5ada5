"""Another start: what a query selects from a database, as batches of columns.

SQLite needs nothing else.  DuckDB and PostgreSQL (by ADBC) are extras.  Rows are fetched some at a time.  Databases are
opened for reading only, and a query can reach no other file: what it may do is limited before it is run.  A view of a
file is a query of whoever wrote the file: its rows, its memory and, in SQLite, its steps are limited.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sqlite3
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import thread_time
from typing import Any
from urllib.parse import quote, urlsplit

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

from kbrl.checks import how_to_install
from kbrl.data.column_names import listing
from kbrl.files import MOST_EXPANSION, VARIABLE, allowed_bytes, bytes_on_disk, memory_limit, too_empty
from kbrl.tables.arrow_files import converted
from kbrl.tables.cell_values import Batch, Kind
from kbrl.tables.faults import LogError, refuse_size
from kbrl.tables.python_rows import batches_of, row_bytes
from kbrl.tables.text_files import PLAIN, Dialect

DATABASE_ENDINGS = (".db", ".sqlite", ".sqlite3", ".duckdb")
_QUERY = "State a query: --query 'select ...', in Python columns={'query': 'select ...'}."
_SELECTS = r"[\s(]*(select|with|values|table|from)\b"
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_STEPS, _LEAST_STEPS = 100, 10**9  # of SQLite's machine: between two looks, and those that any file may take
_STEPS_PER_SECOND = 10**9 / 60  # it usually makes some times as many
_BETWEEN_LOOKS = 0.05  # seconds of processor time between two looks at the disk
_LEAST_LENGTH = 1000  # bytes of a text that are always allowed
_ROOM = 1 << 29  # bytes beside those that are counted: threads, and what Arrow makes of a batch
_ONE_AT_A_TIME = threading.Lock()
_DUCKDB_ROWS = 2048  # of one batch, DuckDB's own vectors
_FIXED = re.compile(
    r"u?(tiny|small|big|huge)?int(eger)?|boolean|float|double|decimal|date|time.*|interval|uuid|enum|.*null"
)
_TOO_LONG = "a value is too long for kbrl"  # how DuckDB is told to say it
_LONGEST = 10**9  # bytes of a text, the most that SQLite itself allows
_CLOSED: dict[str, Any] = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "lock_configuration": "true",
}


class SeveralTablesError(LogError):
    """A database with several tables, or none, and without a query; ``tables`` are their names."""

    def __init__(self, tables: list[str], name: str, message: str, **more: Any) -> None:
        super().__init__(name, message, **more)
        self.tables = tables


class _QueryTable:
    """What the tables of all databases share."""

    is_text = False

    def __init__(self, where: str, query: str | None, dialect: Dialect) -> None:
        self.where, self._dialect = where, dialect
        if query is not None and re.match(_SELECTS, query, re.IGNORECASE) is None:
            message = f"{where} must be read by a query that starts with SELECT or WITH, but it is {query!r}."
            raise LogError("unreadable", message, advice=_QUERY)
        self.is_unordered = query is not None and re.search(r"\border\s+by\b", query, re.IGNORECASE) is None
        self._query = query or all_of(self._only_table())
        self.names = self._columns()

    def _only_table(self) -> str:
        tables = self._tables()
        if len(tables) == 1:
            return tables[0]
        message = f"{self.where} must have one table or a query, but it has {listing(tables)}."
        raise SeveralTablesError(tables, "unreadable", message, advice=_QUERY)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turn errors of the database into a fault that names it."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, (*self._errors(), OSError)):
                raise
            if str(error) == "interrupted":  # by our handler
                what = "its query takes far more steps than the file has bytes, or too long, or too much disk"
                refuse_size(what, self.where)
            if _TOO_LONG in str(error) or str(error) == "string or blob too big":  # by DuckDB, by SQLite
                refuse_size("a value is so long that some rows of it do not fit into the limit", self.where)
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            message = f"{self.where} cannot be read: {reason}."
            raise LogError("unreadable", message, advice="Check the query and the address.") from None

    def _errors(self) -> tuple[type[Exception], ...]:
        raise NotImplementedError

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        raise NotImplementedError

    def _tables(self) -> list[str]:
        raise NotImplementedError

    def _columns(self) -> tuple[str, ...]:
        raise NotImplementedError


class _Patience:
    """Says when SQLite has worked too long: by the steps of its machine, and by processor time, as steps may be slow.

    Only the time in SQLite counts, which is from `resume` to `pause`.  So do the bytes that it has put on the disk to
    sort rows; these files have no name.
    """

    def __init__(self, n_steps: int, n_bytes: int) -> None:
        self._n_left, self._seconds_left = n_steps // _STEPS, n_steps / _STEPS_PER_SECOND
        self._most_bytes, self._looked = n_bytes + _bytes_without_name(), 0.0
        self.resume()

    def resume(self) -> None:
        self._start = thread_time()

    def pause(self) -> None:
        self._seconds_left -= thread_time() - self._start

    def is_over(self) -> bool:
        self._n_left -= 1
        now = thread_time()
        if now - self._looked > _BETWEEN_LOOKS:
            self._looked = now
            if _bytes_without_name() > self._most_bytes:
                return True
        return self._n_left < 0 or now - self._start > self._seconds_left


class SqliteTable(_QueryTable):
    """What a query selects from an SQLite file."""

    def __init__(self, path: Path, query: str | None = None, dialect: Dialect = PLAIN) -> None:
        self.path = path
        super().__init__(str(path), query, dialect)

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        patience = self._patience()
        with self._refusing(), self._opened(patience, len(self.names)) as connection:
            cursor = connection.execute(self._query)
            patience.pause()
            yield from batches_of(self._counted(cursor, patience), self.names, kinds, n_rows, self._dialect)

    def _counted(self, rows: Iterator[tuple[Any, ...]], patience: _Patience) -> Iterator[tuple[Any, ...]]:
        """Yield rows, as long as they are not far more than the file can hold."""
        n_bytes, n_stored = 0, bytes_on_disk(self.path)
        while True:
            patience.resume()
            row = next(rows, None)
            patience.pause()
            if row is None:
                return
            n_bytes += row_bytes(row)
            refuse_size(too_empty(self.path, "what is selected", n_bytes, n_stored), self.path)
            yield row

    def _opened(self, patience: _Patience, n_columns: int) -> Any:
        """Open the file so that a row of so many texts fits into the memory, and the work ends at some time."""
        address = f"file:{quote(str(self.path.absolute()))}?mode=ro{self._unchanging()}"
        connection = sqlite3.connect(address, uri=True, check_same_thread=False)
        connection.execute("pragma trusted_schema = off")  # a view of the file may call no function with side effects
        connection.execute("pragma cell_size_check = on")
        longest = min(allowed_bytes(self.path) // (4 * n_columns), _LONGEST)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(longest, _LEAST_LENGTH))
        connection.set_progress_handler(patience.is_over, _STEPS)
        connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY)
        return closing(connection)

    def _unchanging(self) -> str:
        """Return how SQLite opens a file with a write-ahead log where it cannot put a log beside it."""
        path = Path(os.path.realpath(self.path))
        with open(path, "rb") as file:
            has_log = file.read(20)[18:] == b"\x02\x02"
        is_open = path.with_name(f"{path.name}-wal").exists()
        return "&immutable=1" if has_log and not is_open and not os.access(path.parent, os.W_OK) else ""

    def _patience(self) -> _Patience:
        return _Patience(self._most_steps(), allowed_bytes(self.path))

    def _most_steps(self) -> int:
        """Return after how many steps of its machine SQLite stops: a view may never end."""
        raised = memory_limit() if VARIABLE in os.environ else 0
        return max(_LEAST_STEPS, MOST_EXPANSION * bytes_on_disk(self.path), raised)

    def _tables(self) -> list[str]:
        query = "select name from sqlite_master where type in ('table', 'view') and name not like 'sqlite_%'"
        with self._refusing(), self._opened(self._patience(), 1) as connection:
            return [name for (name,) in connection.execute(query)]

    def _columns(self) -> tuple[str, ...]:
        """Return the names; SQLite works out the first row for them, so we count them before."""
        patience, n_columns = self._patience(), 1
        wrong = sqlite3.Error, sqlite3.Warning  # said below, where the query is asked as it is
        with self._refusing(), self._opened(patience, 1) as connection, suppress(*wrong):
            without_rows = connection.execute(f"select * from ({self._query.rstrip('; ')}\n) limit 0")
            n_columns = len(without_rows.description)
        with self._refusing(), self._opened(patience, n_columns) as connection:
            return tuple(column[0] for column in connection.execute(self._query).description or ())

    def _errors(self) -> tuple[type[Exception], ...]:
        return (sqlite3.Error, sqlite3.Warning)


class _ArrowQueryTable(_QueryTable):
    """What a query selects from a database whose driver returns Arrow data."""

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        n_read = 0
        with self._refusing(), self._reader(self._query, self._rows_at_once(n_rows), list(kinds)) as reader:
            for batch in self._fetched(reader):
                n_read += max(batch.nbytes, 8 * batch.num_rows)
                self._check_read(n_read)
                for start in range(0, batch.num_rows, n_rows):
                    yield converted(batch.slice(start, n_rows), kinds)

    def _rows_at_once(self, n_rows: int) -> int:
        return n_rows

    def _fetched(self, reader: Any) -> Iterator[Any]:
        yield from reader

    def _check_read(self, n_bytes: int) -> None:
        """Refuse what is far more than the source can hold; a server may hold anything."""

    def _columns(self) -> tuple[str, ...]:
        with self._refusing(), self._reader(self._query, 1) as reader:
            return tuple(reader.schema.names)

    def _reader(self, query: str, n_rows: int, names: Sequence[str] | None = None) -> Any:
        """Open what a query selects, or at least the named columns of it."""
        raise NotImplementedError


class DuckdbTable(_ArrowQueryTable):
    """What a query selects from a DuckDB file."""

    def __init__(self, path: Path, query: str | None = None, dialect: Dialect = PLAIN) -> None:
        if importlib.util.find_spec("duckdb") is None:
            raise ImportError(f"{path}: DuckDB files need duckdb. {how_to_install('duckdb')}")
        self.path = path
        super().__init__(str(path), query, dialect)

    def _rows_at_once(self, n_rows: int) -> int:
        return min(n_rows, _DUCKDB_ROWS)

    def _fetched(self, reader: Any) -> Iterator[Any]:
        """Yield the batches; DuckDB works out thousands of rows at once, and does not count all memory for them."""
        most = self._most_memory()
        while True:
            with _at_most(most):
                batch = next(reader, None)
            if batch is None:
                return
            yield batch

    def _check_read(self, n_bytes: int) -> None:
        refuse_size(too_empty(self.path, "what is selected", n_bytes, bytes_on_disk(self.path)), self.path)

    @contextmanager
    def _reader(self, query: str, n_rows: int, names: Sequence[str] | None = None) -> Iterator[Any]:
        with self._selected(query) as selected:
            selected = selected if names is None else selected.project(self._bounded(selected, names))
            read = getattr(selected, "to_arrow_reader", None) or selected.fetch_arrow_reader  # before version 2
            with _at_most(self._most_memory()):
                reader = read(n_rows)  # works out the first rows
            yield reader

    @contextmanager
    def _selected(self, query: str) -> Iterator[Any]:
        """Give what a query selects, of which nothing is worked out yet."""
        import duckdb

        bounds = {"memory_limit": f"{allowed_bytes(self.path)}B", "temp_directory": ""}
        with closing(duckdb.connect(str(self.path), read_only=True, config=_CLOSED | bounds)) as connection:
            _refuse_several(duckdb.extract_statements(query), self.where)
            selected: Any = connection.sql(query)
            if selected is None:
                raise LogError("unreadable", f"The query of {self.where} selects nothing.", advice=_QUERY)
            yield selected

    def _columns(self) -> tuple[str, ...]:
        with self._refusing(), self._selected(self._query) as selected:
            return tuple(selected.columns)

    def _most_memory(self) -> int:
        return _data_bytes() + 2 * allowed_bytes(self.path) + _ROOM

    def _bounded(self, selected: Any, names: Sequence[str]) -> str:
        """Return a projection to some columns that fails at a value so large that a batch might not fit into memory.

        A text that is the same in all rows is one text for DuckDB and its limit of memory, but many for Arrow.
        """
        types = dict(zip(selected.columns, selected.types))
        sizes = {name: _size(quoted(name), types[name]) for name in names if name in types}
        n_wide = sum(size is not None for size in sizes.values())
        most = allowed_bytes(self.path) // (_DUCKDB_ROWS * max(n_wide, 1))
        return ", ".join(
            quoted(name)
            if size is None
            else f"case when {size} > {most} then error('{_TOO_LONG}') else {quoted(name)} end as {quoted(name)}"
            for name, size in sizes.items()
        )

    def _tables(self) -> list[str]:
        query = "select table_name from information_schema.tables where table_schema = 'main'"
        with self._refusing(), self._reader(query, 1000) as reader:
            return list(reader.read_all().column(0).to_pylist())

    def _errors(self) -> tuple[type[Exception], ...]:
        import duckdb

        return (duckdb.Error, MemoryError)


class PostgresTable(_ArrowQueryTable):
    """What a query selects from a PostgreSQL server."""

    def __init__(self, address: str, query: str | None = None, dialect: Dialect = PLAIN) -> None:
        if importlib.util.find_spec("adbc_driver_postgresql") is None:
            raise ImportError(f"PostgreSQL needs adbc-driver-postgresql. {how_to_install('postgres')}")
        self._address = address
        parts = urlsplit(address)
        super().__init__(f"{parts.scheme}://{parts.hostname or ''}{parts.path}", query, dialect)  # without the password

    @contextmanager
    def _reader(self, query: str, n_rows: int, names: Sequence[str] | None = None) -> Iterator[Any]:
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self._address) as connection, connection.cursor() as cursor:
            cursor.execute("set transaction read only")
            cursor.execute(query)
            yield cursor.fetch_record_batch()

    def _tables(self) -> list[str]:
        query = "select table_name::text from information_schema.tables where table_schema = 'public'"
        with self._refusing(), self._reader(query, 1000) as reader:
            return list(reader.read_all().column(0).to_pylist())

    def _errors(self) -> tuple[type[Exception], ...]:
        from adbc_driver_postgresql import dbapi

        return (dbapi.Error,)


def _bytes_without_name() -> int:
    """Return the bytes of the open files of this process that are in no folder, such as those of SQLite's sorting."""
    n_bytes = 0
    with suppress(OSError):  # not on Windows
        for name in os.listdir("/dev/fd"):
            with suppress(OSError, ValueError):  # closed meanwhile
                found = os.fstat(int(name))
                n_bytes += found.st_size if stat.S_ISREG(found.st_mode) and not found.st_nlink else 0
    return n_bytes


def _data_bytes() -> int:
    """Return the bytes of memory that this process may write to; Linux only."""
    with suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
        return next((1024 * int(line.split()[1]) for line in file if line.startswith("VmData")), 0)
    return 0


@contextmanager
def _at_most(n_bytes: int) -> Iterator[None]:
    """Let the system refuse this process more memory, where it can; one thread at a time."""
    if resource is None or not _data_bytes():
        yield
        return
    with _ONE_AT_A_TIME:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limits = [n for n in (n_bytes, soft) if n != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def open_address(source: str, dialect: Dialect) -> _QueryTable:
    """Return the table of a database that a text names."""
    if source.startswith("postgres"):
        return PostgresTable(source, dialect.query, dialect)
    kind, _, rest = source.partition(":")
    name, _, query = rest.partition("?")
    path = Path(name)
    if not path.is_file():
        raise LogError("missing_file", f"There is no file {path}.", advice=f"Write {kind}:FILE?QUERY.")
    return (SqliteTable if kind == "sqlite" else DuckdbTable)(path, query or dialect.query, dialect)


def open_database(path: Path, dialect: Dialect) -> _QueryTable:
    """Return the table of a database in a file, of SQLite or of DuckDB by its first bytes."""
    with path.open("rb") as file:
        start = file.read(16)
    return (DuckdbTable if start[8:12] == b"DUCK" else SqliteTable)(path, dialect.query, dialect)


def all_of(table: str) -> str:
    """Return the query for all rows of a table."""
    return f"select * from {quoted(table)}"


def quoted(name: str) -> str:
    """Return the name of a table or a column as a query has it."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _size(column: str, kind: Any) -> str | None:
    """Return what tells the bytes of a value in DuckDB; None if all values of this type are small."""
    if _FIXED.fullmatch(kind.id):
        return None
    if kind.id == "list" and _FIXED.fullmatch(kind.children[0][1].id):
        return f"8 * len({column})"
    return {"varchar": f"strlen({column})", "blob": f"octet_length({column})"}.get(
        kind.id, f"strlen({column}::varchar)"
    )


def _refuse_several(statements: list[Any], where: str) -> None:
    if len(statements) != 1:
        message = f"{where} must be read by one query, but there are {len(statements)}."
        raise LogError("unreadable", message, advice=_QUERY)

"""Logs that somebody made to read other files, or to fill the machine, are refused before they can."""

import contextlib
import io
import os
import zipfile
import zlib

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from numpy.lib import format as npy

from kbrl import load_log
from kbrl.cli import main
from kbrl.data.names import Source
from kbrl.files import VARIABLE, bytes_on_disk
from kbrl.logs.check import check_log
from kbrl.logs.columns import resolve
from kbrl.proposing.guessed_roles import propose
from kbrl.tables.faults import LogError
from kbrl.tables.text_files import CsvTable
from refusals import refused

N = 6
ROWS = {
    "observations": np.arange(2.0 * N).reshape(N, 2),
    "actions": np.arange(N) % 2,
    "rewards": np.arange(float(N)),
    "terminals": np.arange(N) == N - 1,
}


@pytest.fixture
def small_limit(monkeypatch):
    monkeypatch.setenv(VARIABLE, "20MB")


def flat(path, leave_out="rewards"):
    with h5py.File(path, "w") as file:
        for name, values in ROWS.items():
            if name != leave_out:
                file[name] = values


def in_another_file(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(ROWS["rewards"].tobytes())
    return secret


def link_to_another_file(tmp_path, group, name):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["rewards"] = ROWS["rewards"]
    group[name] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/rewards")


def soft_link(tmp_path, group, name):
    group.file["elsewhere"] = ROWS["rewards"]
    group[name] = h5py.SoftLink("/elsewhere")


def stored_in_another_file(tmp_path, group, name):
    group.create_dataset(name, (N,), "f8", external=[(str(in_another_file(tmp_path)), 0, 8 * N)])


def stored_in_a_file_that_is_not_there(tmp_path, group, name):
    group.create_dataset(name, (N,), "f8", external=[(str(tmp_path / "nothing"), 0, 8 * N)])


def put_together_from_another_file(tmp_path, group, name):
    layout = h5py.VirtualLayout((N,), "f8")
    layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "rewards", shape=(N,))
    group.create_virtual_dataset(name, layout, fillvalue=0.0)


WAYS_OUT = [
    link_to_another_file,
    soft_link,
    stored_in_another_file,
    stored_in_a_file_that_is_not_there,
    put_together_from_another_file,
]


@pytest.mark.parametrize("way_out", WAYS_OUT, ids=lambda way: way.__name__)
def test_a_flat_hdf5_log_reads_nothing_outside_of_itself(tmp_path, way_out):
    path = tmp_path / "log.h5"
    flat(path)
    with h5py.File(path, "a") as file:
        way_out(tmp_path, file, "rewards")
    assert "'rewards'" in refused(path, "foreign_data")


@pytest.mark.parametrize("way_out", WAYS_OUT, ids=lambda way: way.__name__)
def test_a_minari_log_reads_nothing_outside_of_itself(tmp_path, way_out):
    path = tmp_path / "log.hdf5"
    with h5py.File(path, "w") as file:
        episode = file.create_group("episode_0")
        episode["observations"], episode["actions"] = np.zeros((N + 1, 2)), ROWS["actions"]
        way_out(tmp_path, episode, "rewards")
    refused(path, "foreign_data")


def test_an_episode_in_another_file_is_not_read(tmp_path):
    other, path = tmp_path / "other.hdf5", tmp_path / "log.hdf5"
    with h5py.File(other, "w") as file:
        episode = file.create_group("episode_0")
        episode["observations"], episode["actions"], episode["rewards"] = np.zeros((3, 1)), [0, 1], [0.0, 1.0]
    with h5py.File(path, "w") as file:
        file["episode_0"] = h5py.ExternalLink(str(other), "/episode_0")
    refused(path, "foreign_data")


def test_a_group_that_holds_itself_is_refused(tmp_path):
    path = tmp_path / "log.hdf5"
    with h5py.File(path, "w") as file:
        episode = file.create_group("episode_0")
        episode["actions"], episode["rewards"] = [0, 1], [0.0, 1.0]
        observations = episode.create_group("observations")
        observations["position"], observations["again"] = np.zeros((3, 1)), observations
    refused(path, "unreadable")


def test_a_log_whose_data_are_all_in_the_file_is_read_also_if_two_names_stand_for_one_array(tmp_path):
    path = tmp_path / "log.h5"
    flat(path, leave_out="")
    with h5py.File(path, "a") as file:
        file["next_observations"] = file["observations"]  # a second hard link
    np.testing.assert_array_equal(load_log(path).next_states, ROWS["observations"])


def test_hdf5_data_that_are_stated_but_not_stored_are_refused(tmp_path, small_limit):
    path, n = tmp_path / "log.h5", 20_000_000
    with h5py.File(path, "w") as file:
        for name in ROWS:
            file.create_dataset(name, (n,), "f4", chunks=(1000,))
    assert "stores only 0 bytes" in refused(path, "too_large")


def test_an_hdf5_row_that_does_not_fit_into_memory_is_refused(tmp_path, small_limit):
    path = tmp_path / "log.h5"
    with h5py.File(path, "w") as file:
        wide = file.create_dataset("observations", (2, 5_000_000), "f8", chunks=(1, 100_000), compression="gzip")
        wide[:] = 0.0
        file["actions"], file["rewards"], file["terminals"] = [0, 1], [0.0, 1.0], [False, True]
    assert os.path.getsize(path) < 200_000
    assert "asks for 80 MB" in refused(path, "too_large")


def test_a_minari_episode_that_does_not_fit_into_memory_is_refused(tmp_path, small_limit):
    path = tmp_path / "log.hdf5"
    with h5py.File(path, "w") as file:
        episode = file.create_group("episode_0")
        episode.create_dataset("observations", (3, 2_000_000), "f8", chunks=(1, 100_000), compression="gzip")[:] = 1.0
        episode["actions"], episode["rewards"] = [0, 1], [0.0, 1.0]
    refused(path, "too_large")


def test_an_hdf5_chunk_that_unpacks_to_more_than_a_chunk_is_refused(tmp_path, small_limit):
    path = tmp_path / "log.h5"
    for n_bytes, is_refused in ((48, False), (30_000_000, True)):
        flat(path)
        with h5py.File(path, "a") as file:
            rewards = file.create_dataset("rewards", (N,), "f8", chunks=(N,), compression="gzip", fletcher32=False)
            rewards.id.write_direct_chunk((0,), zlib.compress(bytes(n_bytes)))
        if is_refused:
            assert "a chunk of '/rewards' states 48 bytes, but it unpacks to more" in refused(path, "too_large")
        else:
            assert load_log(path).rewards.tolist() == [0.0] * N


def test_hdf5_data_that_are_packed_twice_are_refused(tmp_path):
    path = tmp_path / "log.h5"
    flat(path)
    with h5py.File(path, "a") as file:
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((N,))
        plan.set_deflate(9)
        plan.set_deflate(9)
        h5py.h5d.create(file.id, b"rewards", h5py.h5t.IEEE_F64LE, h5py.h5s.create_simple((N,)), plan)
        file["rewards"][:] = 0.0
    assert "'/rewards' is packed more than once" in refused(path, "unreadable")


def npz(path, shape, order="C", compression=zipfile.ZIP_DEFLATED):
    """Write an archive whose observations are zeros of a shape."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, values in ROWS.items():
            if name != "observations":
                raw = io.BytesIO()
                np.save(raw, values)
                archive.writestr(f"{name}.npy", raw.getvalue())
        with archive.open("observations.npy", "w", force_zip64=True) as file:
            npy.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": order == "F", "shape": shape})
            for _ in range(shape[0]):
                file.write(bytes(8 * shape[1]))


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_npz_array_that_does_not_fit_into_memory_is_refused(tmp_path, small_limit, order):
    path = tmp_path / "log.npz"
    npz(path, (N, 1_000_000), order)
    assert os.path.getsize(path) < 100_000
    assert "asks for 48 MB" in refused(path, "too_large")


def test_an_archive_that_unpacks_to_thousands_of_times_its_size_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "log.npz"
    npz(path, (N, 1_000_000), compression=zipfile.ZIP_LZMA)
    refused(path, "too_large")
    monkeypatch.setenv(VARIABLE, "1GB")  # said by the user, who trusts the file
    assert load_log(path).n_dims == 1_000_000


def test_a_header_line_without_an_end_is_refused(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(b"a" * (17 << 20))
    assert "header" in refused(path, "too_large")


def test_a_small_text_of_very_many_columns_is_refused(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(f"action,reward,{','.join(f'obs_{k}' for k in range(30_000))}\n{'1,' * 30_001}1\n")
    assert "a table of 30002 columns asks for 1.5 GB" in refused(path, "too_large")


def test_roles_are_proposed_by_few_passes_and_not_for_very_many_columns(tmp_path, monkeypatch):
    n_passes, read = 0, CsvTable.batches

    def counted(*given):
        nonlocal n_passes
        n_passes += 1
        return read(*given)

    monkeypatch.setattr(CsvTable, "batches", counted)
    path = tmp_path / "log.csv"
    for n_columns in (300, 3000):
        names = ",".join(f"obs_{k}" for k in range(n_columns))
        path.write_text(f"{names}\n" + f"{'1,' * (n_columns - 1)}2\n" * 9)
        if n_columns == 300:
            propose(path)
            assert n_passes < 10
        else:
            with pytest.raises(LogError, match="at most 2000 columns, but the log has 3000"):
                propose(path)


def test_the_time_to_find_the_columns_rises_with_their_number_and_not_with_its_square():
    """Comparisons of names are counted: no name is held against all others."""
    n = 3000
    compared = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    names = [Name(f"obs_{k}") for k in range(n)]
    resolve([*names, Name("action"), Name("reward")])
    Source.of_columns(names, n, others=[Name(name) for name in names], has_episode_ids=True)
    with pytest.raises(LogError, match="more than once"):
        resolve([Name("obs") for _ in range(n)])
    assert compared < 100 * n


def test_parquet_lists_that_do_not_fit_into_memory_are_refused(tmp_path, small_limit):
    path, n = tmp_path / "log.parquet", 5_000_000
    wide = pa.ListArray.from_arrays([0, n, 2 * n], pa.array(np.zeros(2 * n)))
    parquet.write_table(pa.table({"obs": wide, "action": [0, 1], "reward": [0.0, 1.0], "done": [False, True]}), path)
    assert os.path.getsize(path) < 10_000
    assert "asks for 80 MB" in refused(path, "too_large")


def test_a_parquet_file_that_states_far_more_rows_than_it_has_bytes_is_refused(tmp_path):
    path, n = tmp_path / "log.parquet", 5_000_000
    zeros = {"obs": np.zeros(n), "action": np.zeros(n, int), "reward": np.zeros(n), "done": np.zeros(n, int)}
    one_page = {"max_rows_per_page": n, "row_group_size": n, "compression": "zstd"}
    try:
        parquet.write_table(pa.table(zeros), path, **one_page)
    except TypeError:
        pytest.skip("This pyarrow cannot write so large pages.")
    assert os.path.getsize(path) < 10_000
    assert "states 40 MB" in refused(path, "too_large")


def test_a_pipe_is_refused_at_once(tmp_path):
    path = tmp_path / "log.csv"
    os.mkfifo(path)
    with pytest.raises(OSError, match=r"is a pipe or a device\. Save its contents"):
        load_log(path)


def test_the_limit_is_raised_by_an_option_and_only_for_its_command(tmp_path, capsys):
    path = tmp_path / "log.npz"
    npz(path, (N, 500_000), compression=zipfile.ZIP_LZMA)
    for limit, is_refused in ([], True), (["--memory-limit", "1 GB"], False), ([], True):
        with contextlib.suppress(SystemExit):
            main([*limit, "check", str(path)])
        assert ("KBRL_MEMORY_LIMIT" in capsys.readouterr().out) == is_refused


def test_a_message_about_many_columns_names_a_few(tmp_path):
    faults = check_log(
        {f"obs_{k}": np.zeros(3) for k in range(1000)} | {"action": [0, 1, 0], "reward": [0, 1, 2], "done": [0, 0, 1]}
    ).faults
    assert "constant_variable" in [fault.name for fault in faults]
    assert max(len(fault.message) for fault in faults) < 1000


def test_a_limit_that_is_no_size_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--memory-limit", "much", "check", "log.csv"])
    assert "such as 500MB or 8GB, but it is 'much'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--memory-limit", f"{'9' * 308} GB", "check", "log.csv"])
    assert "such as 500MB or 8GB" in capsys.readouterr().err


def test_an_npz_array_of_a_negative_size_is_refused_and_not_read_to_its_end(tmp_path):
    path = tmp_path / "log.npz"
    npz(path, (N, 8))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("infos.npy", "w") as file:
        npy.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (N, -1)})
        file.write(bytes(8 * N))
    assert "states the shape (6, -1)" in refused(path, "unreadable")


def pipe(path):
    os.mkfifo(path)


def nested_deep(path):
    path.write_text("[" * 200_000)


def mostly_a_hole(path):
    path.write_text("{")
    os.truncate(path, 60 * 10**9)


@pytest.mark.parametrize("make", [pipe, nested_deep, mostly_a_hole])
def test_a_folder_is_read_whatever_lies_there_in_the_place_of_metadata(tmp_path, make):
    make(tmp_path / "metadata.json")
    rows = "".join(f"{t // 3},{t % 2},{t},{int(t % 3 == 2)}\n" for t in range(12))
    (tmp_path / "log.csv").write_text(f"observation,action,reward,terminated\n{rows}")
    assert len(load_log(tmp_path)) == 12


def test_a_pipe_in_the_folder_of_an_episode_is_not_waited_for(tmp_path):
    (tmp_path / "metadata.json").write_text('{"total_episodes": 1}')
    (tmp_path / "0").mkdir()
    os.mkfifo(tmp_path / "0" / "episode.arrow")
    assert "holds no episode" in refused(tmp_path, "missing_file")


@pytest.mark.parametrize("name", ["episode_01", "episode_00"])
def test_two_names_of_one_episode_are_refused(tmp_path, name):
    path = tmp_path / "log.h5"
    with h5py.File(path, "w") as file:
        for group in ("episode_0", "episode_1", name):
            file[f"{group}/observations"] = np.arange(8.0).reshape(4, 2)
            file[f"{group}/actions"], file[f"{group}/rewards"] = np.arange(3) % 2, np.arange(3.0)
    assert f"{name!r} is not how an episode is numbered" in refused(path, "unreadable")


def test_a_size_that_the_system_does_not_tell_is_that_of_the_data(tmp_path, monkeypatch):
    """ZFS counts the blocks of a new file seconds later, and some network drives never do."""
    path, ask = tmp_path / "log.npz", os.stat
    path.write_bytes(b"1" * 100_000)
    with open(path, "r+b") as file:
        file.truncate(10**9)

    def stat_without_blocks(*given, **more):
        known = ask(*given, **more)
        return os.stat_result((*known[:10],), {"st_blocks": 0})

    monkeypatch.setattr(os, "stat", stat_without_blocks)
    assert 100_000 <= bytes_on_disk(path) < 200_000

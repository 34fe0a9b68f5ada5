"""The cell that a message quotes is the one in the row that it names."""

import pytest

import kbrl.data.readers as readers
from kbrl.data.quality import check_log


@pytest.mark.parametrize("splitter", ["Arrow", "Python"])
@pytest.mark.parametrize(("cells", "quoted"), [({0: "", 10: "died"}, "nothing"), ({4: "gone", 10: "died"}, "'gone'")])
def test_the_first_cell_at_fault_is_quoted_not_the_first_word(tmp_path, monkeypatch, splitter, cells, quoted):
    monkeypatch.setattr(readers, "has_pyarrow", lambda: splitter == "Arrow")
    lines = ["obs,action,reward,terminated", *(f"{row},a,{row},{cells.get(row, 0)}" for row in range(20))]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    for chunk_rows in (3, 65536):
        report = check_log(tmp_path / "log.csv", chunk_rows=chunk_rows)
        (fault,) = [fault for fault in report.faults if fault.name == "bad_flag"]
        assert fault.rows == tuple(cells)
        assert fault.message.endswith(f": {quoted}.")

"""Reading a folder of recordings, and what is said about a broken one."""

import numpy as np
import pytest

from kbrl.tasks.recordings import Recordings, read_recordings

FEATURES = "0.5 1.0\n1.5 -2\n2.5e-1 3.0\n4 5\n"
LABELS = "1 1 1\n1 1 2\n1 1 3\n2 1 1\n"
PARAMETERS = "f.dat\nl.dat\ns.dat\n4 \n2 \n3\n3\n0.02\n5"


def write(folder, **files):
    contents = {"params": PARAMETERS, "f": FEATURES, "l": LABELS, "s": "-0.6  0.8"} | files
    for name, text in contents.items():
        if text is not None:
            (folder / f"{name}.dat").write_text(text)
    return folder


def test_a_folder_is_read_as_it_is_written(tmp_path):
    found = read_recordings(write(tmp_path))
    np.testing.assert_array_equal(found.features, [[0.5, 1.0], [1.5, -2.0], [0.25, 3.0], [4.0, 5.0]])
    np.testing.assert_array_equal(found.labels, [1, 2, 3, 1])
    np.testing.assert_array_equal(found.seizures, [False, False, True, False])
    np.testing.assert_array_equal(found.recordings, [1, 1, 1, 2])
    np.testing.assert_array_equal(found.stimulation, [-0.6, 0.8])
    assert (found.magnitude, found.is_substitute, found.pulses.any()) == (0.02, False, False)
    assert "4 rows of 2 features in 2 recordings, 25.0% in seizure; recordings in" in repr(found)


def test_blank_lines_and_other_line_ends_do_not_matter(tmp_path):
    found = read_recordings(write(tmp_path, f=FEATURES.replace("\n", "\r\n") + "\r\n\r\n", params=PARAMETERS + "\n\n"))
    assert found.features.shape == (4, 2)


def params(line, text):
    lines = PARAMETERS.split("\n")
    lines[line - 1] = text
    return "\n".join(lines)


@pytest.mark.parametrize(
    "files, error, message",
    [
        ({"params": None}, FileNotFoundError, r"must have params.dat, but it holds f.dat, l.dat, s.dat"),
        ({"f": None}, FileNotFoundError, r"must have f.dat, but it holds l.dat, params.dat, s.dat"),
        ({"s": None}, FileNotFoundError, r"must have s.dat"),
        (
            {"f": FEATURES[:24]},
            ValueError,
            r"f.dat must have 4 rows, as params.dat says, but it has 3: it is cut short",
        ),
        ({"l": LABELS[:12]}, ValueError, r"l.dat must have 4 rows, as params.dat says, but it has 2: it is cut short"),
        ({"f": ""}, ValueError, r"f.dat must have 4 rows, as params.dat says, but it has 0"),
        ({"l": LABELS + "2 1 1\n"}, ValueError, r"l.dat must have 4 rows, .* but it has 5: it is too long"),
        ({"f": FEATURES[:-2]}, ValueError, r"f.dat, line 4: 2 numbers are needed, but there are 1"),
        ({"f": FEATURES.replace("2.5e-1", "oops")}, ValueError, r"f.dat, line 3: a finite number .* it says 'oops'"),
        ({"f": FEATURES.replace("-2", "nan")}, ValueError, r"f.dat, line 2: a finite number is needed, .* 'nan'"),
        ({"s": "inf 1"}, ValueError, r"s.dat, line 1: a finite number is needed, but it says 'inf'"),
        ({"s": "1 2 3"}, ValueError, r"s.dat, line 1: 2 numbers are needed, but there are 3"),
        (
            {"l": "1 1 1\n1 1 4\n1 1 3\n2 1 9\n"},
            ValueError,
            r"labels of l.dat .* whole numbers from 1 to 3, but 2 of 4",
        ),
        ({"l": "1 1 1\n1 1 0\n1 1 3\n2 1 1\n"}, ValueError, r"the first is row 1: 0.0"),
        ({"l": "1 1 1\n1 1 1.5\n1 1 3\n2 1 1\n"}, ValueError, r"the first is row 1: 1.5"),
        (
            {"l": "1 1 1\n-1 1 1\n1 1 3\n2 1 1\n"},
            ValueError,
            r"recordings of l.dat .* whole numbers from 0, but 1 of 4",
        ),
        ({"params": "f.dat\nl.dat"}, ValueError, r"9 lines, but it has 2: the name of the stimulation file is missing"),
        ({"params": params(4, "many")}, ValueError, r"params.dat, line 4 \(the number of rows\): .* it says 'many'"),
        ({"params": params(5, "0")}, ValueError, r"params.dat, line 5 \(the number of features\): .* it says '0'"),
        ({"params": params(6, "1")}, ValueError, r"params.dat, line 6: there must be two label columns or more"),
        ({"params": params(8, "big")}, ValueError, r"params.dat, line 8 \(the magnitude of a pulse\): .* 'big'"),
        ({"params": params(1, "../f.dat")}, ValueError, r"the features file must be a plain name .* '../f.dat'"),
        (
            {"params": params(2, "")},
            ValueError,
            r"the labels file must be a plain name of a file beside it, but it is ''",
        ),
        ({"params": params(4, "1"), "f": "1 2\n", "l": "1 1 1\n"}, ValueError, r"at least two rows"),
    ],
)
def test_a_broken_folder_is_refused_by_file_and_line(tmp_path, files, error, message):
    with pytest.raises(error, match=message):
        read_recordings(write(tmp_path, **files))


def test_an_empty_folder_and_no_folder_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"must have params.dat, but it is empty"):
        read_recordings(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"is not a folder. Pass one with params.dat"):
        read_recordings(tmp_path / "nowhere")
    with pytest.raises(TypeError, match=r"must be the path of a folder, or Recordings, but they are 7"):
        read_recordings(7)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    write(tmp_path)
    (tmp_path / "f.dat").write_bytes(b"\xff\xfe 1\n" * 4)
    with pytest.raises(ValueError, match=r"f.dat, line 1: a finite number is needed"):
        read_recordings(tmp_path)


GOOD = {"features": [[0.0], [1.0]], "labels": [1, 3], "recordings": [1, 1], "stimulation": [1.0], "magnitude": 0.1}


def test_recordings_cannot_be_changed():
    made = Recordings(**GOOD)
    with pytest.raises(ValueError, match="read-only"):
        made.features[0] = 1.0
    with pytest.raises(AttributeError, match="cannot assign"):
        made.magnitude = 2.0


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("features", [[0.0], [np.nan]], "features must be finite"),
        ("labels", [1], r"labels must be one per row of the features, shape \(2,\), but the shape is \(1,\)"),
        ("labels", [1, 4], "labels must be whole numbers from 1 to 3"),
        ("recordings", [1, 1.5], "recordings must be whole numbers from 0"),
        ("stimulation", [1.0, 2.0], r"stimulation must be one number per feature, shape \(1,\)"),
        ("stimulation", [np.inf], "stimulation must be finite"),
        ("magnitude", np.nan, "magnitude must be a finite number"),
        ("pulses", [True], r"pulses must be one per row of the features, shape \(2,\)"),
    ],
)
def test_recordings_of_ones_own_are_checked(field, value, message):
    with pytest.raises(ValueError, match=message):
        Recordings(**GOOD | {field: value})

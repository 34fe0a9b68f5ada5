"""The ward in tables of other countries and programs: init finds what they mean, and nothing has to be edited.

Each form is written from the clean table of the simulator, and the policy that is learnt from it is judged there.
"""

import json
import sqlite3
import tomllib
import warnings
from pathlib import Path

import numpy as np
import openpyxl
import pandas
import pytest

from kbrl import load_model
from kbrl.cli import main
from ward_simulator import DOSES, FIT, clean_table, mean_return

pytestmark = pytest.mark.usefixtures("here")


def holes(frame, name, seed=1, share=0.1):
    return np.random.default_rng(seed).random(len(frame)) < share, frame[name]


def german(frame):
    """Semicolons, decimal commas, dates with points, - for a missing value, ja and nein, cp1252."""
    gone, lactate = holes(frame, "Laktat")
    days = pandas.Timestamp("2023-03-20") + pandas.to_timedelta(frame.Tag, "D")
    table = {"Fall-Nr.": frame.Patient, "Zeitpunkt": days.dt.strftime("%d.%m.%Y 08:15")}
    table |= {"Schwere (0–6)": [f"{v}".replace(".", ",") for v in frame.Schwere]}
    table |= {"Laktat [mmol/l]": ["-" if g else f"{v}".replace(".", ",") for g, v in zip(gone, lactate)]}
    table |= {"weiblich": np.where(frame.Geschlecht == "weiblich", "ja", "nein"), "Gabe": frame.Dosis}
    table |= {"Nutzen": [f"{v}".replace(".", ",") for v in frame.Score]}
    table |= {"Verlauf": frame.outcome.map({"home": "entlassen", "died": "verstorben", "ongoing": "stationär"})}
    pandas.DataFrame(table).to_csv("deutsch.csv", sep=";", index=False, encoding="cp1252")
    return "deutsch.csv", {"Schwere": "Schwere (0–6)", "Laktat": "Laktat [mmol/l]", "Geschlecht": "weiblich"}, DOSES


def french(frame):
    """Semicolons, accents, n/d for a missing value, two flags of ends in oui and non, latin-1."""
    gone, lactate = holes(frame, "Laktat")
    doses = dict(zip(DOSES, ("aucun", "faible", "fort")))
    table = {"Numéro séjour": frame.Patient, "Jour": frame.Tag, "Gravité": frame.Schwere.map(str)}
    table |= {"Lactate": ["n/d" if g else str(v) for g, v in zip(gone, lactate)]}
    table |= {"Femme": np.where(frame.Geschlecht == "weiblich", "oui", "non"), "Traitement": frame.Dosis.map(doses)}
    table |= {"Récompense": frame.Score, "Décès": np.where(frame.outcome == "died", "oui", "non")}
    table |= {"Sorti": np.where(frame.outcome == "home", "oui", "non")}
    pandas.DataFrame(table).to_csv("francais.csv", sep=";", index=False, encoding="latin-1")
    names = {"Schwere": "Gravité", "Laktat": "Lactate", "Geschlecht": "Femme"}
    return "francais.csv", names, tuple(doses.values())


def american(frame):
    """Month first, AM, units in the cells, -99 for a missing value, Y and N."""
    gone, lactate = holes(frame, "Laktat")
    days = pandas.Timestamp("2023-03-20 08:15") + pandas.to_timedelta(frame.Tag, "D")
    doses = dict(zip(DOSES, ("0 mg", "5 mg", "10 mg")))
    table = {"Subject": frame.Patient, "Visit Date": days.dt.strftime("%m/%d/%Y %I:%M %p")}
    table |= {"Severity": frame.Schwere.map(lambda v: f"{v} pts"), "Lactate": np.where(gone, -99, lactate)}
    table |= {"Female": np.where(frame.Geschlecht == "weiblich", "Y", "N"), "Dose": frame.Dosis.map(doses)}
    table |= {"Score": frame.Score, "Died": np.where(frame.outcome == "died", "Y", "N")}
    table |= {"Discharged": np.where(frame.outcome == "home", "Y", "N")}
    pandas.DataFrame(table).to_csv("american.csv", index=False)
    return "american.csv", {"Schwere": "Severity", "Laktat": "Lactate", "Geschlecht": "Female"}, tuple(doses.values())


def spreadsheet(frame):
    """A cover sheet, a title above the header, identifiers in merged cells."""
    gone, lactate = holes(frame, "Laktat")
    book = openpyxl.Workbook()
    book.active["A1"] = "Read me"
    sheet = book.create_sheet("Data")
    sheet["A1"] = "Ward 4, 2023"
    sheet.merge_cells("A1:G1")
    for place, name in enumerate(["Patient", "Day", "Severity", "Lactate", "Sex", "Drug", "Score", "Outcome"], start=1):
        sheet.cell(3, place, name)
    first = frame.Patient != frame.Patient.shift()
    shown = frame.outcome.where(frame.outcome != "ongoing", None)
    cells = [frame.Patient.where(first, None), frame.Tag, frame.Schwere, lactate.mask(gone), frame.Geschlecht]
    for row, values in enumerate(zip(*cells, frame.Dosis, frame.Score, shown), start=4):
        for place, value in enumerate(values, start=1):
            sheet.cell(row, place, None if value != value else value)
    book.save("ward.xlsx")
    return "ward.xlsx", {"Schwere": "Severity", "Laktat": "Lactate", "Geschlecht": "Sex"}, DOSES


def nested(frame):
    """JSON lines with objects in objects, times with a zone, keys that only some lines have."""
    gone, lactate = holes(frame, "Laktat")
    start = pandas.Timestamp("2023-03-20 08:15", tz="Europe/Berlin")  # the clock changes on the 26th
    with open("stays.jsonl", "w", encoding="utf-8") as file:
        for row, is_gone, value in zip(frame.itertuples(), gone, lactate):
            vitals = {"severity": row.Schwere} | ({} if is_gone else {"lactate": value})
            when = (start + pandas.Timedelta(days=row.Tag)).isoformat()
            line = {"stay": {"stay_id": row.Patient, "time": when}, "vitals": vitals, "sex": row.Geschlecht}
            line |= {"treatment": {"drug": row.Dosis}, "reward": row.Score, "terminated": row.outcome != "ongoing"}
            file.write(json.dumps(line) + "\n")
    names = {"Schwere": "vitals_severity", "Laktat": "vitals_lactate", "Geschlecht": "sex"}
    return "stays.jsonl", names, DOSES


def view(frame):
    """A view of a database with other tables, out of order."""
    gone, lactate = holes(frame, "Laktat")
    rows = frame.assign(Laktat=lactate.mask(gone)).sample(frac=1.0, random_state=3)
    with sqlite3.connect("ward.sqlite") as connection:
        rows.to_sql("raw", connection, index=False)
        connection.execute("create table units (id, name)")
        connection.execute(
            "create view visits as select Patient as patient_id, Tag as visit, Schwere as severity, Laktat as lactate, "
            "Geschlecht as sex, Dosis as drug, Score as reward, outcome != 'ongoing' as ended, 'x' as site, 1 as one "
            "from raw"
        )
    connection.close()
    return "ward.sqlite", {"Schwere": "severity", "Laktat": "lactate", "Geschlecht": "sex"}, DOSES


FORMS = {"german": german, "french": french, "american": american, "excel": spreadsheet, "json": nested, "sqlite": view}


@pytest.mark.parametrize("form", FORMS)
def test_a_table_needs_no_edit_and_gives_a_policy_as_good_as_the_clean_one(form, clean_return, capsys):
    log, names, doses = FORMS[form](clean_table())
    main(["init", log, "-o", "log.toml"])
    found = tomllib.loads(Path("log.toml").read_text(encoding="utf-8"))
    assert sorted(found["state"]) == sorted(names.values())
    main(["check", log, "--config", "log.toml"])
    main(["fit", log, "--config", "log.toml", "-o", "m.kbrl", *FIT])
    main(["predict", "m.kbrl", log, "-o", "answers.csv", "--keep", found["episode"], "-q"])
    answers = pandas.read_csv("answers.csv")
    assert answers["action"].notna().all()
    assert answers[found["episode"]].notna().all()
    level = {"weiblich": "ja", "männlich": "nein"} if form == "german" else {}
    level = {"weiblich": "yes", "männlich": "no"} if form in ("french", "american") else level

    def as_written(states):
        return states.replace(level).rename(columns=names) if level else states.rename(columns=names)

    state = as_written(pandas.DataFrame({"Schwere": [3.0], "Laktat": [2.0], "Geschlecht": ["weiblich"]})).iloc[0]
    main(["explain", "m.kbrl", "--state", ",".join(f"{k}={v}" for k, v in state.items()), "--log", log, "-q"])
    main(["report", "m.kbrl", log, "-o", "report.html", "-q"])
    main(["update", "m.kbrl", log, "--alone", "-o", "alone.kbrl", "-q"])
    model, back = load_model("m.kbrl"), dict(zip(doses, DOSES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reached = mean_return(lambda states: [back[label] for label in model.predict(as_written(states))])
    best_dose = max(mean_return(lambda states, dose=dose: [dose] * len(states)) for dose in DOSES)
    assert reached >= clean_return - 0.05 * (clean_return - best_dose)

"""The usual names of columns: canonical names, those of other libraries, and words that people use.

Recognised: Gymnasium, Minari, D4RL, d3rlpy, RLlib and LeRobot.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

# The first name of each role is the canonical one.
ALIASES: dict[str, tuple[str, ...]] = {
    "episode": ("episode_id", "episode", "episodes", "episode_ids", "eps_id", "episode_index"),
    "step": ("step", "steps", "t", "timestep", "time_step", "frame_index"),
    "state": ("observation", "observations", "obs", "state", "states", "observation.state"),
    "action": ("action", "actions"),
    "reward": ("reward", "rewards", "next.reward"),
    "next_state": (
        "next_observation", "next_observations", "next_obs", "new_obs", "next_state", "next_states",
        "next.observation.state",
    ),
    "terminated": ("terminated", "terminateds", "termination", "terminations", "terminal", "terminals", "is_terminal"),
    "truncated": ("truncated", "truncateds", "truncation", "truncations", "timeout", "timeouts"),
    "done": ("done", "dones", "next.done", "episode_terminals"),
    "action_prob": ("action_prob", "action_probability", "propensity", "propensities"),
    "duration": ("step_duration",),  # a column called duration may be anything, such as that of a stay
}  # fmt: skip
PREFIXES: dict[str, tuple[str, ...]] = {
    "state": ("observation_", "observations_", "obs_", "state_"),
    "next_state": ("next_observation_", "next_observations_", "next_obs_", "new_obs_", "next_state_"),
}

# Words in the names of columns that people made, without accents: the better ones first.
ROLE_WORDS = {
    "episode": "episode|trajectory|patient|subject|stay|admission|hadm|person|session|participant|case|user|"
    "customer|client|pat|ptid|patid|patno|usubjid|subjid|mrn|icustay|icustayid|encounter|student|pupil|driver|"
    "vehicle|household|batch|run|asset|fall|fallnr|fallnummer|aufenthalt|kunde|sujet|sejour|dossier|paciente|"
    "paziente|cliente|sujeto|caso|ingreso|unit|machine|device|maschine|anlage|maquina",
    "step": "step|time|timestamp|datetime|date|day|hour|minute|min|second|visit|charttime|week|month|seq|sequence|"
    "visitno|visitnum|visitnr|bloc|epoch|cycle|period|round|t|at|when|datum|zeit|zeitpunkt|uhrzeit|tag|stunde|woche|"
    "monat|visite|jour|heure|semaine|mois|fecha|hora|dia|semana|mes|visita|data|giorno|ora|paso|schritt|etape",
    "action": "action|act|treatment|treat|therapy|drug|dose|dosage|medication|arm|intervention|regimen|decision|"
    "bolus|basal|insulin|choice|offer|variant|order|vasopressor|control|setting|setpoint|command|exercise|lesson|"
    "staffing|staff|charging|irrigation|watering|fertilizer|feeding|maintenance|repair|behandlung|therapie|"
    "medikament|dosis|gabe|massnahme|aktion|entscheidung|wartung|bewasserung|traitement|medicament|tratamiento|"
    "terapia|farmaco|medicamento|accion|riego|azione|trattamento|acao",
    "reward": "reward|return|payoff|gain|benefit|utility|score|click|clicked|conversion|profit|revenue|range|"
    "success|paid|points|yield|net|kpi|margin|sales|qol|earnings|nutzen|erfolg|belohnung|ertrag|gewinn|umsatz|erlos|"
    "punkte|recompense|benefice|revenu|recompensa|ganancia|beneficio|ingresos|puntos|ricompensa|guadagno|ricavo",
    "minimize": "cost|costs|risk|loss|penalty|mortality|pain|kosten|risiko|verlust|cout|couts|risque|perte|coste|"
    "costo|riesgo|perdida|rischio|perdita|custo",
    "terminated": "terminated|terminal|done|end|ended|ends|died|death|dead|discharged|discharge|finished|over|last|"
    "outcome|disposition|status|exit|result|entlassen|entlassung|verstorben|tod|ende|verlauf|ergebnis|ausgang|deces|mort|decede|"
    "sorti|sortie|fin|issue|alta|fallecido|muerte|resultado|estado|dimesso|deceduto|esito|obito",
    "harm": "died|death|dead|deceased|expired|expire|quit|aborted|mortality|failed|failure|fail|broken|breakdown|"
    "crash|crashed|dropout|dropped|churn|churned|relapse|readmitted|readmission|complication|defect|defaulted|"
    "cancelled|verstorben|gestorben|tod|tot|ausfall|ausgefallen|defekt|panne|storung|abbruch|gekundigt|deces|decede|"
    "mort|abandon|muerte|fallecido|fallo|averia|abandono|deceduto|guasto|obito|falha",
    "success": "discharged|home|recovered|cured|healed|passed|success|successful|graduated|completed|renewed|"
    "converted|sold|won|entlassen|geheilt|bestanden|erfolgreich|gueri|reussi|curado|aprobado|guarito|dimesso",
    "truncated": "truncated|timeout|censored|cut|lost|abgebrochen|abbruch|censure|perdu|censurado|abandono",
    "propensity": "propensity|probability|prob|pscore",
    "earlier": "last|previous|prev|prior|former|earlier|before|initial|baseline|pre|letzte|letzter|letztes|vorige|"
    "voriger|voriges|vorher|dernier|derniere|precedent|precedente|ultimo|ultima|anterior|previo|previa|iniziale",
}


def families(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns of states and next states that have the prefixes of other libraries, or next_."""
    found = {}
    for role, prefixes in PREFIXES.items():
        found[role] = [name for name in names if name.lower().startswith(prefixes) or name.lower() in ALIASES[role]]
    if not found["next_state"]:
        found["next_state"] = [n for n in names if n.lower().startswith("next_") and n[5:] in names]
    return found


def without_prefix(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of state variables without a common prefix such as observation_."""
    prefix = next((p for p in PREFIXES["state"] if all(name.lower().startswith(p) for name in names)), "")
    return tuple(name[len(prefix) :] for name in names)


def display_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of state variables for people: without a common prefix, unless only a number would be left."""
    bare = without_prefix(names)
    return tuple(names) if any(name.isdigit() for name in bare) else bare


def listing(names: Sequence[str]) -> str:
    """Return the names, quoted, for a message; at most a dozen of them."""
    shown = ", ".join(map(repr, names[:12]))
    return (shown or "no columns") + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def has_word(text: str, role: str) -> bool:
    """Return whether a text has a word of a role."""
    return not set(words_of(text)).isdisjoint(ROLE_WORDS[role].split("|"))


def words_of(name: str) -> list[str]:
    """Return the words of a name, without accents: patientId, patient_id and "Patient ID" have the same."""
    bare = "".join(letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", bare.replace("ß", "ss"))
    return [word for word in re.split(r"[\W_]+", spaced.lower()) if word]

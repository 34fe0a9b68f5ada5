"use strict";
// Sorting and filtering of tables, and the look-up of one's own case.  Nothing is loaded, nothing is sent.

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  if (body.rows.length < 3) return;
  const key = (row, k) => {
    const data = row.cells[k].querySelector("data");
    return data ? Number(data.value) : row.cells[k].textContent.trim();
  };
  heads.forEach((head, k) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].map(row => [key(row, k), row]);
      rows.sort(([a], [b]) => typeof a !== typeof b ? (typeof a === "number" ? -1 : 1)
        : (typeof a === "number" ? b - a : b.localeCompare(a)) * (down ? 1 : -1));
      body.append(...rows.map(([, row]) => row));
    });
  });
  if (body.rows.length < 8) return;
  const label = document.createElement("label"), box = document.createElement("input");
  label.className = "filter";
  box.type = "search";
  label.append("Show rows with ", box);
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(words);
  });
  table.parentElement.before(label);
}
document.querySelectorAll("table").forEach(sortable);

function unpacked(text) {
  return text && new Float32Array(Uint8Array.from(atob(text), letter => letter.charCodeAt(0)).buffer);
}

function distancesTo(points, state, nDims, norm) {  // a norm of 0 is the largest difference
  const found = new Float64Array(points.length / nDims);
  for (let i = 0; i < found.length; i++) {
    let total = 0;
    for (let k = 0; k < nDims; k++) {
      const gap = Math.abs(state[k] - points[i * nDims + k]);
      total = norm === 0 ? Math.max(total, gap) : total + (norm === 2 ? gap * gap : gap ** norm);
    }
    found[i] = norm === 0 ? total : norm === 2 ? Math.sqrt(total) : total ** (1 / norm);
  }
  return found;
}

function smallest(values, count) {  // the places of the smallest, in order
  return [...values.keys()].sort((a, b) => values[a] - values[b] || a - b).slice(0, count);
}

function weightsOf(model, state) {  // of the representative states, as kappa-bar has them
  const z = distancesTo(model.reps, state, model.n[1], model.norm).map((d, i) => d / model.widths[i]);
  const nearest = z.reduce((a, b) => Math.min(a, b)), value = {
    exponential: x => Math.exp(nearest - x),
    gaussian: x => Math.exp(0.5 * (nearest - x) * (nearest + x)),
    uniform: x => x <= Math.max(1 + 1e-12, nearest) ? 1 : 0,
  }[model.profile];
  let weights = z.map(value);
  if (model.neighbors) {
    const kept = new Set(smallest(z, model.neighbors));
    weights = weights.map((w, i) => kept.has(i) ? w : 0);
  }
  const total = weights.reduce((a, b) => a + b);
  return weights.map(w => w / total);
}

function mixed(q, weights) {  // one value per answer; -Infinity where nothing is known
  const m = weights.length, values = [];
  for (let a = 0; a < q.length / m; a++) {
    let mass = 0, total = 0;
    for (let i = 0; i < m; i++) if (q[a * m + i] > -Infinity) {
      mass += weights[i];
      total += weights[i] * q[a * m + i];
    }
    values.push(mass > 0 ? total / mass : -Infinity);
  }
  return values;
}

function bestOf(q) {  // the first of equals
  const top = Math.max(...q), size = Math.max(0, ...q.filter(isFinite).map(Math.abs));
  return q.findIndex(value => value >= top - 1e-12 * size);
}

const fade = (distance, length) => Math.min(1, Math.max(0, 2 - distance / length));

function supportOf(model, state, weights) {  // logged cases behind each action
  if (!model.cases) return null;
  const m = model.n[0], nActions = model.n[2], ways = distancesTo(model.reps, state, model.n[1], model.sampleNorm);
  const order = smallest(ways, m), reached = [], numbers = [];
  for (let a = 0; a < nActions; a++) {
    const near = order.filter(i => model.near[a * m + i] < Infinity).slice(0, model.nearReps);
    reached.push(Math.min(Infinity, ...near.map(i => ways[i] + model.near[a * m + i])));
    let mass = 0, total = 0;
    for (let i = 0; i < m; i++) if (model.cases[a * m + i]) {
      mass += weights[i];
      total += weights[i] / model.cases[a * m + i];
    }
    numbers.push(total ? mass / total : 0);
  }
  const any = Math.min(...reached);
  return numbers.map((n, a) => reached[a] === Infinity ? 0 :
    n * Math.min(fade(any, model.reach), fade(reached[a] - any, model.ownReach)));
}

function mostPrefer(q, a, weights) {  // whether most of the weight of representative states prefers an action to now
  const m = weights.length, now = q.length - m;
  return weights.reduce((sum, w, i) => sum + (q[a * m + i] > q[now + i] ? w : 0), 0) > 0.5;
}

function restricted(model, q, support, weights) {  // a model that defers offers what has support and most prefer
  if (model.least === null) return q;
  const now = q[q.length - 1], close = 4e-12 * Math.max(0, ...q.filter(isFinite).map(Math.abs));
  return q.map((value, a) => a === q.length - 1 ? value : !(support[a] >= model.least) ? -Infinity
    : value > now + close && mostPrefer(model.q, a, weights) ? value : Math.min(value, now - close));
}

function answer(model, raw) {
  const nDims = model.n[1], state = raw.map((x, k) => (x - model.centre[k]) / model.scale[k]);
  const weights = weightsOf(model, state), support = supportOf(model, state, weights);
  const q = restricted(model, mixed(model.q, weights), support, weights), best = bestOf(q);
  let agreement = null;
  if (model.resamples) {
    const size = q.length * weights.length, count = model.resamples.length / size;
    agreement = 0;
    for (let b = 0; b < count; b++) {
      const each = model.resamples.subarray(b * size, (b + 1) * size), isOut = a => q[a] === -Infinity ||
        model.least !== null && a < q.length - 1 && !mostPrefer(each, a, weights);
      agreement += (bestOf(mixed(each, weights).map((value, a) => isOut(a) ? -Infinity : value)) === best) / count;
    }
  }
  const ways = distancesTo(model.reps, state, nDims, 2), near = smallest(ways, 5);
  const logged = model.logged && (() => {
    const gaps = distancesTo(model.logged.states, state, nDims, 2);
    return smallest(gaps, 5).map(i => ({ place: i, distance: gaps[i] }));
  })();
  const second = Math.max(-Infinity, ...q.filter((value, a) => a !== best));
  const close = model.margin !== null && !(q[best] - second > model.margin);  // where looking ahead may differ
  return { q, best, close, support, agreement, near: near.map(i => ({ place: i, distance: ways[i] })), logged };
}

function openModel() {
  const holder = document.getElementById("look-up-data");
  if (!holder) return null;
  const model = JSON.parse(holder.textContent);
  for (const name of ["widths", "reps", "q", "cases", "near", "resamples"]) model[name] = unpacked(model[name]);
  if (model.logged) model.logged.states = unpacked(model.logged.states);
  return model;
}

const digits = x => !isFinite(x) ? "not offered" : Math.abs(x) >= 1e6 || (x && Math.abs(x) < 1e-4) ? x.toExponential(2)
  : x.toLocaleString("en", { maximumSignificantDigits: 4 });

function filled(id, rows) {  // cells as text: nothing of the data is ever read as markup
  const body = document.getElementById(id).tBodies[0];
  body.replaceChildren(...rows.map(cells => {
    const row = document.createElement("tr");
    cells.forEach((text, k) => {
      const cell = document.createElement(k ? "td" : "th");
      if (k) cell.className = "number"; else cell.scope = "row";
      cell.textContent = text;
      row.append(cell);
    });
    return row;
  }));
}

function show(model, raw) {
  const found = answer(model, raw), labels = model.labels, nDims = model.n[1];
  const support = a => !found.support ? "not known" : a < model.n[2] ? digits(found.support[a])
    : digits(found.support.reduce((x, y) => x + y));
  const outside = found.support && Math.max(...found.support) < 0.05;
  document.getElementById("advice").textContent = labels[found.best];
  document.getElementById("advice-note").textContent = [
    found.support ? `Rests on about ${support(found.best)} logged cases.` : "Support is not known.",
    found.agreement === null ? "" : `${Math.round(100 * found.agreement)} % of resampled logs give the same answer.`,
    found.close ? "Too close for this page: the model itself may answer otherwise." : "",
    outside ? "No logged case is near: do not rely on this." : "",
  ].join(" ");
  const order = found.q.map((_, a) => a).sort((a, b) => (b === found.best) - (a === found.best) || found.q[b] - found.q[a]);
  filled("look-up-answers", order.map(a => [labels[a], digits(found.q[a]), support(a)]));
  const rawOf = (points, i) => model.names.map((_, k) => digits(points[i * nDims + k] * model.scale[k] + model.centre[k]));
  filled("look-up-near", found.near.map(({ place, distance }) => [place, digits(distance), ...rawOf(model.reps, place)]));
  if (found.logged) filled("look-up-cases", found.logged.map(({ place, distance }) => [
    model.logged.episodes[place] ?? "–", digits(distance), ...rawOf(model.logged.states, place),
    labels[model.logged.actions[place]], digits(model.logged.rewards[place]),
  ]));
  document.getElementById("look-up-result").hidden = false;
}

function valuesOf(box) {  // the state variables that a field stands for
  const listed = text => text === "" ? [] : text.split(" ").map(Number), text = box.value.trim();
  if (box.tagName === "SELECT") return listed(text);
  if (text === "" && box.dataset.missing) return listed(box.dataset.missing);
  const number = text === "" ? NaN : Number(text.replace(",", ".")), turn = 2 * Math.PI * number / box.dataset.period;
  return [...(box.dataset.period ? [Math.sin(turn), Math.cos(turn)] : [number]), ...listed(box.dataset.after)];
}

const lookUp = openModel(), form = document.getElementById("look-up-form");
if (lookUp && form) {
  form.hidden = false;
  form.addEventListener("submit", event => {
    event.preventDefault();
    const boxes = [...form.querySelectorAll("input, select")], wrong = boxes.find(box => !valuesOf(box).every(isFinite));
    document.getElementById("look-up-error").textContent = wrong ? `${wrong.dataset.name} must be a number.` : "";
    if (!wrong) show(lookUp, boxes.flatMap(valuesOf));
  });
}

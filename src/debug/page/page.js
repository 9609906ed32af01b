// Shows the snapshots of /debug/stream, and sends what the switches ask for. Text from the server is only ever set as
// text. Nothing is kept in the server: the plots have what this page has seen.
"use strict";

const HISTORY = 600; // points of a plot
const STEP = 0.5; // seconds between two points
const WAITING = 10; // keys shown of each queue
const GRACE = 1500; // milliseconds in which a switch that a person has moved ignores the server
const PLOTS = [
  { title: "Keys in queues", unit: "keys", lines: ["waiting", "backing off"] },
  { title: "Passes", unit: "a second", lines: ["changes seen", "passes"] },
  { title: "Requests", unit: "a second", lines: ["answered", "failed"] },
  { title: "Latency", unit: "ms", lines: ["wait in the queue", "pass"] },
];
const PHASES = { idle: "idle", listing: "listing", connecting: "connecting", watching: "watching", backingOff: "backing off" };

let newest = null; // the newest snapshot
let drawn = null; // the snapshot that is shown
let isPaused = false;
let history = [];
let rates = {}; // by name, over the last second
let marks = []; // snapshots of the last second, for rates
let shownKey = null;
const token = new URLSearchParams(location.hash.slice(1)).get("token");
const moved = new Map(); // when a person moved a switch

// --- helpers ---

const $ = (id) => document.getElementById(id);
const sum = (items, of) => items.reduce((total, item) => total + of(item), 0);

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "polyline", "path", "text"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function heldShards({ of, held, holders }) {
  const mine = Object.keys(held).length;
  if (!holders) return "Stands by: others hold the Lease";
  const unheld = of - Object.keys(holders).length;
  return `Holds ${mine} of ${of} shards${unheld ? `; nobody holds ${unheld}` : ""}`;
}

function say(node, text) {
  if (node.textContent !== String(text)) node.textContent = text;
}

function mark(node, name, value) {
  if (node.dataset[name] !== String(value)) node.dataset[name] = value;
}

// Makes the children of a node those of the items, and reuses what is there.
function fill(node, items, create, update) {
  while (node.children.length > items.length) node.lastElementChild.remove();
  items.forEach((item, at) => {
    if (at === node.children.length) node.append(create());
    update(node.children[at], item);
  });
}

function number(value) {
  if (value >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return value.toFixed(value < 10 ? 1 : 0);
}

function time(seconds) {
  if (seconds < 0.0995) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

// --- the stream ---

function listen() {
  const stream = new EventSource("/debug/stream");
  const state = (name, text) => {
    mark($("connection"), "state", name);
    say($("connection"), text);
  };
  stream.onopen = () => state("live", "Live");
  stream.onmessage = (event) => {
    const had = newest !== null;
    newest = JSON.parse(event.data);
    // Another process begins at zero.
    if (drawn && newest.uptimeSeconds < drawn.uptimeSeconds) [history, marks] = [[], []];
    remember(newest);
    if (!had || document.visibilityState === "visible") requestAnimationFrame(draw);
  };
  stream.onerror = () => {
    state("lost", "Connection lost, trying again");
    if (stream.readyState === EventSource.CLOSED) {
      setTimeout(listen, 2000);
    }
  };
}

function totals(snapshot) {
  return {
    at: snapshot.uptimeSeconds,
    changes: sum(snapshot.caches, (cache) => cache.events),
    begun: sum(snapshot.queues, (queue) => queue.passes.begun),
    passes: sum(snapshot.queues, (queue) => queue.passes.count),
    waited: sum(snapshot.queues, (queue) => queue.passes.waitedSeconds),
    took: sum(snapshot.queues, (queue) => queue.passes.tookSeconds),
    answered: sum(snapshot.requests, (request) => request.count),
    failed: sum(snapshot.requests, (request) => (request.answer === "ok" ? 0 : request.count)),
    writes: sum(snapshot.requests, (request) => (request.method === "GET" ? 0 : request.count)),
    byAnswer: new Map(snapshot.requests.map((request) => [`${request.method} ${request.answer}`, request.count])),
  };
}

// Computes rates over the last second, and adds a point to the plots.
function remember(snapshot) {
  const now = totals(snapshot);
  marks.push(now);
  while (marks.length > 2 && now.at - marks[0].at > 1.05) marks.shift();
  const then = marks[0];
  const span = Math.max(now.at - then.at, 0.1);
  for (const name of ["changes", "passes", "answered", "failed", "writes"]) rates[name] = (now[name] - then[name]) / span;
  rates.byAnswer = (name) => (now.byAnswer.get(name) - (then.byAnswer.get(name) ?? 0)) / span;
  const last = history.at(-1);
  if (last && now.at - last.at < STEP) return;
  const mean = (total, count) => {
    const passes = last ? now[count] - last[count] : 0;
    return passes > 0 ? ((now[total] - last[total]) / passes) * 1000 : null;
  };
  history.push({
    ...now,
    values: [
      [sum(snapshot.queues, (queue) => queue.waiting), sum(snapshot.queues, (queue) => queue.backingOff)],
      [rates.changes, rates.passes],
      [rates.answered, rates.failed],
      [mean("waited", "begun"), mean("took", "passes")],
    ],
  });
  if (history.length > HISTORY) history.shift();
}

// --- drawing ---

function draw() {
  if (isPaused || newest === drawn || newest === null) return;
  drawn = newest;
  drawPicture(drawn);
  drawQueues(drawn);
  drawCaches(drawn);
  drawRequests(drawn);
  drawSwitches(drawn.switches);
  const leader = drawn.leader;
  $("leader").hidden = !leader;
  if (leader) say($("leader"), drawn.shards ? heldShards(drawn.shards) : leader.isLeader ? "This process leads" : `Stands by for ${leader.holder || "nobody"}`);
}

function drawPicture({ caches, queues, inFlight, held }) {
  const watching = caches.filter((cache) => cache.phase === "watching").length;
  const backing = caches.filter((cache) => cache.phase === "backingOff").length;
  const depth = sum(queues, (queue) => queue.waiting);
  const off = sum(queues, (queue) => queue.backingOff);
  const delayed = sum(queues, (queue) => queue.delayed) - off;
  const busy = sum(queues, (queue) => queue.processing);
  const workers = sum(queues, (queue) => queue.workers);
  const fifo = sum(caches, (cache) => cache.queued);
  const pending = sum(caches, (cache) => sum(cache.handlers, (handler) => handler.pending));
  const isAny = (rate) => rate > 0.5;
  const figures = {
    server: [number(rates.answered), "requests a second", isAny(rates.changes), ""],
    reflector: [`${watching}/${caches.length}`, backing ? `${backing} backing off` : "kinds watched", isAny(rates.changes), backing ? "bad" : ""],
    fifo: [number(fifo), "changes wait", isAny(rates.changes), fifo > 100 ? "busy" : ""],
    store: [number(sum(caches, (cache) => cache.objects)), "objects", isAny(rates.changes), ""],
    handlers: [number(pending), `wait, ${number(rates.changes)} changes a second`, isAny(rates.changes), pending > 100 ? "busy" : ""],
    queue: [number(depth), `wait, ${number(delayed)} delayed, ${number(off)} backing off`, isAny(rates.passes), off ? "bad" : depth > workers ? "busy" : ""],
    workers: [`${busy}/${workers}`, `busy, ${number(rates.passes)} passes a second`, isAny(rates.passes), ""],
    gate: [number(rates.writes), `writes a second, ${inFlight} in flight, ${held} held`, isAny(rates.writes), rates.failed > 0.5 ? "bad" : ""],
  };
  const help = {
    reflector: `${watching} of ${caches.length} kinds are watched; the others are listed, or wait for the server`,
    workers: `${busy} of ${workers} workers make a pass now`,
  };
  PARTS.forEach((part, at) => {
    const [figure, note, flows, state] = figures[part.id];
    const item = $("picture").children[at];
    if (help[part.id]) mark(item.querySelector("button"), "help", help[part.id]);
    mark(item, "flows", flows);
    mark(item, "state", state);
    say(item.querySelector(".figure"), figure);
    say(item.querySelector(".note"), note);
  });
}

function keyButton(classes = "key") {
  return make("button", { type: "button", class: classes });
}

function setKey(button, key) {
  say(button, key);
  mark(button, "key", key);
}

function newQueue() {
  return make("article", { class: "queue" }, make("h3"), make("p", { class: "counts" }), make("div", { class: "bar", role: "img" }),
    make("div", { class: "waiting" }), make("ol", { class: "lanes" }), make("p", { class: "counts idle" }));
}

function drawQueues({ queues, time: now }) {
  fill($("queues"), queues, newQueue, (node, queue) => {
    const [title, counts, bar, waiting, lanes, idle] = node.children;
    mark(node, "controller", queue.controller);
    say(title, queue.controller);
    const oldest = queue.waiting ? `, the oldest for ${time(queue.oldestSeconds)}` : "";
    say(counts, `${queue.waiting} waiting${oldest}; ${queue.delayed - queue.backingOff} delayed; ${queue.backingOff} backing off; `
      + `${number(queue.passes.count)} passes, ${number(queue.passes.failed)} failed`);
    drawBar(bar, queue.byPriority);
    const keys = queue.keys ?? [];
    const others = keys.filter((key) => key.state !== "processing").slice(0, WAITING);
    fill(waiting, others, keyButton, (button, key) => {
      mark(button, "key", key.key);
      const left = key.until ? ` ${time(Math.max(0, (new Date(key.until) - new Date(now)) / 1000))}` : "";
      const words = { waiting: "", addedWhileProcessing: " again", backingOff: ` backs off${left}`, delayed: ` in${left}` };
      say(button, key.key + words[key.state]);
    });
    drawLanes(lanes, queue, keys);
    const rest = queue.workers - lanes.children.length;
    const unused = rest > 0 ? `${rest} of ${queue.workers} workers have had nothing to do. ` : "";
    say(idle, unused + (queue.why ? `${queue.workers} workers: ${queue.why}` : ""));
  });
}

function drawBar(bar, byPriority) {
  const all = Math.max(sum(byPriority, ([, length]) => length), 20);
  const names = byPriority.map(([priority, length]) => `${length} of priority ${priority}`);
  const label = names.length ? names.join(", ") : "no key waits";
  if (bar.getAttribute("aria-label") !== label) bar.setAttribute("aria-label", label);
  if (bar.title !== label) bar.title = label;
  fill(bar, byPriority, () => make("i"), (part, [priority, length]) => {
    part.className = priority < 0 ? "low" : "";
    part.style.width = `${(100 * length) / all}%`;
  });
}

function newLane() {
  return make("li", {}, make("span", { class: "worker" }), keyButton(), make("span", { class: "time" }), make("span", { class: "why" }));
}

function drawLanes(node, queue, keys) {
  const lanes = new Map(queue.lanes.filter((lane) => lane.worker < queue.workers).map((lane) => [lane.worker, lane]));
  for (const key of keys) if (key.state === "processing") lanes.set(key.worker, key);
  const shown = [...lanes].sort(([a], [b]) => a - b);
  fill(node, shown, newLane, (item, [worker, lane]) => {
    const [index, key, took, why] = item.children;
    const isBusy = lane.state === "processing";
    mark(item, "state", isBusy ? "busy" : lane.hasFailed ? "failed" : "idle");
    say(index, worker);
    setKey(key, lane.key);
    if (isBusy) {
      const request = lane.requests?.[0];
      const asks = request ? `${request.isHeld ? "held: " : ""}${request.method} ${request.path.replace(/^.*\/namespaces\/[^/]+\//, "…/")}` : "no request";
      say(took, time(lane.ageSeconds));
      say(why, `${asks}; because: ${lane.reasons || "?"}`);
    } else {
      say(took, time(lane.tookSeconds));
      say(why, `${lane.result} ${time(lane.endedSeconds)} ago`);
    }
  });
}

function drawCaches({ caches, time: now }) {
  const cells = () => make("tr", {}, make("th", { scope: "row" }), make("td"), make("td"), ...[1, 2, 3, 4, 5].map(() => make("td", { class: "number" })));
  fill($("caches"), caches, cells, (row, cache) => {
    const left = cache.until ? ` for ${time(Math.max(0, (new Date(cache.until) - new Date(now)) / 1000))}` : "";
    const trouble = cache.trouble ? `: ${cache.trouble}` : "";
    mark(row.children[1], "phase", cache.phase);
    const pending = sum(cache.handlers, (handler) => handler.pending);
    const values = [cache.kind, PHASES[cache.phase] + left + trouble, cache.resourceVersion, cache.events, cache.relists, cache.queued, cache.objects, pending];
    values.forEach((value, at) => say(row.children[at], typeof value === "number" ? number(value) : value));
  });
}

function drawRequests({ requests }) {
  const cells = () => make("tr", {}, make("td"), make("td"), make("td", { class: "number" }), make("td", { class: "number" }));
  fill($("requests"), requests, cells, (row, request) => {
    const rate = rates.byAnswer(`${request.method} ${request.answer}`);
    const values = [request.method, request.answer === "none" ? "no answer" : request.answer, number(request.count), number(rate)];
    values.forEach((value, at) => say(row.children[at], value));
  });
}

// --- plots ---

const WIDTH = 600;
const HEIGHT = 100;

function newPlot({ title, unit, lines }) {
  const legend = lines.map((line, at) => make("span", { class: ["first", "second"][at] }, make("i"), make("b"), ` ${line}`));
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title} over the last minutes` },
    make("path", { class: "axis", d: `M0 1H${WIDTH}M0 ${HEIGHT / 2}H${WIDTH}M0 ${HEIGHT - 1}H${WIDTH}` }),
    make("polyline", { class: "first" }), make("polyline", { class: "second" }));
  return make("figure", {}, make("figcaption", {}, make("strong", {}, `${title}, ${unit}`), ...legend), make("div", { class: "scale" }, make("span", { class: "top", tabindex: "0" })), svg,
    make("div", { class: "scale" }, make("span", { class: "since" }), make("span", {}, "now")));
}

function drawPlots() {
  if (isPaused || !history.length || document.visibilityState !== "visible") return;
  const end = history.at(-1).at;
  const span = Math.max(end - history[0].at, 60);
  PLOTS.forEach(({ unit }, plot) => {
    const figure = $("plots").children[plot];
    const top = Math.max(...history.flatMap((point) => point.values[plot]).filter((value) => value !== null), 1);
    say(figure.querySelector(".top"), `${number(top)} ${unit}`);
    mark(figure.querySelector(".top"), "help", `The upper edge is the highest value in this time, ${number(top)} ${unit}; the lower edge is 0`);
    say(figure.querySelector(".since"), `${time(span)} ago`);
    ["first", "second"].forEach((name, line) => {
      const points = history.filter((point) => point.values[plot][line] !== null).map((point) => {
        const x = WIDTH - ((end - point.at) / span) * WIDTH;
        return `${x.toFixed(1)},${(HEIGHT - 2 - (point.values[plot][line] / top) * (HEIGHT - 4)).toFixed(1)}`;
      });
      figure.querySelector(`polyline.${name}`).setAttribute("points", points.join(" "));
      const value = history.at(-1).values[plot][line];
      say(figure.querySelector(`span.${name} b`), value === null ? "–" : number(value));
    });
  });
}

// --- details ---

function showDetails(title) {
  const isOpen = !$("details").hidden;
  $("details").hidden = false;
  say($("details-title"), title);
  if (!isOpen) showDetails.from = document.activeElement;
  $("details-title").focus();
}

function closeDetails() {
  if ($("details").hidden) return;
  $("details").hidden = true;
  shownKey = null;
  showDetails.from?.focus();
}

function showPart(id) {
  const part = PARTS.find((part) => part.id === id);
  shownKey = null;
  showDetails(part.name);
  $("details-body").replaceChildren(make("p", {}, part.text), make("dl", {}, make("dt", {}, "In client-go"), make("dd", {}, part.go),
    make("dt", {}, "Here"), ...part.files.map((file) => make("dd", {}, make("code", {}, file))),
    make("dt", {}, "To build it yourself"), make("dd", {}, `${part.chapter}: `, make("code", {}, part.page))));
}

async function showKey(key) {
  if (shownKey !== key) {
    shownKey = key;
    showDetails(key);
    $("details-body").replaceChildren(make("p", {}, "Reading"));
  }
  const answer = await fetch(`/debug/keys?limit=60&key=${encodeURIComponent(key)}`).catch(() => null);
  if (shownKey !== key || !answer) return;
  if (!answer.ok) {
    $("details-body").replaceChildren(make("p", {}, await answer.text()));
    return;
  }
  const life = await answer.json();
  if (shownKey !== key) return;
  const where = life.controllers.map((place) => {
    const version = place.resourceVersion ? `version ${place.resourceVersion}` : "not in the cache";
    const states = place.states.map((state) => {
      const until = state.until ? ` until ${new Date(state.until).toLocaleTimeString()}` : "";
      return `${state.state.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)} for ${time(state.ageSeconds)}${until}`;
    });
    const failures = place.failures ? `; ${place.failures} failures since the last success` : "";
    return make("p", {}, make("b", {}, place.controller), `: ${version}, ${states.join(", ") || "at rest"}${failures}`);
  });
  if (!where.length) where.push(make("p", {}, "No cache and no queue has this key."));
  const events = life.events.toReversed().map((entry) => {
    const [text, state] = words(entry);
    const item = make("li", {}, make("time", {}, `${new Date(entry.time).toLocaleTimeString()} ${entry.controller}`), text);
    if (state) item.dataset.state = state;
    return item;
  });
  const list = make("ol", {}, ...events);
  $("details-body").replaceChildren(...where, make("h3", {}, "Newest first"), list);
}

function words(entry) {
  switch (entry.event) {
    case "began": {
      const version = entry.resourceVersion ? `version ${entry.resourceVersion}` : "the object is gone";
      return [`Worker ${entry.worker} took it after ${time(entry.waitedSeconds)}; ${version}; because: ${entry.reasons || "?"}`, ""];
    }
    case "held":
      return ["Waits until the caches show its own writes", ""];
    case "request": {
      const held = entry.heldSeconds > 0.001 ? `, ${time(entry.heldSeconds)} of them before it was sent` : "";
      return [`${entry.method} ${entry.path}: ${entry.answer} after ${time(entry.tookSeconds)}${held}`, entry.answer === "ok" ? "" : "failed"];
    }
    default: {
      const writes = entry.writes.length ? `; wrote ${entry.writes.join(", ")}` : "";
      const next = entry.nextSeconds != null ? `; next look in ${time(entry.nextSeconds)}` : "";
      const failures = entry.failures ? `; failures: ${entry.failures}` : "";
      const status = entry.status ? ` (${entry.status})` : "";
      return [`${entry.result}${status} after ${time(entry.tookSeconds)}${writes}${failures}${next}`, entry.hasFailed ? "failed" : "good"];
    }
  }
}

// --- switches ---

async function change(wanted) {
  if (!token) {
    say($("switch-message"), "The switches need the URL that windlass demo has printed, with its token.");
    return false;
  }
  const headers = { "Content-Type": "application/json", "X-Windlass-Token": token };
  const answer = await fetch("/debug/switch", { method: "POST", headers, body: JSON.stringify(wanted) }).catch(() => null);
  say($("switch-message"), answer === null ? "The demo does not answer." : answer.ok ? "" : await answer.text());
  return answer?.ok ?? false;
}

function read(input) {
  return input.type === "checkbox" ? input.checked : Number(input.value);
}

// Sends the group of a switch: the server's values, with this one changed.
function turn(input) {
  const [group, field] = input.dataset.switch.split(".");
  if (!field) return change({ [group]: read(input) });
  const values = {};
  for (const other of document.querySelectorAll(`[data-switch^="${group}."]`)) values[other.dataset.switch.split(".")[1]] = read(other);
  return change({ [group]: values });
}

function drawSwitches(positions) {
  $("switches").hidden = !positions;
  $("tour-start").hidden = !positions;
  if (!positions) return;
  say($("created"), number(positions.created));
  for (const input of document.querySelectorAll("[data-switch]")) {
    const [group, field] = input.dataset.switch.split(".");
    const value = field ? positions[group][field] : positions[group];
    const isOurs = performance.now() - (moved.get(input) ?? -GRACE) < GRACE || (input.type === "number" && document.activeElement === input);
    if (!isOurs && (read(input) !== value || input.value === "")) {
      if (input.type === "checkbox") input.checked = value;
      else input.value = value;
    }
    const output = input.parentElement.querySelector("output");
    if (output) say(output, input.value);
  }
}

// --- the tour ---

let step = null;

function showStep(at) {
  step = at;
  $("tour").hidden = at === null;
  if (at === null) return;
  const { title, text, look, actions } = TOUR[at];
  say($("tour-step"), `Step ${at + 1} of ${TOUR.length}`);
  say($("tour-title"), title);
  say($("tour-text"), text);
  say($("tour-look"), look);
  $("tour-actions").replaceChildren(...actions.map((action) => {
    const button = make("button", { type: "button" }, action.label);
    button.addEventListener("click", () => inOrder(action.changes));
    return button;
  }));
  $("tour-back").disabled = at === 0;
  say($("tour-next"), at === TOUR.length - 1 ? "Finish" : "Next");
  $("tour-title").focus();
}

async function inOrder(changes) {
  for (const wanted of changes) if (!(await change(wanted))) return;
}

async function endTour() {
  await inOrder(USUAL);
  showStep(null);
  $("tour-start").focus();
}

// --- start ---

$("picture").append(...PARTS.map((part) => make("li", { "data-id": part.id }, make("button", { type: "button", "data-part": part.id },
  make("span", { class: "name" }, part.name), make("span", { class: "figure" }, "–"), make("span", { class: "note" })))));
$("plots").append(...PLOTS.map(newPlot));

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.part) showPart(button.dataset.part);
  if (button.dataset.key) showKey(button.dataset.key);
  if (button.dataset.change) change(JSON.parse(button.dataset.change));
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeDetails();
});
document.addEventListener("input", (event) => {
  if (!event.target.dataset.switch) return;
  moved.set(event.target, performance.now());
  const output = event.target.parentElement.querySelector("output");
  if (output) say(output, event.target.value);
});
document.addEventListener("change", (event) => {
  if (!event.target.dataset.switch) return;
  moved.set(event.target, performance.now());
  turn(event.target);
});
document.addEventListener("visibilitychange", draw);
$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = $("search-key").value.trim();
  if (key) showKey(key.includes("/") ? key : `default/${key}`);
});
$("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  $("pause").setAttribute("aria-pressed", isPaused);
  draw();
});
$("details-close").addEventListener("click", closeDetails);
$("tour-start").addEventListener("click", async () => {
  await inOrder(USUAL);
  showStep(0);
});
$("tour-back").addEventListener("click", () => showStep(step - 1));
$("tour-next").addEventListener("click", async () => {
  if (step === TOUR.length - 1) return endTour();
  await inOrder(USUAL.filter((wanted) => step < 1 || !wanted.churn));
  showStep(step + 1);
});
$("tour-end").addEventListener("click", endTour);
setInterval(drawPlots, 1000 * STEP);
setInterval(() => shownKey && !isPaused && showKey(shownKey), 1000);
listen();

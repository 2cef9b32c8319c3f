// The page: what the visitor chose, what is shown, what is said.
import { bestMoment } from "./answer.js";
import { compose, drawHeat, range } from "./draw.js";
import { Engine } from "./engine.js";
import { Live } from "./live.js";
import { Moving, happens } from "./moving.js";
import { RATE, cut } from "./sound.js";
import { openPhoto, openSound, record } from "./still.js";
import { copy, pictureOf, recordClip, save } from "./take.js";

const $ = (id) => document.getElementById(id);
const video = $("video");
const engine = new Engine();
const still = matchMedia("(prefers-reduced-motion: reduce)");

// What is on the page: a mode with what belongs to it. A new choice replaces all of it.
let shown = { mode: "empty" };
let facing = "environment";

const clock = (s) => `${Math.floor(s / 60)}:${String(Math.floor(s % 60)).padStart(2, "0")}`;

function tell(sentence = "", bad = false) {
  $("status").textContent = sentence;
  $("status").classList.toggle("bad", bad);
  document.body.dataset.state = bad ? "failed" : sentence ? "busy" : "ready";
}

function say(answer, place = "answer") {
  const words = answer?.caption ?? "\u00a0";
  if ($(place).textContent !== words) $(place).textContent = words;
}

/** Leave what was shown and lay the page out for another mode. */
function enter(mode) {
  shown.moving?.close();
  shown.live?.close();
  shown = { mode };
  video.loop = mode === "example";
  Object.assign(document.body.dataset, { mode, known: "", verdict: "" });
  document.body.classList.remove("mirrored");
  const visible = {
    player: mode === "video" || mode === "example", sounds: mode === "photo", lens: mode === "live",
    take: false, second: false, loud: mode === "example", rate: mode === "live", picture: mode === "photo",
  };
  for (const [id, on] of Object.entries(visible)) $(id).hidden = !on;
  video.hidden = mode === "photo";
  $("first").hidden = false;
  for (const id of ["heat", "heat2"]) drawHeat($(id), { width: 4, height: 3 }, null);
  $("clip").hidden = mode !== "video" && mode !== "example";
  $("json").hidden = mode === "live";
  $("ask").textContent = "Which sound goes with the photo?";
  $("events").replaceChildren();
  $("strip").replaceChildren();
  say(null);
  tell();
  return shown;
}

/** Do something that may fail; what went wrong is said in a sentence, if it still matters. */
async function attempt(place, work) {
  try {
    await work();
  } catch (error) {
    if (place !== shown) return;
    tell(error.message, true);
    // What cannot be played has no player.
    if (place.moving && !place.moving.count) $("player").hidden = $("first").hidden = true;
  }
}

function fit({ width, height }) {
  const root = document.documentElement.style;
  root.setProperty("--shape", `${width} / ${height}`);
  root.setProperty("--ratio", width / height);
}

// ---- videos ----

function showVideo(blob, mode = "video", name = blob.name) {
  const place = enter(mode);
  return attempt(place, async () => {
    place.name = name;
    const notify = (error) => (error ? tell(error.message, true) : (place.stale = true));
    place.moving = new Moving(video, engine, notify, mode === "example" ? engine.about.examples[name] : null);
    video.muted = mode === "example";
    await place.moving.open(blob);
    if (place !== shown) return place.moving.close();
    fit({ width: video.videoWidth, height: video.videoHeight });
    $("seek").max = place.moving.seconds;
    place.stale = true;
    if (!still.matches) await video.play().catch(() => null); // it waits for a click
  });
}

const EXAMPLES = ["street", "room", "photo"];
let example = 0;

async function showExample() {
  const place = enter("example");
  const name = EXAMPLES[example % EXAMPLES.length];
  await attempt(place, async () => {
    const response = await fetch(`${name === "photo" ? "street" : name}.mp4`);
    const blob = await response.blob();
    if (place !== shown) return;
    await (name === "photo" ? showTwoSounds(blob) : showVideo(blob, "example", `${name}.mp4`));
  });
}

/** A photo under two sounds: a picture of a video, with the video's beginning and with its end. */
async function showTwoSounds(blob) {
  const place = enter("photo");
  const film = document.createElement("video");
  Object.assign(film, { muted: true, playsInline: true, preload: "auto", src: URL.createObjectURL(blob) });
  const [wave] = await Promise.all([openSound(blob), happens(film, "loadeddata")]);
  film.currentTime = 1.5;
  await happens(film, "seeked");
  const canvas = new OffscreenCanvas(film.videoWidth, film.videoHeight);
  canvas.getContext("2d").drawImage(film, 0, 0);
  URL.revokeObjectURL(film.src);
  const photo = await canvas.convertToBlob();
  if (place !== shown) return;
  await showPhoto(photo, "street.png");
  for (const at of [0, wave.length]) await hear(() => cut(wave, at / RATE));
}

function drawMoving(place) {
  const { moving } = place;
  if (!moving.count) return;
  const time = video.currentTime;
  if (time === place.drawn && video.paused === place.paused && !place.stale) return;
  Object.assign(place, { drawn: time, paused: video.paused });
  place.answer = moving.at(time);
  drawHeat($("heat"), { width: video.videoWidth, height: video.videoHeight }, place.answer);
  say(place.answer);
  $("seek").value = time;
  $("seek").setAttribute("aria-valuetext", `${clock(time)} of ${clock(moving.seconds)}`);
  $("clock").value = clock(time);
  $("play").textContent = video.paused ? "▶" : "❚❚";
  $("play").setAttribute("aria-label", video.paused ? "Play" : "Pause");
  const known = moving.moments.filter(Boolean).length;
  if (place.stale && (performance.now() - (place.told ?? -1e9) > 400 || known === moving.count)) {
    place.stale = false;
    place.told = performance.now();
    showEvents(place, known / moving.count);
  }
  for (const item of $("events").children) {
    const { start, end } = item.dataset;
    const button = item.firstChild;
    if (time >= start && time < end) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
}

function showEvents(place, share) {
  const { moving } = place;
  place.events = moving.events();
  $("take").hidden = !moving.moments.some(Boolean);
  const length = moving.seconds;
  const parts = place.events.map(({ start, end, at }) => {
    const part = document.createElement("i");
    part.style.left = `${(100 * start) / length}%`;
    part.style.width = `${(100 * (Math.min(end, length) - start)) / length}%`;
    part.classList.toggle("faint", moving.at(at)?.verdict !== "visible");
    return part;
  });
  const done = document.createElement("b");
  done.style.width = share < 1 ? `${100 * share}%` : 0;
  $("strip").replaceChildren(...parts, done);
  const key = JSON.stringify(place.events.map(({ start, name }) => [start, name]));
  if (key !== place.key) {
    place.key = key;
    $("events").replaceChildren(...place.events.map(eventButton));
  }
  place.events.forEach(({ end }, k) => ($("events").children[k].dataset.end = end));
  document.body.dataset.known = share >= 1 ? "all" : "some";
}

function eventButton({ start, end, name }) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  const time = document.createElement("time");
  time.textContent = clock(start);
  button.type = "button";
  button.append(time, name);
  button.onclick = () => (video.currentTime = start);
  item.append(button);
  Object.assign(item.dataset, { start, end });
  return item;
}

// ---- camera ----

async function showCamera() {
  const place = enter("live");
  tell("Waiting for the camera and microphone…");
  await attempt(place, async () => {
    place.live = new Live(video, engine, (error) => error && tell(error.message, true));
    await place.live.open(facing);
    if (place !== shown) return place.live.close();
    const { facingMode } = place.live.stream.getVideoTracks()[0].getSettings();
    document.body.classList.toggle("mirrored", (facingMode ?? facing) === "user");
    fit({ width: video.videoWidth, height: video.videoHeight });
    tell();
    $("take").hidden = false;
  });
}

function drawLive({ live }) {
  if (!video.videoWidth || live.answer === shown.answer) return;
  shown.answer = live.answer;
  drawHeat($("heat"), { width: video.videoWidth, height: video.videoHeight }, live.answer);
  say(live.answer);
  $("rate").textContent = `${live.perSecond.toFixed(1)} maps per second`;
}

// ---- photos ----

function showPhoto(blob, name = blob.name) {
  const place = enter("photo");
  return attempt(place, async () => {
    Object.assign(place, { name, answers: [], photo: await openPhoto(blob) });
    if (place !== shown) return;
    fit(place.photo);
    for (const id of ["picture", "picture2"]) {
      Object.assign($(id), { width: place.photo.width, height: place.photo.height });
      $(id).getContext("2d").drawImage(place.photo.bitmap, 0, 0);
    }
    if (pendingSound) await giveSound(pendingSound);
  });
}

let pendingSound = null; // a sound that was dropped together with a photo

function giveSound(blob) {
  pendingSound = null;
  return hear(() => openSound(blob));
}

async function hear(listen) {
  const place = shown;
  if (place.mode !== "photo" || !place.photo) return;
  await attempt(place, async () => {
    tell("Listening…");
    const wave = await listen();
    await engine.ready;
    const answer = await engine.localize(place.photo.pixels, wave);
    if (place !== shown) return;
    // A third sound takes the place of the second.
    place.answers = [...place.answers.slice(0, 1), answer];
    drawPhoto(place);
    tell();
  });
}

function drawPhoto({ photo, answers }) {
  const scale = answers.length > 1 ? range(...answers.map(({ map }) => map)) : undefined;
  shown.answer = answers[0];
  $("second").hidden = answers.length < 2;
  answers.forEach((answer, k) => {
    drawHeat($(k ? "heat2" : "heat"), photo, answer, scale);
    say(answer, k ? "answer2" : "answer");
  });
  $("ask").textContent = "What if it were another sound?";
  $("take").hidden = false;
}

// ---- take it along ----

const stem = () => `${(shown.name ?? "soundspot").replace(/\.[^.]*$/, "")}-soundspot`;

function picture(target = document.createElement("canvas")) {
  const photo = shown.photo;
  const source = photo ? photo.bitmap : video;
  const shape = photo ?? { width: video.videoWidth, height: video.videoHeight };
  const one = compose(target, source, shape, $("heat"), shown.answer?.caption ?? "");
  if (!photo || shown.answers.length < 2) return one;
  const other = compose(document.createElement("canvas"), source, shape, $("heat2"), shown.answers[1].caption);
  const both = document.createElement("canvas");
  Object.assign(both, { width: 2 * one.width + 8, height: one.height });
  both.getContext("2d").drawImage(one, 0, 0);
  both.getContext("2d").drawImage(other, one.width + 8, 0);
  return both;
}

async function takeClip() {
  const place = shown;
  const { moving } = place;
  const middle = bestMoment(moving.moments)?.at ?? 0;
  const start = Math.max(0, Math.min(middle - 2, moving.seconds - 4));
  tell("Recording the best seconds while they play…");
  const canvas = picture();
  const paint = () => picture(canvas); // the page draws the heat
  const end = Math.min(start + 4, moving.seconds - 0.05);
  const clip = await recordClip(video, moving.wave, start, end, canvas, paint);
  save(clip, `${stem()}.${clip.type.endsWith("mp4") ? "mp4" : "webm"}`);
  tell();
}

const rounded = (x) => Math.round(x * 1e5) / 1e5;

function summary({ labels, score, threshold, verdict, caption, map, side }) {
  const rows = [];
  for (let k = 0; k < map.length; k += side) rows.push(Array.from(map.subarray(k, k + side), rounded));
  return { caption, verdict, score: rounded(score), threshold: rounded(threshold), labels, similarity: rows };
}

function takeJson() {
  const { moving, answers, events } = shown;
  const facts = { model: engine.about.name, file: shown.name };
  if (moving) {
    facts.events = events.map(({ start, end, at, name }) => ({ start, end: Math.min(end, moving.seconds), at, name }));
    facts.moments = moving.moments.filter(Boolean).map(({ at, silent, ...rest }) =>
      silent ? { at, silent } : { at, ...summary(rest) });
  } else facts.answers = answers.map(summary);
  save(new Blob([JSON.stringify(facts, null, 1)], { type: "application/json" }), `${stem()}.json`);
}

// ---- the visitor ----

function open(files) {
  const all = [...files];
  const kind = (name) => all.find(({ type }) => type.startsWith(name));
  const photo = kind("image/"), film = kind("video/"), sound = kind("audio/");
  if (photo) {
    pendingSound = sound ?? film ?? null;
    return showPhoto(photo);
  }
  if (sound && !film) {
    if (shown.mode === "photo") return giveSound(sound);
    return tell("That is a sound: choose a photo first, then the sound.", true);
  }
  if (film ?? all[0]) return showVideo(film ?? all[0]);
}

function choose(id, use) {
  $(id).addEventListener("change", ({ target }) => {
    if (target.files.length) use(target.files);
    target.value = ""; // the same file may be chosen again
  });
}

const pressed = {
  example: () => ((example += 1), showExample()),
  camera: showCamera,
  stop: showExample,
  turn: () => ((facing = facing === "user" ? "environment" : "user"), showCamera()),
  play: () => (video.paused ? video.play() : video.pause()),
  loud: () => ((video.muted = !video.muted), video.play()),
  record: () => hear(() => record((s) => tell(`Recording: ${s.toFixed(0)} of 3 s`))),
  save: async () => save(await pictureOf(picture()), `${stem()}.png`),
  copy: async () => (await copy(picture()), tell("Copied.")),
  clip: takeClip,
  json: takeJson,
};
for (const [id, act] of Object.entries(pressed)) $(id).onclick = () => attempt(shown, act);
choose("file", open);
choose("sound", ([sound]) => giveSound(sound));
video.addEventListener("volumechange", () => ($("loud").textContent = video.muted ? "Turn sound on" : "Turn sound off"));
$("seek").addEventListener("input", ({ target }) => (video.currentTime = Number(target.value)));
addEventListener("dragover", (event) => (event.preventDefault(), document.body.classList.add("drop")));
addEventListener("dragleave", () => document.body.classList.remove("drop"));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("drop");
  open(event.dataTransfer.files);
});

function draw() {
  if (shown.moving) drawMoving(shown);
  else if (shown.live) drawLive(shown);
  const heard = shown.answer?.map && shown.answer.strength > 0.02;
  for (const id of ["video", "picture", "picture2"]) $(id).classList.toggle("muted", Boolean(heard));
  document.body.dataset.verdict = shown.answer?.verdict ?? "";
  requestAnimationFrame(draw);
}

const megabytes = (bytes) => (bytes / 1e6).toFixed(1);

async function start() {
  const missing = ["WebAssembly", "OffscreenCanvas", "OfflineAudioContext", "Worker"].find((name) => !(name in globalThis));
  if (missing) return tell(`This browser is too old for this page: it has no ${missing}.`, true);
  const about = await (await fetch("model.json")).json();
  const options = Object.fromEntries(new URLSearchParams(location.search)); // for measurements
  if ("threads" in options) Object.assign(options, { threads: Number(options.threads), gpu: false });
  engine.ready = engine.load(about, (done) => {
    $("progress").hidden = done >= about.bytes;
    Object.assign($("progress"), { max: about.bytes, value: done });
    if (document.body.dataset.state !== "failed")
      tell(done < about.bytes ? `Loading the model: ${megabytes(done)} of ${megabytes(about.bytes)} MB, once` : "");
  }, options);
  engine.ready.then(
    () => {
      const where = engine.provider === "webgpu" ? "the graphics card" : `${engine.threads} thread(s)`;
      $("about").textContent = `Model: ${about.name}, on ${where}.`;
      document.body.dataset.model = "ready";
    },
    ({ message }) => tell(`The model does not run in this browser: ${message}`, true),
  );
  engine.ready.catch(() => null);
  showExample();
  draw();
  if (navigator.serviceWorker) {
    navigator.serviceWorker.register("sw.js").catch(() => null); // without it: no visits offline
    navigator.serviceWorker.ready.then(() => (document.body.dataset.offline = "ready"));
  }
}

// For the console and for tests.
globalThis.soundspot = { engine, get shown() { return shown; } };

start().catch(({ message }) => tell(`The page could not be loaded: ${message}`, true));

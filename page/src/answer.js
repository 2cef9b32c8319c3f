// What the model gives -> what is said and shown: names, verdict, caption, moving maps, timeline.
// The words come from the command line's own (model.json), so that both say the same.

export const STEP = 0.25; // s between the maps of a video
const MEMORY = 0.4; // s; how long a moving map remembers
const FAINT = 0.4; // strength of a map that is no answer
const TOP = 5;
const PAUSE = 10 ** (-30 / 20); // of the loudest rms; quieter slices are pauses
const ALIKE = 0.5; // cosine of scores at which two slices are one sound

export const topLabels = (scores, names) =>
  Array.from(scores, (score, k) => ({ name: names[k], score }))
    .sort((a, b) => b.score - a.score)
    .slice(0, TOP);

export function shortName(all, words) {
  const labels = all.filter(({ name }) => name !== words.silence);
  if (!labels.length || labels[0].score < words.worthSaying) return words.unnamed;
  const likely = labels.filter(({ score }) => score >= words.nearly * labels[0].score);
  const best = likely.find(({ name }) => !words.broad.includes(name)) ?? likely[0];
  return best.name.split(",")[0];
}

export function caption(labels, verdict, score, threshold, words) {
  const name = shortName(labels, words);
  const say = words.sentences;
  const named = labels.some((one) => one.name.split(",")[0] === name && one.score >= words.sureName);
  const guess = name === words.unnamed ? say.visibleUnnamed : say.perhaps;
  const sentence = {
    unknown: name === words.unnamed ? say.unknownUnnamed : say.unknown,
    "not visible": words.voices.includes(name) ? say.absentVoice : say.absent,
    visible: !named ? guess : score >= words.sure * threshold ? say.sure : say.visible,
  }[verdict];
  return sentence.replace("{name}", name);
}

/** The answer from the graph's outputs, as `Localization` holds it. */
export function answerOf({ map, side, scores, patches, threshold, known }, { names, words }) {
  const count = names.length;
  const mean = new Float32Array(count);
  for (let p = 0; p < patches; p++)
    for (let k = 0; k < count; k++) mean[k] += scores[p * count + k] / patches;
  const labels = topLabels(mean, names);
  const score = map.reduce((a, b) => Math.max(a, b));
  const verdict = !known ? "unknown" : score >= threshold ? "visible" : "not visible";
  const middle = patches >> 1;
  return {
    map, side, labels, score, threshold, verdict,
    caption: caption(labels, verdict, score, threshold, words),
    strength: verdict === "visible" ? 1 : FAINT,
    // What is heard now: the 0.96 s in the middle, steadied by all of the 3 s.
    now: mean.map((score, k) => (score + scores[middle * count + k]) / 2),
  };
}

/** An answer that was made beforehand, as `answer_video` writes it, in the graph's own shape. */
export function unpack({ map, scores, ...rest }, count) {
  const all = new Float32Array(rest.patches * count);
  for (const [place, score] of scores) all[place] = score;
  return { ...rest, map: Float32Array.from(atob(map), (byte) => byte.charCodeAt(0) / 255), scores: all };
}

/** The map at a time between two moments, each blended with those just before it. */
export function smooth(moments, time) {
  const tick = Math.max(0, Math.floor(time / STEP));
  const before = remembered(moments, tick);
  const after = remembered(moments, tick + 1);
  if (!before || !after || !moments[tick + 1]) return before ?? (moments[tick + 1] ? after : null);
  const share = time / STEP - tick;
  const blend = (a, b) => (1 - share) * a + share * b;
  return {
    ...before,
    map: before.map && after.map ? before.map.map((s, k) => blend(s, after.map[k])) : before.map ?? after.map,
    strength: blend(before.strength, after.strength),
  };
}

/** An exponential mean of the moments up to one, in which maps count by their strength. */
function remembered(moments, tick) {
  let map = null, heard = 0, all = 0, latest = null;
  for (let k = tick; k > tick - 9 && k >= 0; k--) {
    const found = moments[k];
    if (!found) continue;
    latest ??= found;
    const weight = Math.exp((-(tick - k) * STEP) / MEMORY);
    all += weight;
    if (found.silent) continue;
    map ??= new Float32Array(found.map.length);
    heard += weight * found.strength;
    found.map.forEach((s, i) => (map[i] += weight * found.strength * s));
  }
  return latest && { ...latest, map: map?.map((s) => s / heard) ?? null, strength: heard / all };
}

/** What is heard from when to when: runs of moments that sound alike, without pauses. */
export function events(moments, names, words) {
  const known = moments.filter(Boolean);
  const loudest = Math.max(0, ...known.map(({ rms }) => rms));
  const groups = [];
  for (const moment of known) {
    if (moment.silent || moment.rms < loudest * PAUSE) continue;
    const last = groups.at(-1);
    if (last && moment.at - last.end < STEP && alike(last.sum, moment.now)) {
      last.end = moment.at + STEP / 2;
      last.sum = last.sum.map((s, k) => s + moment.now[k]);
      last.count += 1;
      if (moment.rms > last.rms) Object.assign(last, { rms: moment.rms, at: moment.at });
    } else {
      const start = Math.max(0, moment.at - STEP / 2);
      const { at, rms, now } = moment;
      groups.push({ start, end: at + STEP / 2, at, rms, sum: now, count: 1 });
    }
  }
  const named = [];
  for (const { start, end, at, rms, sum, count } of groups) {
    const name = shortName(topLabels(sum.map((s) => s / count), names), words);
    const last = named.at(-1);
    if (last?.name === name && start - last.end <= 2 * STEP) {
      last.end = end;
      if (rms > last.rms) Object.assign(last, { at, rms });
    } else named.push({ start, end, at, rms, name });
  }
  return named;
}

function alike(a, b) {
  let dot = 0, aa = 0, bb = 0;
  for (let k = 0; k < a.length; k++) {
    dot += a[k] * b[k];
    aa += a[k] * a[k];
    bb += b[k] * b[k];
  }
  return dot >= ALIKE * Math.sqrt(aa * bb);
}

/**
 * Which moment of a video to look at next: those from the playhead on, then those before it.
 * While it plays, a moment that is passing by is taken from the screen, without a seek.
 */
export function nextTick(moments, count, now, playing) {
  const here = Math.min(count - 1, Math.max(0, Math.round(now / STEP)));
  if (playing && !moments[here] && !moments[here + 1]) return { tick: here, onScreen: true };
  for (let k = 0; k < count; k++) {
    const tick = (here + k) % count;
    if (!moments[tick]) return { tick, onScreen: false };
  }
  return null;
}

/** The middle of the best seconds: the surest moment whose source is in the picture. */
export function bestMoment(moments) {
  const sure = ({ silent, verdict, score, threshold }) =>
    silent ? -1 : verdict === "visible" ? score / threshold : 0;
  return moments.filter(Boolean).reduce((a, b) => (a && sure(a) >= sure(b) ? a : b), null);
}

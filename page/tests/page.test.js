// Unit tests of what needs no browser: node --test page/tests/
import assert from "node:assert/strict";
import { test } from "node:test";
import { STEP, answerOf, bestMoment, caption, events, nextTick, shortName, smooth } from "../src/answer.js";
import { color, heatOf, range } from "../src/draw.js";
import { resize } from "../src/resize.js";
import { RATE, cut, loudness, resample, toMono } from "../src/sound.js";

const words = {
  sentences: {
    sure: "{name}!", visible: "{name}.", absent: "{name}, away", absentVoice: "{name}, nobody",
    perhaps: "{name}, or not", visibleUnnamed: "here", unknown: "{name}?", unknownUnnamed: "?",
  },
  broad: ["Animal"], voices: ["Speech"], silence: "Silence", unnamed: "A sound", worthSaying: 0.1, nearly: 0.6, sure: 1.25, sureName: 0.5,
};
const close = (a, b, by = 1e-6) => assert.ok(Math.abs(a - b) <= by, `${a} is not ${b}`);
const label = (name, score) => ({ name, score });

test("a window is shifted inside at the ends, and a short sound is tiled", () => {
  const wave = Float32Array.from({ length: 7 }, (_, k) => k);
  assert.deepEqual([...cut(wave, null, 3)], [2, 3, 4]);
  assert.deepEqual([...cut(wave, 0, 3)], [0, 1, 2]);
  assert.deepEqual([...cut(wave, 9, 3)], [4, 5, 6]);
  assert.deepEqual([...cut(wave, 5 / RATE, 3)], [4, 5, 6]);
  assert.deepEqual([...cut(wave.subarray(0, 3), 1, 8)], [0, 1, 2, 0, 1, 2, 0, 1]);
  assert.deepEqual([...cut(new Float32Array(0), 0, 2)], [0, 0]);
});

test("resampling keeps a tone and its level, and removes what the rate cannot hold", () => {
  const tone = (hz, rate) => Float32Array.from({ length: rate / 4 }, (_, k) => Math.sin((2 * Math.PI * hz * k) / rate));
  const out = resample(tone(1000, 48000), 48000);
  assert.equal(out.length, RATE / 4);
  const expected = tone(1000, RATE);
  for (let k = 100; k < out.length - 100; k++) close(out[k], expected[k], 0.01);
  close(loudness(resample(tone(11000, 48000), 48000), 200, 3800).rms, 0, 0.02);
  assert.equal(resample(expected, RATE), expected);
});

test("loudness ignores a constant offset; channels are averaged", () => {
  const { peak, rms } = loudness(Float32Array.of(3, 5, 3, 5), 0, 4);
  close(peak, 1);
  close(rms, 1);
  assert.deepEqual(loudness(new Float32Array(3), 5, 9), { peak: 0, rms: 0 });
  assert.deepEqual([...toMono([Float32Array.of(1, 2), Float32Array.of(3, -2)])], [2, 0]);
});

test("a sound is named by its likeliest name that is not too broad", () => {
  assert.equal(shortName([label("Animal", 0.9), label("Dog, barking", 0.6)], words), "Dog");
  assert.equal(shortName([label("Animal", 0.9), label("Dog", 0.5)], words), "Animal");
  assert.equal(shortName([label("Silence", 0.9), label("Dog", 0.5)], words), "Dog");
  assert.equal(shortName([label("Dog", 0.09)], words), "A sound");
  assert.equal(shortName([], words), "A sound");
});

test("the caption says what the verdict is", () => {
  const say = (name, verdict, score) => caption([label(name, 0.9)], verdict, score, 0.4, words);
  assert.equal(say("Dog", "visible", 0.5), "Dog!");
  assert.equal(say("Dog", "visible", 0.45), "Dog.");
  assert.equal(say("Dog", "not visible", 0.1), "Dog, away");
  assert.equal(say("Speech", "not visible", 0.1), "Speech, nobody");
  assert.equal(say("Dog", "unknown", 0.1), "Dog?");
  assert.equal(caption([], "unknown", 0, 0.4, words), "?");
  assert.equal(caption([], "visible", 1, 0.4, words), "here");
  assert.equal(caption([label("Dog", 0.4)], "visible", 1, 0.4, words), "Dog, or not");
});

test("the graph's outputs become an answer", () => {
  const raw = { map: Float32Array.of(0.1, 0.7), side: 2, patches: 3, threshold: 0.5, known: true };
  raw.scores = Float32Array.of(0.3, 0, 0.9, 0.3, 0.6, 0);
  const found = answerOf(raw, { names: ["Dog", "Cat"], words });
  assert.deepEqual([found.verdict, found.strength, found.labels[0].name], ["visible", 1, "Dog"]);
  close(found.labels[0].score, 0.6);
  close(found.now[0], 0.75); // the middle patch, steadied by the mean
  assert.equal(answerOf({ ...raw, threshold: 0.71 }, { names: ["Dog", "Cat"], words }).verdict, "not visible");
  assert.equal(answerOf({ ...raw, known: false }, { names: ["Dog", "Cat"], words }).verdict, "unknown");
});

const moment = (tick, now, rest) =>
  ({ at: tick * STEP, rms: 1, silent: false, strength: 1, map: Float32Array.of(now[0], now[1]), now: Float32Array.from(now), ...rest });

test("a moving map fades in silence and blends between two moments", () => {
  const moments = [moment(0, [1, 0]), moment(1, [0, 1]), moment(2, [0, 0], { silent: true, strength: 0, map: null })];
  assert.equal(smooth([], 0), null);
  assert.deepEqual([...smooth(moments, 0).map], [1, 0]);
  const half = smooth(moments, STEP / 2);
  assert.ok(half.map[0] < 1 && half.map[0] > 0.5);
  assert.ok(smooth(moments, 2 * STEP).strength < 1);
  assert.ok(smooth(moments, 2 * STEP).map[1] > 0.5); // the last map stays in place
});

test("events: pauses and changes part them, one name joins them", () => {
  const dog = [1, 0], cat = [0, 1], hush = { silent: true, now: undefined };
  const moments = [moment(0, dog), moment(1, dog, { rms: 2 }), moment(2, dog, hush), moment(3, dog), moment(4, cat), moment(5, cat, { rms: 0.01 })];
  const found = events(moments, ["Dog", "Cat"], words);
  assert.deepEqual(found.map(({ name, at }) => [name, at]), [["Dog", STEP], ["Cat", 4 * STEP]]);
  close(found[0].end, 3.5 * STEP);
  assert.deepEqual(events([], [], words), []);
});

test("moments are looked at from the playhead on; what passes by is taken from the screen", () => {
  const have = [];
  assert.deepEqual(nextTick(have, 4, 2 * STEP, false), { tick: 2, onScreen: false });
  assert.deepEqual(nextTick(have, 4, 2 * STEP, true), { tick: 2, onScreen: true });
  have[2] = have[3] = {};
  assert.deepEqual(nextTick(have, 4, 2 * STEP, true), { tick: 0, onScreen: false });
  have[0] = have[1] = {};
  assert.equal(nextTick(have, 4, 9, true), null);
});

test("the best moment is the surest whose source is visible", () => {
  const one = (score, verdict) => ({ score, verdict, threshold: 0.4, silent: false });
  const list = [one(0.9, "not visible"), undefined, one(0.5, "visible"), one(0.6, "visible")];
  assert.equal(bestMoment(list), list[3]);
  assert.equal(bestMoment([]), null);
});

test("heat is the map between its ends, or on one scale for several maps", () => {
  const map = Float32Array.of(0.2, 0.4);
  const heat = heatOf(map, 2, 4, 1);
  [0, 0.25, 0.75, 1].forEach((value, k) => close(heat[k], value, 1e-6));
  close(heatOf(map, 2, 2, 1, range(map, [0, 0.8]))[1], 0.5);
  assert.deepEqual([...heatOf(Float32Array.of(3, 3), 2, 2, 1)], [0, 0]);
  assert.deepEqual(color(2), [252, 255, 164]);
});

test("a picture of one color keeps it at any size; a step stays where it is", () => {
  const pixels = (width, height, at) => Uint8ClampedArray.from({ length: 4 * width * height }, (_, k) => at((k >> 2) % width));
  assert.ok(resize(pixels(13, 7, () => 90), 13, 7, 5).every((v, k) => v === (k % 4 === 3 ? 255 : 90)));
  const out = resize(pixels(32, 16, (x) => (x < 16 ? 0 : 200)), 32, 16, 8);
  assert.deepEqual([out[0], out[7 * 4]], [0, 200]);
});

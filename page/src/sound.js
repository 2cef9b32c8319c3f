// Sound as the model hears it: mono, 16 kHz, 3 s around a moment. (See METHOD.md and media/sound.py.)

export const RATE = 16000;
export const HEARD = 48000; // samples: 3 s
export const QUIET = 1e-3; // peak amplitude below which a passage counts as silent
const ZEROS = 16; // of the sinc on each side

/** The window around a moment: shifted inside at the ends, tiled from a shorter sound. */
export function cut(wave, center = null, samples = HEARD) {
  const total = wave.length;
  const out = new Float32Array(samples);
  if (total < samples) {
    for (let at = 0; total && at < samples; at += total)
      out.set(wave.subarray(0, Math.min(total, samples - at)), at);
    return out;
  }
  const middle = center === null ? total / 2 : center * RATE;
  const start = Math.min(Math.max(Math.round(middle - samples / 2), 0), total - samples);
  out.set(wave.subarray(start, start + samples));
  return out;
}

/** How loud a second is: half of its swing, and its rms. */
export function loudness(wave, from, to) {
  const part = wave.subarray(Math.max(0, Math.round(from)), Math.max(0, Math.round(to)));
  let low = Infinity, high = -Infinity, sum = 0, squares = 0;
  for (const x of part) {
    if (x < low) low = x;
    if (x > high) high = x;
    sum += x;
    squares += x * x;
  }
  if (!part.length) return { peak: 0, rms: 0 };
  const mean = sum / part.length;
  return { peak: (high - low) / 2, rms: Math.sqrt(Math.max(0, squares / part.length - mean * mean)) };
}

/** The mean of the channels. */
export function toMono(channels) {
  if (channels.length === 1) return channels[0];
  return channels[0].map((_, k) => channels.reduce((sum, c) => sum + c[k], 0) / channels.length);
}

/** Another sampling rate, by a windowed sinc that cuts off at the lower of the two. */
export function resample(wave, from, to = RATE) {
  if (from === to) return wave;
  const { filters, reach } = filterBank(from, to);
  const out = new Float32Array(Math.round((wave.length * to) / from));
  const padded = new Float32Array(wave.length + 2 * reach + 1);
  padded.set(wave, reach);
  for (let n = 0; n < out.length; n++) {
    const filter = filters[n % filters.length];
    const start = Math.floor((n * from) / to);
    let sum = 0;
    for (let k = 0; k < filter.length; k++) sum += filter[k] * padded[start + k];
    out[n] = sum;
  }
  return out;
}

const banks = new Map();

/** One filter for every place that a new sample can have between two old ones. */
function filterBank(from, to) {
  const known = banks.get(`${from} ${to}`);
  if (known) return known;
  const gcd = (a, b) => (b ? gcd(b, a % b) : a);
  const cutoff = Math.min(1, to / from) * 0.97;
  const reach = Math.ceil(ZEROS / cutoff);
  const filters = Array.from({ length: to / gcd(from, to) }, (_, n) => {
    const place = (n * from) / to - Math.floor((n * from) / to);
    const weights = Float32Array.from({ length: 2 * reach + 1 }, (_, k) => {
      const x = (k - reach - place) * cutoff;
      const sinc = x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
      return Math.abs(x) < ZEROS ? sinc * (0.5 + 0.5 * Math.cos((Math.PI * x) / ZEROS)) : 0;
    });
    const sum = weights.reduce((a, b) => a + b);
    return weights.map((w) => w / sum);
  });
  banks.set(`${from} ${to}`, { filters, reach });
  return { filters, reach };
}

/** The sound of any file that the browser can decode; null if it finds none. */
export async function decode(blob) {
  try {
    const context = new OfflineAudioContext(1, 1, RATE); // decodes to its own rate
    const sound = await context.decodeAudioData(await blob.arrayBuffer());
    const channels = [];
    for (let k = 0; k < sound.numberOfChannels; k++) channels.push(sound.getChannelData(k));
    return sound.length ? toMono(channels) : null;
  } catch {
    return null;
  }
}

/** The last seconds of a microphone. */
export class Ear {
  static async open(stream) {
    const context = new AudioContext();
    await context.audioWorklet.addModule(new URL("recorder.js", import.meta.url));
    await context.resume();
    return new Ear(context, stream);
  }

  constructor(context, stream) {
    this.context = context;
    this.rate = context.sampleRate;
    this.ring = new Float32Array(Math.ceil((HEARD / RATE) * this.rate));
    this.heard = 0;
    this.source = context.createMediaStreamSource(stream);
    const recorder = new AudioWorkletNode(context, "recorder", { numberOfOutputs: 0 });
    recorder.port.onmessage = ({ data }) => this.take(data);
    this.source.connect(recorder);
  }

  take(block) {
    const place = this.heard % this.ring.length;
    const first = block.subarray(0, this.ring.length - place);
    this.ring.set(first, place);
    this.ring.set(block.subarray(first.length), 0);
    this.heard += block.length;
  }

  /** Seconds heard so far, at most 3. */
  get seconds() {
    return Math.min(this.heard, this.ring.length) / this.rate;
  }

  /** What was heard last, oldest first, at 16 kHz. */
  last() {
    const place = this.heard % this.ring.length;
    const whole = this.heard >= this.ring.length;
    const parts = [this.ring.subarray(whole ? place : 0, whole ? undefined : place)];
    if (whole) parts.push(this.ring.subarray(0, place));
    const wave = new Float32Array(parts.reduce((sum, p) => sum + p.length, 0));
    parts.reduce((at, p) => (wave.set(p, at), at + p.length), 0);
    return resample(wave, this.rate);
  }

  close() {
    this.source.disconnect();
    return this.context.close();
  }
}

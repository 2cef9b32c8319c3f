// Camera and microphone: a map as often as the device can make one.
import { grab } from "./engine.js";
import { Ear, QUIET, loudness } from "./sound.js";

const MEMORY = 0.3; // s
const ENOUGH = 0.3; // s of sound before the first map

const SOUND = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };

export const REFUSED = {
  NotAllowedError: "The browser was not allowed to use the camera or microphone.",
  NotFoundError: "There is no camera or no microphone on this device.",
  NotReadableError: "Another program is using the camera or microphone.",
};

/** Camera (unless null) and microphone; a sentence if they cannot be had. */
export async function listen(video) {
  if (!navigator.mediaDevices) throw new Error("The camera needs a secure address: https or localhost.");
  try {
    return await navigator.mediaDevices.getUserMedia({ video: video ?? false, audio: SOUND });
  } catch (error) {
    throw new Error(REFUSED[error.name] ?? "The camera and microphone could not be opened.");
  }
}

export class Live {
  constructor(video, engine, notify) {
    Object.assign(this, { video, engine, notify, closed: false, perSecond: 0, answer: null });
  }

  async open(facing) {
    this.stream = await listen({ facingMode: facing, width: { ideal: 1280 } });
    this.ear = await Ear.open(this.stream);
    this.video.srcObject = this.stream;
    this.video.muted = true;
    await this.video.play();
    this.running = this.run();
  }

  async run() {
    await this.engine.ready;
    let before = performance.now();
    while (!this.closed) {
      if (document.hidden || this.ear.seconds < ENOUGH || this.video.readyState < 2) {
        await new Promise((resolve) => setTimeout(resolve, 50));
        continue;
      }
      let looked = false;
      try {
        looked = await this.look();
      } catch (error) {
        if (!this.closed) this.notify(error);
        return;
      }
      const now = performance.now();
      const took = Math.min(2, (now - before) / 1000);
      before = now;
      const rate = 1 / Math.max(took, 0.01);
      if (looked) this.perSecond += (this.perSecond ? 0.2 : 1) * (rate - this.perSecond);
      if (!this.closed) this.notify();
      // The screen is drawn between two maps.
      await new Promise((resolve) => (document.hidden ? setTimeout : requestAnimationFrame)(resolve));
    }
  }

  /** Whether there was a sound to look for. */
  async look() {
    const wave = this.ear.last();
    const latest = loudness(wave, wave.length - 16000, wave.length);
    if (latest.peak < QUIET) {
      const strength = (this.answer?.strength ?? 0) * 0.7;
      this.answer = { ...this.answer, strength, caption: "Silence.", silent: true };
      return false;
    }
    const found = await this.engine.localize(grab(this.video), wave);
    const keep = Math.exp(-1 / Math.max(this.perSecond, 1) / MEMORY);
    const old = this.answer?.map ? keep * this.answer.strength : 0;
    const add = (1 - keep) * found.strength || found.strength;
    const map = found.map.map((s, k) => (old ? (old * this.answer.map[k] + add * s) / (old + add) : s));
    this.answer = { ...found, map, strength: old ? old + add : found.strength, silent: false };
    return true;
  }

  close() {
    this.closed = true;
    this.ear?.close();
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    this.video.srcObject = null;
  }
}

// A video: maps are made ahead of the playhead while it plays, and kept.
import { STEP, answerOf, events, nextTick, smooth, unpack } from "./answer.js";
import { grab } from "./engine.js";
import { QUIET, RATE, cut, decode, loudness } from "./sound.js";

const LARGEST = 700e6; // bytes of a file whose sound is decoded as a whole

export const happens = (target, name) =>
  new Promise((resolve, reject) => {
    target.addEventListener(name, resolve, { once: true });
    target.addEventListener("error", () => reject(new Error("error")), { once: true });
  });

export class Moving {
  /**
   * @param video The element that plays.
   * @param notify Called whenever a moment has been looked at.
   * @param given Answers of all moments, if they have been made beforehand.
   */
  constructor(video, engine, notify, given = null) {
    Object.assign(this, { video, engine, notify, given, moments: [], closed: false });
    this.scanner = document.createElement("video");
    Object.assign(this.scanner, { muted: true, playsInline: true, preload: "auto" });
    this.wake = () => this.awake?.();
    for (const name of ["play", "seeked", "timeupdate"]) video.addEventListener(name, this.wake);
  }

  /** Open a file; says in a sentence what is wrong with it. */
  async open(blob) {
    this.url = URL.createObjectURL(blob);
    this.video.src = this.scanner.src = this.url;
    const listening = blob.size > LARGEST ? null : decode(blob);
    try {
      await Promise.all([happens(this.video, "loadeddata"), happens(this.scanner, "loadeddata")]);
    } catch {
      throw new Error("This browser cannot play that video.");
    }
    if (!this.video.videoWidth) throw new Error("That file has no picture: choose a photo for it.");
    this.wave = await listening;
    if (!listening) throw new Error("That video is too large for this page: choose a shorter part.");
    if (!this.wave) throw new Error("That video has no sound track that this browser can read.");
    if (loudness(this.wave, 0, this.wave.length).peak < QUIET) throw new Error("That video is silent.");
    this.count = Math.max(1, Math.ceil(this.seconds / STEP));
    this.looking = this.look();
  }

  get seconds() {
    return Number.isFinite(this.video.duration) ? this.video.duration : this.wave.length / RATE;
  }

  /** Look at one moment after the other, until all are known. */
  async look() {
    if (!this.given) await this.engine.ready;
    for (let job; !this.closed; ) {
      job = nextTick(this.moments, this.count, this.video.currentTime, !this.video.paused);
      if (!job) return;
      try {
        await this.lookAt(job);
      } catch (error) {
        if (!this.closed) this.notify(error);
        return;
      }
      if (!this.closed) this.notify();
    }
  }

  async lookAt({ tick, onScreen }) {
    const at = Math.min(tick * STEP, this.seconds - 0.01);
    const second = cut(this.wave, at, RATE);
    const { peak } = loudness(second, 0, RATE);
    const middle = at * RATE;
    const { rms } = loudness(this.wave, middle - (STEP / 2) * RATE, middle + (STEP / 2) * RATE);
    if (peak < QUIET) {
      this.moments[tick] = { at, rms, silent: true, strength: 0, caption: "Silence.", map: null };
      return;
    }
    const given = this.given?.[Math.min(tick, this.given.length - 1)];
    if (given) {
      const { about } = this.engine;
      const answer = answerOf(unpack(given, about.names.length), about);
      this.moments[tick] = { at, rms, silent: false, ...answer };
      return;
    }
    if (!onScreen) {
      const seeked = happens(this.scanner, "seeked");
      this.scanner.currentTime = at;
      await seeked;
    }
    const pixels = grab(onScreen ? this.video : this.scanner);
    this.moments[tick] = { at, rms, silent: false, ...(await this.engine.localize(pixels, this.wave, at)) };
  }

  /** What is shown at a time. */
  at(time) {
    return smooth(this.moments, time);
  }

  events() {
    return events(this.moments, this.engine.about.names, this.engine.about.words);
  }

  close() {
    this.closed = true;
    for (const name of ["play", "seeked", "timeupdate"]) this.video.removeEventListener(name, this.wake);
    for (const video of [this.video, this.scanner]) {
      video.pause();
      video.removeAttribute("src");
      video.load();
    }
    URL.revokeObjectURL(this.url);
  }
}

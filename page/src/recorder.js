// Runs beside the page and hands over what a microphone hears, 20 times a second.
class Recorder extends AudioWorkletProcessor {
  constructor() {
    super();
    this.block = new Float32Array(Math.ceil(sampleRate / 20 / 128) * 128);
    this.filled = 0;
  }

  process([channels]) {
    if (!channels.length) return true;
    for (let k = 0; k < channels[0].length; k++)
      this.block[this.filled + k] = channels.reduce((sum, c) => sum + c[k], 0) / channels.length;
    this.filled += channels[0].length;
    if (this.filled >= this.block.length) {
      this.port.postMessage(this.block.slice());
      this.filled = 0;
    }
    return true;
  }
}

registerProcessor("recorder", Recorder);

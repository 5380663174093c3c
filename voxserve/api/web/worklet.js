// Plays samples in the order in which they come, once a cushion of them is there, and counts every
// time it runs dry before the end.

const REPORT_SAMPLES = 1200;

class Speech extends AudioWorkletProcessor {
  constructor({ processorOptions }) {
    super();
    this.cushion = processorOptions.cushion;
    this.begun = false;
    this.chunks = [];
    this.offset = 0;
    this.buffered = 0;
    this.played = 0;
    this.underruns = 0;
    this.dry = true; // before the first sample, and between underrun and next sample
    this.ended = false;
    this.told = 0;
    this.over = false;
    this.port.onmessage = ({ data }) => this.take(data);
  }

  take(message) {
    if (message.samples) {
      this.chunks.push(message.samples);
      this.buffered += message.samples.length;
    } else if (message.end) {
      this.ended = true;
    } else if (message.stop) {
      this.over = true;
      this.chunks = [];
      this.buffered = 0;
      this.report("stopped");
    }
  }

  process(_, [[left]]) {
    if (this.over) return false;
    if (!this.begun) {
      if (this.buffered < this.cushion && !this.ended) return true;
      this.begun = this.buffered > 0;
      if (this.begun) this.report("begun");
    }
    let filled = 0;
    while (filled < left.length && this.chunks.length) {
      const chunk = this.chunks[0];
      const count = Math.min(left.length - filled, chunk.length - this.offset);
      left.set(chunk.subarray(this.offset, this.offset + count), filled);
      filled += count;
      this.offset += count;
      if (this.offset === chunk.length) {
        this.chunks.shift();
        this.offset = 0;
      }
    }
    this.buffered -= filled;
    this.played += filled;
    if (filled < left.length) {
      if (this.ended) {
        this.over = true;
        this.report("ended");
        return false;
      }
      if (!this.dry) this.underruns += 1;
      this.dry = true;
    } else {
      this.dry = false;
    }
    if (currentFrame - this.told >= REPORT_SAMPLES) this.report("playing");
    return true;
  }

  report(state) {
    this.told = currentFrame;
    const { buffered, played, underruns } = this;
    this.port.postMessage({ state, buffered, played, underruns });
  }
}

registerProcessor("speech", Speech);

// The waveform: one peak every 20 ms, drawn to fit; what has been played is darker.

const PEAKS_PER_S = 50;

export class Wave {
  constructor(canvas) {
    this.canvas = canvas;
    this.clear(24000);
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  clear(rate) {
    this.step = Math.round(rate / PEAKS_PER_S);
    this.peaks = [];
    this.peak = 0;
    this.count = 0;
    this.played = 0;
    this.draw();
  }

  add(samples) {
    for (const value of samples) {
      this.peak = Math.max(this.peak, Math.abs(value));
      this.count += 1;
      if (this.count === this.step) {
        this.peaks.push(this.peak);
        this.peak = this.count = 0;
      }
    }
    this.draw();
  }

  moveTo(playedSamples) {
    this.played = playedSamples / this.step;
    this.draw();
  }

  draw() {
    const { canvas } = this;
    const ratio = devicePixelRatio || 1;
    const width = (canvas.width = Math.round(canvas.clientWidth * ratio));
    const height = (canvas.height = Math.round(canvas.clientHeight * ratio));
    const paint = canvas.getContext("2d");
    const style = getComputedStyle(canvas);
    const bar = 3 * ratio;
    const bars = Math.max(1, Math.floor(width / (bar + ratio)));
    const perBar = Math.max(1, this.peaks.length / bars);
    paint.fillStyle = style.getPropertyValue("--line");
    paint.fillRect(0, Math.floor(height / 2), width, ratio);
    for (let i = 0; i < bars && i * perBar < this.peaks.length; i += 1) {
      const from = Math.floor(i * perBar);
      const peak = Math.max(...this.peaks.slice(from, Math.max(from + 1, Math.floor((i + 1) * perBar))));
      const tall = Math.max(2 * ratio, Math.sqrt(peak) * height * 0.92);
      paint.fillStyle = style.getPropertyValue(from < this.played ? "--played" : "--ahead");
      paint.fillRect(i * (bar + ratio), (height - tall) / 2, bar, tall);
    }
  }
}

// The loudspeaker: one AudioContext a sample rate, one worklet node an utterance.

let context = null;

async function contextOf(rate) {
  if (context === null || context.sampleRate !== rate) {
    if (context !== null) await context.close();
    context = new AudioContext({ sampleRate: rate });
    await context.audioWorklet.addModule(new URL("worklet.js", import.meta.url));
  }
  await context.resume();
  return context;
}

export class Player {
  // cushion: samples to gather before the first is played. onReport gets {state: begun | playing |
  // ended | stopped, buffered, played, underruns}, in samples.
  static async open(rate, cushion, onReport) {
    const place = await contextOf(rate);
    const node = new AudioWorkletNode(place, "speech", {
      numberOfInputs: 0,
      outputChannelCount: [1],
      processorOptions: { cushion },
    });
    node.port.onmessage = ({ data }) => {
      if (data.state === "ended" || data.state === "stopped") node.disconnect();
      onReport(data);
    };
    node.connect(place.destination);
    return new Player(node, place);
  }

  constructor(node, place) {
    this.node = node;
    this.place = place;
  }

  feed(samples) { this.node.port.postMessage({ samples }); }
  end() { this.node.port.postMessage({ end: true }); }
  stop() { this.node.port.postMessage({ stop: true }); }

  // A complete compressed file as samples at the context's rate.
  async decode(bytes) { return (await this.place.decodeAudioData(bytes)).getChannelData(0); }
}

export class PcmReader {
  // Bytes of 16-bit little-endian PCM in, floats out. A WAV header in front is skipped.
  constructor(headerBytes = 0) {
    this.skip = headerBytes;
    this.odd = new Uint8Array(0);
  }

  read(bytes) {
    let data = new Uint8Array(this.odd.length + bytes.length);
    data.set(this.odd);
    data.set(bytes, this.odd.length);
    const skipped = Math.min(this.skip, data.length);
    this.skip -= skipped;
    data = data.subarray(skipped);
    const whole = data.length - (data.length % 2);
    this.odd = data.slice(whole);
    const view = new DataView(data.buffer, data.byteOffset, whole);
    const samples = new Float32Array(whole / 2);
    for (let i = 0; i < samples.length; i += 1) samples[i] = view.getInt16(2 * i, true) / 32768;
    return samples;
  }
}

export function wavOf(parts, rate) {
  const count = parts.reduce((sum, part) => sum + part.length, 0);
  const view = new DataView(new ArrayBuffer(44 + 2 * count));
  const word = (at, text) => [...text].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
  word(0, "RIFF"); view.setUint32(4, 36 + 2 * count, true); word(8, "WAVEfmt ");
  view.setUint32(16, 16, true); view.setUint16(20, 1, true); view.setUint16(22, 1, true);
  view.setUint32(24, rate, true); view.setUint32(28, 2 * rate, true);
  view.setUint16(32, 2, true); view.setUint16(34, 16, true); word(36, "data");
  view.setUint32(40, 2 * count, true);
  let at = 44;
  for (const part of parts) {
    for (const value of part) {
      view.setInt16(at, Math.round(value * 32768), true);
      at += 2;
    }
  }
  return new Blob([view], { type: "audio/wav" });
}

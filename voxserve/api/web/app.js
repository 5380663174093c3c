// The page: takes what is typed, speaks it one way or the other, and shows how that went.

import { PcmReader, Player, wavOf } from "./player.js";
import { Server } from "./server.js";
import { Wave } from "./wave.js";

const byId = (id) => document.getElementById(id);
const server = new Server();
const wave = new Wave(byId("wave"));
const WAV_HEADER_BYTES = 44;
const LOAD_MS = 1000;
let rate = 24000;
let descriptions = new Map();
let running = null;

// One utterance from the button to its end. `cancel` is what stops it on the server.
class Run {
  constructor() {
    this.begin = performance.now();
    this.parts = [];
    this.samples = 0;
    this.cancel = () => {};
    this.stopped = false;
    this.complete = false;
  }

  async open() {
    const cushion = (Number(byId("cushion").value || 0) * rate) / 1000;
    this.player = await Player.open(rate, cushion, (report) => this.onReport(report));
    this.begin = performance.now();
  }

  take(samples) {
    if (this.stopped || !samples.length) return;
    this.samples += samples.length;
    this.parts.push(samples);
    wave.add(samples);
    this.player.feed(samples);
  }

  end() {
    this.complete = true;
    this.player.end();
  }

  stop() {
    if (this.stopped) return;
    this.stopped = true;
    this.cancel();
    this.player?.stop();
  }

  onReport({ state, buffered, played, underruns }) {
    if (running !== this) return;
    if (state === "begun") byId("ttfa").textContent = Math.round(performance.now() - this.begin);
    this.played = played;
    byId("buffered").textContent = (buffered / rate).toFixed(2);
    byId("played").textContent = (played / rate).toFixed(2);
    byId("underruns").textContent = underruns;
    byId("underruns").classList.toggle("late", underruns > 0);
    Object.assign(byId("meter").dataset, { state, played, underruns, received: this.samples });
    wave.moveTo(played);
    if (state === "ended" || state === "stopped") finish();
  }
}

async function speak(event) {
  event.preventDefault();
  running?.stop();
  const run = (running = new Run());
  const live = new FormData(byId("form")).get("mode") === "live";
  begin();
  try {
    await run.open();
    await (live ? speakLive(run) : speakWhole(run));
  } catch (error) {
    if (!run.stopped && running === run) fail(run, error);
  }
}

function fields() {
  const chosen = { response_format: byId("format").value };
  if (byId("voice").value) chosen.voice = byId("voice").value;
  if (Number(byId("speed").value) !== 1) chosen.speed = Number(byId("speed").value);
  return chosen;
}

async function speakWhole(run) {
  const abort = new AbortController();
  run.cancel = () => abort.abort();
  const chosen = fields();
  const response = await server.speech({ input: byId("text").value, ...chosen }, abort.signal);
  byId("meter").dataset.request = response.headers.get("x-request-id");
  const body = response.body.getReader();
  if (chosen.response_format !== "pcm" && chosen.response_format !== "wav") {
    await playWhole(run, body, response.headers.get("content-type"));
    return;
  }
  const pcm = new PcmReader(chosen.response_format === "wav" ? WAV_HEADER_BYTES : 0);
  for (let next = await body.read(); !next.done; next = await body.read()) {
    run.take(pcm.read(next.value));
  }
  run.end();
}

// Compressed audio is decoded when it is complete; only PCM can be played sample by sample.
async function playWhole(run, body, type) {
  const pieces = [];
  for (let next = await body.read(); !next.done; next = await body.read()) pieces.push(next.value);
  run.file = new Blob(pieces, { type });
  run.take(await run.player.decode(await run.file.arrayBuffer()));
  run.end();
}

function speakLive(run) {
  const words = byId("text").value.match(/\S+\s*/g) ?? [];
  const socket = server.session();
  const pcm = new PcmReader();
  const say = (type, more = {}) => socket.send(JSON.stringify({ type, ...more }));
  let timer = 0;
  run.cancel = () => {
    clearInterval(timer);
    if (socket.readyState !== WebSocket.OPEN) return socket.close();
    say("input.cancel", { played_ms: Math.round(((run.played ?? 0) * 1000) / rate) });
    return say("session.close");
  };
  const feed = () => {
    if (words.length) {
      const word = words.shift();
      say("input.text", { text: word });
      showSent(word, words);
    } else {
      clearInterval(timer);
      say("input.flush");
    }
  };
  return new Promise((resolve, reject) => {
    const onEvent = (event) => {
      if (event.type === "session.configured") {
        run.begin = performance.now();
        timer = setInterval(feed, 1000 / Number(byId("pace").value || 6));
        feed();
      } else if (event.type === "session.done") {
        run.end();
        say("session.close");
        resolve();
      } else if (event.type === "error") {
        reject(new Error(event.error.message));
      }
    };
    socket.onopen = () => say("session.config", { ...fields(), response_format: "pcm" });
    socket.onmessage = ({ data }) => {
      if (typeof data === "string") onEvent(JSON.parse(data));
      else run.take(pcm.read(new Uint8Array(data)));
    };
    socket.onclose = ({ code, reason }) => {
      clearInterval(timer);
      reject(new Error(`the session ended (${reason || code}); with a wrong key it never begins`));
    };
  });
}

function showSent(word, left) {
  const sent = byId("live").querySelector("b");
  sent.append(word);
  byId("live").lastChild.textContent = left.join("");
}

function begin() {
  for (const id of ["ttfa", "buffered", "played", "underruns"]) byId(id).textContent = "–";
  byId("underruns").classList.remove("late");
  byId("meter").dataset.state = "waiting";
  byId("message").textContent = "";
  byId("live").replaceChildren(document.createElement("b"), "");
  byId("stop").disabled = false;
  byId("speak").textContent = "Speak again";
  URL.revokeObjectURL(byId("save").href);
  byId("save").hidden = true;
  wave.clear(rate);
}

function finish() {
  const run = running;
  running = null;
  byId("stop").disabled = true;
  byId("speak").textContent = "Speak";
  byId("buffered").textContent = "0.00";
  if (!run.samples) return;
  const file = run.file ?? wavOf(run.parts, rate);
  byId("save").href = URL.createObjectURL(file);
  byId("save").download = `speech.${run.file ? byId("format").value : "wav"}`;
  byId("save").hidden = false;
}

function fail(run, error) {
  run.stop();
  byId("meter").dataset.state = "failed";
  byId("message").textContent = error.message;
  if (error.status === 401) byId("key").closest("details").open = true;
  if (!run.player) finish();
}

function choices(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, text]) => new Option(text, value, false, value === chosen)));
}

async function loadModel(chosenVoice) {
  const [model] = (await server.json("v1/models")).data;
  const voices = (await server.json("v1/audio/voices")).data;
  const { formats, sample_rate, default_voice, max_input_chars, cloning, tasks } = model.audio;
  rate = sample_rate;
  byId("text").maxLength = max_input_chars;
  choices(byId("voice"), voices.map(({ name }) => [name, name]), chosenVoice ?? default_voice);
  descriptions = new Map(voices.map((voice) => [voice.name, voice.description]));
  describeVoice();
  const ordered = [...formats].sort((a, b) => (b === "pcm") - (a === "pcm"));
  choices(byId("format"), ordered.map((name) => [name, NAMES[name] ?? name]), "pcm");
  describeFormat();
  byId("upload").hidden = !(cloning ?? tasks.includes("Base"));
  byId("notice").textContent = [model.notice, model.licence && `Licence of the model: ${model.licence}.`]
    .filter(Boolean).join(" ");
}

const NAMES = { pcm: "PCM", wav: "WAV", mp3: "MP3", opus: "Opus", aac: "AAC", flac: "FLAC" };

function describeFormat() {
  const asMade = ["pcm", "wav"].includes(byId("format").value) || byId("format").disabled;
  byId("when").textContent = asMade ? "Plays while it is made" : "Plays when it is complete";
}

function describeVoice() {
  byId("about").textContent = descriptions.get(byId("voice").value) ?? "";
}

async function showLoad() {
  if (document.hidden) return;
  try {
    const health = await server.json("health");
    if (health.error) throw Object.assign(new Error(health.error.message), { status: 401 });
    const ready = health.status === "ready";
    byId("dot").className = `dot ${ready ? "good" : ""}`;
    byId("state").textContent = `${health.model} · ${health.status}`;
    byId("slots").textContent = health.slots_free === null ? "–" : `${health.slots - health.slots_free} of ${health.slots}`;
    byId("waiting").textContent = health.waiting ?? "–";
    byId("lanes").replaceChildren(...Object.entries(health.lanes ?? {}).map(([name, share]) => laneRow(name, share)));
    if (ready && !byId("voice").options.length) await loadModel();
  } catch (error) {
    byId("dot").className = "dot bad";
    byId("state").textContent = error.status === 401 ? "the server wants an API key" : "the server does not answer";
    if (error.status === 401) byId("key").closest("details").open = true;
  }
}

const LANES = { lm: "Language model", background: "Codec", urgent: "Urgent codec" };

function laneRow(name, share) {
  const row = document.createElement("div");
  row.className = "lane";
  const bar = Object.assign(document.createElement("progress"), { max: 1, value: share });
  bar.setAttribute("aria-label", LANES[name] ?? name);
  const [title, number] = [document.createElement("span"), document.createElement("span")];
  title.textContent = LANES[name] ?? name;
  number.textContent = `${Math.round(share * 100)} %`;
  row.append(title, bar, number);
  return row;
}

async function upload(event) {
  event.preventDefault();
  const form = new FormData();
  form.set("name", byId("new-name").value);
  form.set("audio", byId("new-audio").files[0]);
  if (byId("new-text").value.trim()) form.set("ref_text", byId("new-text").value.trim());
  const message = byId("upload-message");
  try {
    await server.json("v1/audio/voices", { method: "POST", body: form });
    await loadModel(byId("new-name").value);
    message.textContent = "The voice is ready.";
    message.classList.add("good");
  } catch (error) {
    message.textContent = error.message;
    message.classList.remove("good");
  }
}

byId("form").addEventListener("submit", speak);
byId("stop").addEventListener("click", () => running?.stop());
byId("upload-form").addEventListener("submit", upload);
byId("voice").addEventListener("change", describeVoice);
byId("format").addEventListener("change", describeFormat);
byId("speed").addEventListener("input", () => {
  byId("speed-shown").textContent = `${Number(byId("speed").value).toFixed(2).replace(/0$/, "")}×`;
});
byId("form").addEventListener("change", ({ target }) => {
  if (target.name !== "mode") return;
  const live = target.value === "live";
  byId("pace").parentElement.hidden = !live;
  byId("live").hidden = !live;
  byId("format").disabled = live;
  describeFormat();
});
server.key = byId("key").value = sessionStorage.getItem("voxserve.key") ?? "";
byId("key").addEventListener("change", () => {
  server.key = byId("key").value.trim();
  sessionStorage.setItem("voxserve.key", server.key);
  showLoad();
});
showLoad();
setInterval(showLoad, LOAD_MS);

// What the page asks the server, by paths relative to the page, so that a prefix does no harm.

const place = (path) => new URL(path, document.baseURI);

export class Server {
  constructor() { this.key = ""; }

  headers(more = {}) {
    return this.key ? { authorization: `Bearer ${this.key}`, ...more } : more;
  }

  async json(path, init = {}) {
    const response = await fetch(place(path), { ...init, headers: this.headers(init.headers) });
    const body = await response.json().catch(() => ({}));
    if (!response.ok && path !== "health") throw refused(response, body);
    return body;
  }

  // A speech response whose body is audio as it is made.
  async speech(fields, signal) {
    const response = await fetch(place("v1/audio/speech"), {
      method: "POST",
      headers: this.headers({ "content-type": "application/json" }),
      body: JSON.stringify(fields),
      signal,
    });
    if (!response.ok) throw refused(response, await response.json().catch(() => ({})));
    return response;
  }

  // A session for text that is still being written. Browsers cannot set headers on a WebSocket,
  // so the key goes along as a subprotocol.
  session() {
    const url = place("v1/audio/speech/stream");
    url.protocol = url.protocol.replace("http", "ws");
    const protocols = ["voxserve.speech.v1"];
    if (this.key) protocols.push(`voxserve.key.${base64url(this.key)}`);
    const socket = new WebSocket(url, protocols);
    socket.binaryType = "arraybuffer";
    return socket;
  }
}

function refused(response, body) {
  const error = new Error(body.error?.message ?? `the server answered ${response.status}`);
  error.status = response.status;
  return error;
}

function base64url(text) {
  const bytes = new TextEncoder().encode(text);
  return btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

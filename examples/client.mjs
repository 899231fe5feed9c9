// A client of the service in JavaScript, for Node and browsers: node client.mjs URL USER

// [client]
export class ServiceError extends Error {
  constructor(status, message) {
    super(`${status}: ${message}`);
    this.status = status;
  }
}

// Requests to one service; fetch keeps connections open and uses them again.
export class Client {
  constructor(url, { token, timeout = 2000, attempts = 4 } = {}) {
    Object.assign(this, { url: url.replace(/\/+$/, ""), timeout, attempts });
    this.headers = { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) };
  }

  // The best items for a user; the most popular ones for users that the model does not know.
  async recommend(user, n = 10, options = {}) {
    const { items } = await this.post("/v1/recommend", { user, n, fallback: "popular", ...options });
    return items.map(({ item }) => item);
  }

  // The response to a request. It is sent again if the service is busy, or if the connection is lost: it changes nothing.
  async post(path, body) {
    for (let attempt = 1; ; attempt++) {
      let wait = 100 * 2 ** attempt; // milliseconds
      try {
        const signal = AbortSignal.timeout(this.timeout);
        const answer = await fetch(this.url + path, { method: "POST", headers: this.headers, body: JSON.stringify(body), signal });
        const text = await answer.text();
        if (answer.ok) return JSON.parse(text);
        if (![429, 503].includes(answer.status) || attempt === this.attempts) throw new ServiceError(answer.status, message(text));
        const asked = answer.headers.get("retry-after") ?? "";
        if (/^\d+$/.test(asked)) wait = 1000 * Number(asked);
      } catch (error) {
        if (error instanceof ServiceError || attempt === this.attempts) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

function message(text) {
  try {
    return JSON.parse(text).error.message;
  } catch { // from a proxy
    return text.slice(0, 200);
  }
}
// [client]

if (import.meta.url === `file://${globalThis.process?.argv[1]}`) {
  const [, , url, user] = process.argv;
  console.log((await new Client(url, { token: process.env.EVERYPAIR_TOKEN }).recommend(user)).join("\n"));
}

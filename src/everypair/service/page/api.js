// Requests to the service: JSON with exact 64-bit ids, a token if the service needs one, and errors with their messages.

const TOKEN = "everypair-token";
const dialog = document.getElementById("token-dialog");
let seen = null; // the model version of the last response
let switched = () => {}; // called with the version of another model
let waiting = 0; // pending requests

export class ServiceError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// JavaScript numbers cannot hold 64-bit integers.
const exact = (key, value, context) => (typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "") ? BigInt(context.source) : value);
export const read = (text) => JSON.parse(text, exact);
export const write = (value) => JSON.stringify(value, (key, each) => (typeof each === "bigint" ? JSON.rawJSON(String(each)) : each));
export const same = (one, other) => write(one) === write(other);

// The callback gets the version of a model that replaced another.
export function onSwitch(callback) { switched = callback; }
export function using(version) { seen = version; }

export async function ask(path, body) {
  wait(1);
  try {
    return await answered(path, body);
  } finally {
    setTimeout(() => wait(-1)); // after follow-up requests have started
  }
}

function wait(change) {
  waiting += change;
  document.querySelector("main").setAttribute("aria-busy", String(waiting > 0));
}

async function answered(path, body) {
  const headers = { accept: "application/json" }, token = sessionStorage.getItem(TOKEN);
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(`v1/${path}`, { method: body === undefined ? "GET" : "POST", headers, body: body === undefined ? undefined : write(body) });
  } catch {
    throw new Error("The service does not answer. Is it still running?");
  }
  const small = (answer.headers.get("www-authenticate") ?? "").includes("insufficient_scope"); // a token for less than the page shows
  if (answer.status === 401 || small) {
    sessionStorage.removeItem(TOKEN);
    await askForToken(small ? "That token is for recommendations alone." : token !== null ? "That token was refused." : "");
    return answered(path, body);
  }
  const version = answer.headers.get("x-model-version");
  let content = null;
  try {
    content = read(await answer.text());
  } catch { /* not JSON: the error page of a proxy */ }
  if (version && seen && version !== seen && path !== "model") switched(version);
  if (!answer.ok || content === null) throw new ServiceError(answer.status, content?.error?.message ?? `The service answered ${answer.status} ${answer.statusText}.`);
  return content;
}

let asking = null;
function askForToken(words) {
  asking ??= new Promise((resolve, reject) => {
    const input = document.getElementById("token"), note = document.getElementById("token-note");
    note.textContent = words;
    const done = () => {
      const given = input.value.trim();
      input.value = "";
      asking = null;
      dialog.removeEventListener("close", done);
      if (dialog.returnValue !== "use" || !given) return reject(new Error("This service needs a token. Load the page again to enter it."));
      sessionStorage.setItem(TOKEN, given);
      return resolve();
    };
    dialog.returnValue = "";
    dialog.addEventListener("close", done);
    dialog.showModal();
  });
  return asking;
}
document.getElementById("token").addEventListener("input", (event) => {
  event.target.setCustomValidity(/[^\x20-\x7e]/.test(event.target.value) ? "A token has letters, digits and signs of ASCII alone." : "");
});

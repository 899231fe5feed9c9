// Asking the service: JSON with ids that are exact, a token where one is needed, and errors in words.

const TOKEN = "everypair-token";
const dialog = document.getElementById("token-dialog");
let seen = null; // the version of the model that answered last
let tell = () => {};
let waiting = 0; // answers that are on their way

export class ServiceError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Integers of 64 bits are more than numbers of JavaScript hold.
const exact = (key, value, context) => (typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "") ? BigInt(context.source) : value);
export const read = (text) => JSON.parse(text, exact);
export const write = (value) => JSON.stringify(value, (key, each) => (typeof each === "bigint" ? JSON.rawJSON(String(each)) : each));
export const same = (one, other) => write(one) === write(other);

// Called with the version of a model that took the place of another.
export function onSwitch(told) { tell = told; }
export function using(version) { seen = version; }

export async function ask(path, body) {
  wait(1);
  try {
    return await answered(path, body);
  } finally {
    setTimeout(() => wait(-1)); // when what follows from it has begun
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
    answer = await fetch(path, { method: body === undefined ? "GET" : "POST", headers, body: body === undefined ? undefined : write(body) });
  } catch {
    throw new Error("The service does not answer. Is it still running?");
  }
  if (answer.status === 401) {
    sessionStorage.removeItem(TOKEN);
    await askForToken(token !== null);
    return answered(path, body);
  }
  const version = answer.headers.get("x-model-version");
  let told = null;
  try {
    told = read(await answer.text());
  } catch { /* a proxy's own page */ }
  if (version && seen && version !== seen && path !== "model") tell(version);
  if (!answer.ok || told === null) throw new ServiceError(answer.status, told?.error?.message ?? `The service answered ${answer.status} ${answer.statusText}.`);
  return told;
}

let asking = null;
function askForToken(refused) {
  asking ??= new Promise((resolve, reject) => {
    const input = document.getElementById("token"), note = document.getElementById("token-note");
    note.textContent = refused ? "That token was refused." : "";
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

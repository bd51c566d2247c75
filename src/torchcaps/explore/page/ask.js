// Questions to the server. A new question of the same kind drops the one that is on its way.

const page = Math.random().toString(36).slice(2, 10);
const onTheWay = new Map();
let count = 0;

async function answered(path, options) {
  const answer = await fetch(`api/${path}`, { credentials: "omit", ...options });
  if (!answer.ok) throw new Error((await answer.text()).trim() || `the explorer answered ${answer.status}`);
  return answer.json();
}

function newest(path, pane, state) {
  const key = `${path}.${pane}`;
  onTheWay.get(key)?.abort();
  const stop = new AbortController();
  onTheWay.set(key, stop);
  count += 1;
  const options = { method: "POST", signal: stop.signal, headers: { "content-type": "application/json" }, body: JSON.stringify(state) };
  return answered(`${path}?page=${page}.${key}&number=${count}`, options);
}

export const ask = {
  about: () => answered("about"),
  images: (collection) => answered(`images/${collection}`),
  look: (pane, state) => newest("look", pane, state),
  over: (pane, state) => newest("over", pane, state),
  picture: (blob) => answered("picture", { method: "POST", body: blob }),
};

"use strict";
// The live page. The server draws and escapes everything; this asks for pieces when it is told that
// they have changed, puts them in place, and leaves alone what the reader has opened.
const page = document.body.dataset.page;
const run = document.body.dataset.run;
const by = (id) => document.getElementById(id);

const ask = async (path, options) => {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(15000), ...options });
  if (!answer.ok) throw new Error(await answer.text());
  return answer;
};

// Puts a piece in place. Charts get their values, and what was open stays open.
const put = (place, html) => {
  if (place.written === html) return;
  place.written = html;
  const open = [...place.querySelectorAll("details")].map((one) => one.open);
  place.innerHTML = html;
  place.querySelectorAll("details").forEach((one, index) => (one.open = open[index] ?? false));
  place.querySelectorAll("figure.chart").forEach(attendChart);
};

// One refresh at a time; a change that comes meanwhile makes one more.
const onlyOne = (work) => {
  let busy = false;
  let again = false;
  return async () => {
    if (busy) return void (again = true);
    busy = true;
    do {
      again = false;
      try {
        await work();
      } catch {
        // The next event asks again.
      }
    } while (again);
    busy = false;
  };
};

// Told of changes for as long as the page is seen.
const follow = (address, onChange) => {
  const link = by("link");
  let source = null;
  const say = (name, text) => {
    link.className = name;
    link.textContent = text;
  };
  const open = () => {
    source?.close();
    source = new EventSource(address);
    source.onopen = () => say("live", "live");
    source.onerror = () => {
      say("lost", "not connected");
      // A browser gives up for good where the answer was no stream; a server may come back.
      if (source.readyState === EventSource.CLOSED) setTimeout(open, 3000);
    };
    source.onmessage = (event) => onChange(JSON.parse(event.data));
  };
  open();
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) return open();
    source.close();
    say("", "paused");
  });
};

const list = () => {
  const rows = by("rows");
  const filter = by("filter");
  const button = by("compare");
  const chosen = new Set();
  const dress = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows.rows) {
      const name = row.dataset.name.toLowerCase();
      row.hidden = !words.every((word) => name.includes(word));
      const box = row.querySelector("input");
      if (box) box.checked = chosen.has(box.value);
    }
    button.disabled = chosen.size < 1 || chosen.size > 12;
    button.textContent = chosen.size > 12 ? "12 at most" : chosen.size > 0 ? `compare ${chosen.size}` : "compare";
  };
  filter.addEventListener("input", dress);
  rows.addEventListener("change", (event) => {
    if (event.target.checked) chosen.add(event.target.value);
    else chosen.delete(event.target.value);
    dress();
  });
  button.addEventListener("click", () => {
    location.href = "/compare?runs=" + [...chosen].map(encodeURIComponent).join(",");
  });
  const refresh = onlyOne(async () => {
    put(rows, await (await ask("/list")).text());
    dress();
  });
  follow("/events", refresh);
};

const compare = () => {
  const refresh = onlyOne(async () => put(by("compared"), await (await ask("/compare/figure" + location.search)).text()));
  follow("/events", refresh);
};

const samples = () => {
  const form = by("search");
  const found = by("found");
  let skip = 0;
  let isSeen = false;
  const look = async () => {
    const wish = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
    wish.set("skip", skip);
    try {
      found.innerHTML = await (await ask(`/run/${run}/samples?${wish}`)).text();
    } catch (error) {
      found.textContent = error.message;
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    skip = 0;
    look();
  });
  found.addEventListener("click", (event) => {
    if (!event.target.matches("button.turn")) return;
    skip = Number(event.target.value);
    look();
    by("samples").scrollIntoView();
  });
  const scale = {
    logprob: ["l0", "certain", "unlikely"],
    version: ["v0", "newest", "oldest"],
  };
  const colour = () => {
    const by_ = by("colour").value;
    found.dataset.colour = by_;
    const key = by("key");
    key.replaceChildren();
    key.dataset.colour = by_;
    if (!(by_ in scale)) return;
    const [first, low, high] = scale[by_];
    key.append(low);
    for (let index = 0; index < 6; index++) {
      const shade = document.createElement("i");
      shade.className = first[0] + index;
      key.append(shade);
    }
    key.append(high);
  };
  by("colour").addEventListener("change", colour);
  colour();
  // Read when they come into sight: a list of long texts is not for everybody.
  new IntersectionObserver((seen, observer) => {
    if (!seen.some((one) => one.isIntersecting)) return;
    observer.disconnect();
    isSeen = true;
    look();
  }, { rootMargin: "300px" }).observe(by("samples"));
  // A young run has none yet: looked for again with every change until there are some.
  return () => {
    if (isSeen && skip === 0 && found.querySelector("details.sample") === null && !new FormData(form).get("text")) look();
  };
};

const stopping = () => {
  by("stopping").addEventListener("submit", async (event) => {
    event.preventDefault();
    const token = new FormData(event.target).get("token");
    try {
      const answer = await ask(`/run/${run}/stop`, { method: "POST", headers: { "x-watch-token": token } });
      by("stopped").textContent = await answer.text();
    } catch (error) {
      by("stopped").textContent = error.message;
    }
  });
};

const one = () => {
  const lookAgain = samples();
  const refresh = onlyOne(async () => {
    const { state, parts } = await (await ask(`/run/${run}/parts`)).json();
    document.body.dataset.state = state;
    for (const part of parts) put(document.querySelector(`#${part.id} > .part`), part.html);
    lookAgain();
  });
  follow("/events?run=" + encodeURIComponent(run), refresh);
  stopping();
};

const login = () => {
  by("link").hidden = true;
  by("login").addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await ask("/login", { method: "POST", body: new FormData(event.target).get("key") });
      location.reload();
    } catch (error) {
      by("refused").textContent = error.message;
    }
  });
};

({ list, compare, run: one, login })[page]?.();

// Drives the live page with a real browser; see watch.sh. Every check is an assertion, and the numbers
// it prints are those of docs/bench/watch.md.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const { SCALERL, BROWSER, OUT, HERE } = process.env;
const { chromium } = await import(resolve(OUT, "node_modules/playwright-core/index.mjs"));
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

const started = [];
const start = (program, ...words) => {
  const child = spawn(program, words, { stdio: ["ignore", "pipe", "inherit"] });
  child.ended = new Promise((done) => child.on("exit", (code, signal) => done(signal ?? code)));
  started.push(child);
  return child;
};
const watch = async (folder) => {
  const child = start(SCALERL, "watch", folder, "--address", "127.0.0.1:0");
  let said = "";
  for await (const piece of child.stdout) {
    said += piece;
    if (said.includes("token")) break;
  }
  const [, url, token] = said.match(/page\s+(\S+)\ntoken\s+(\S+)/);
  return { url, token, pid: child.pid };
};
const resident = (pid) => Number(readFileSync(`/proc/${pid}/status`, "utf8").match(/VmRSS:\s+(\d+)/)[1]) / 1024;
const processor = (pid) => {
  const words = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(words[11]) + Number(words[12])) / 100;
};
const report = (name, value) => console.log(`${name.padEnd(58)} ${value}`);

const browser = await chromium.launchPersistentContext(mkdtempSync(join(tmpdir(), "watch-")), {
  executablePath: BROWSER,
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const elsewhere = [];
const complaints = [];
const open = async (width, height, colorScheme) => {
  const page = await browser.newPage();
  await page.setViewportSize({ width, height });
  await page.emulateMedia({ colorScheme });
  page.on("request", (one) => {
    if (!["127.0.0.1", "localhost"].includes(new URL(one.url()).hostname)) elsewhere.push(one.url());
  });
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  return page;
};
const shot = (page, name, fullPage = false) => page.screenshot({ path: `${OUT}/shots/${name}.png`, fullPage });
const step = async (page) => Number((await page.textContent("#head .tiles b")).match(/\d+/)[0]);
const until = async (what, check, seconds = 60) => {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await sleep(200)) if (await check()) return;
  assert.fail(`${what} did not happen within ${seconds} s`);
};

try {
  // A run that lives: points arrive.
  const recorded = `${OUT}/recorded`, target = `${OUT}/runs/live`;
  const replay = (...more) => start("python3", `${HERE}/watch_replay.py`, recorded, target, "40", ...more);
  const first = replay();
  await until("the run to begin", () => existsSync(`${target}/events.jsonl`));
  const one = await watch(`${OUT}/runs`);
  const page = await open(1280, 900, "light");
  await page.goto(`${one.url}/run/live`);
  await until("the first step", async () => (await step(page)) > 0);
  assert.equal(await page.textContent("#head .state"), "alive");
  const early = await step(page);
  const dots = () => page.locator("#curve .wide .tip").count();
  await until("an evaluation", async () => (await dots()) > 0);
  // From here on nothing is read for the first time.
  const [before, worked, began] = [await dots(), processor(one.pid), Date.now()];
  await until("thirty more steps", async () => (await step(page)) > early + 30);
  await until("new points", async () => (await dots()) > before);
  await sleep(Math.max(0, began + 20_000 - Date.now()));
  const share = (100 * (processor(one.pid) - worked)) / ((Date.now() - began) / 1000);
  report("a page open on a run of 40 events/s: share of one core", `${share.toFixed(2)} %`);

  // Killed under the page, and resumed: what came after the checkpoint goes, then the run goes on.
  first.kill("SIGKILL");
  await first.ended;
  await until("it to be seen as killed", async () => (await page.textContent("#head .state")) === "killed");
  await shot(page, "killed-1280-light");
  const reached = await step(page);
  const second = replay("--resume");
  await until("it to be seen as alive", async () => (await page.textContent("#head .state")) === "alive");
  await until("undone steps to go", async () => (await step(page)) < reached || (await page.textContent("#trouble")).includes("resumed from"));
  assert.match(await page.textContent("#trouble"), /resumed from step/);
  await until("it to pass where it was killed", async () => (await step(page)) > reached);

  // Stopped by the button, with the token alone.
  await page.fill("#stopping input", "wrong");
  await page.click("#stopping button");
  await until("a refusal", async () => (await page.textContent("#stopped")).includes("wrong"));
  assert.equal(second.exitCode, null);
  await page.fill("#stopping input", one.token);
  await page.click("#stopping button");
  assert.equal(await second.ended, 0);
  await until("it to be seen as ended", async () => (await page.textContent("#head .state")) === "ended");
  assert.match(await page.textContent("#head"), /as asked/);
  // The refusal of a wrong token is an error in the console, and the only one.
  assert.equal(complaints.length, 1, complaints.join("\n"));
  complaints.length = 0;

  // Completions: read, searched, coloured.
  await page.locator("#samples").scrollIntoViewIfNeeded();
  await until("completions", async () => (await page.locator("details.sample").count()) > 0);
  await page.click("details.sample summary");
  await page.locator("#samples").evaluate((part) => part.scrollIntoView());
  await until("tokens", async () => (await page.locator(".written span[class^=l]").count()) > 0);
  await shot(page, "samples-1280-light");
  await page.selectOption("#colour", "version");
  await page.fill("#search [name=text]", "no completion says this");
  await page.click("#search button");
  await until("an empty search", async () => (await page.textContent("#found")).includes("Nothing was found"));

  // Screens, looked at by people; here that nothing is wider than they are.
  for (const [width, scheme] of [[1280, "light"], [1280, "dark"], [390, "light"], [390, "dark"]]) {
    const screen = await open(width, width === 390 ? 844 : 900, scheme);
    for (const [path, name] of [["/", "list"], ["/run/live", "run"], ["/compare?runs=live,other", "compare"]]) {
      await screen.goto(one.url + path);
      await until("the page to be live", async () => (await screen.textContent("#link")) === "live");
      await sleep(500);
      if (name === "compare") assert.match(await screen.textContent("#compared"), /dashed, with its band: the last forecast/);
      const wide = await screen.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(wide <= width, `${path} is ${wide} px wide on a screen of ${width}`);
      await shot(screen, `${name}-${width}-${scheme}`, name === "run");
    }
    await screen.close();
  }

  // 200 runs and a long journal.
  const many = await watch(`${OUT}/many`);
  const list = await open(1280, 900, "light");
  await list.goto(`${many.url}/`);
  const paint = async () => {
    const entry = () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime;
    await list.waitForFunction(entry);
    return list.evaluate(entry);
  };
  const rows = await list.locator("#rows tr").count();
  assert.equal(rows, 201);
  report("201 runs: first paint, first time", `${(await paint()).toFixed(0)} ms`);
  await list.reload();
  const again = await paint();
  report("201 runs: first paint, again", `${again.toFixed(0)} ms`);
  await shot(list, "many-1280-light");
  await list.fill("#filter", "run-07");
  assert.equal(await list.locator("#rows tr:visible").count(), 10);
  const low = resident(many.pid);
  const begun = Date.now();
  await list.goto(`${many.url}/run/long`);
  const long = await paint();
  report("a run with a long journal: first paint", `${long.toFixed(0)} ms`);
  let most = low;
  await until("the journal to be read", async () => {
    most = Math.max(most, resident(many.pid));
    return (await list.locator("#head .tiles").count()) > 0;
  }, 300);
  report("its journal read to the end", `${((Date.now() - begun) / 1000).toFixed(1)} s`);
  report("memory of the server: the list, while reading at most", `${low.toFixed(0)} MB, ${most.toFixed(0)} MB`);
  await shot(list, "long-1280-light");
  assert.ok(again < 1000 && long < 1000, "first paint under a second");
  assert.ok(most - low < 128, "memory is flat");

  assert.deepEqual(elsewhere, [], "no request leaves the machine");
  assert.deepEqual(complaints, [], "no error in the browser");
  console.log("all of it holds");
} finally {
  for (const child of started) child.kill("SIGKILL");
  await browser.close();
}

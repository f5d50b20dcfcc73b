// Signs in and opens every page of a running server, at the width of a desk and of a phone, light and dark. Fails on a console error, a
// violation of the content security policy, a page that is wider than its window, or a page without its heading.
//
//   MUSTER_URL=http://127.0.0.1:8080 MUSTER_USER=admin MUSTER_PASSWORD=… [MUSTER_SHOTS=DIR] [MUSTER_NODE=gpu-1] npm test

import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { chromium } from "playwright-core";

const url = process.env.MUSTER_URL ?? "http://127.0.0.1:8080";
const shots = process.env.MUSTER_SHOTS;
const node = process.env.MUSTER_NODE;
// The bound of each wait, for a machine that emulates others beside the browser.
const LIMIT_MS = 60_000;

const pages = [
  ["fleet", "/", "Fleet"],
  ["nodes", "/nodes", "Nodes"],
  ["nodes-filtered", "/nodes?state=failed", "Nodes"],
  ["racks", "/racks", "Racks"],
  ["claims", "/claims", "Pools"],
  ["stacks", "/stacks", "Stacks"],
  ["rollouts", "/rollouts", "Rollouts"],
  ["operations", "/operations", "Operations"],
  ["events", "/events", "Events"],
  ["agents", "/agents", "Agents"],
  ["webhooks", "/webhooks", "Webhooks"],
  ["users", "/users", "People"],
  ...(node ? [["node", `/nodes/${node}`, node]] : []),
];

const views = [
  ["desk-light", { viewport: { width: 1440, height: 900 }, colorScheme: "light" }],
  ["desk-dark", { viewport: { width: 1440, height: 900 }, colorScheme: "dark" }],
  ["phone-light", { viewport: { width: 390, height: 844 }, colorScheme: "light", hasTouch: true }],
  ["phone-dark", { viewport: { width: 390, height: 844 }, colorScheme: "dark", hasTouch: true }],
];

const faults = [];

// Whatever the browser complains about; the policy's violations are told as console errors.
function listen(page, where) {
  page.on("console", (message) => {
    const expected = ["/nodes/no-such-node", "/adopt"].some((end) => message.location().url.endsWith(end));
    if (message.type() === "error" && !expected) faults.push(`${where()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`${where()}: ${error.message}`));
}

async function shoot(page, name) {
  if (shots) await page.screenshot({ path: `${shots}/${name}.png`, fullPage: true, timeout: LIMIT_MS });
}

async function signIn(page) {
  await page.goto(`${url}/nodes?state=failed`);
  assert.match(page.url(), /\/sign-in\?next=/, "nobody is led to sign in");
  await page.getByLabel("Name").fill(process.env.MUSTER_USER ?? "admin");
  await page.getByLabel("Password").fill(process.env.MUSTER_PASSWORD ?? "");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL(`${url}/nodes?state=failed`);
}

async function visit(page, view, [name, path, heading]) {
  await page.goto(url + path);
  const seen = (await page.getByRole("heading", { level: 1 }).first().textContent()).trim();
  if (heading) assert.equal(seen, heading, `${view} ${path}`);
  assert.doesNotMatch(seen, /bug/, `${view} ${path}`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (wide > 0) faults.push(`${view} ${path}: ${wide} px wider than the window`);
  await shoot(page, `${name}-${view}`);
}

async function look(browser, [view, options]) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(LIMIT_MS);
  const page = await context.newPage();
  let at = "sign-in";
  listen(page, () => `${view} ${at}`);
  await page.goto(`${url}/sign-in`);
  await shoot(page, `sign-in-${view}`);
  await signIn(page);
  for (const entry of pages) {
    at = entry[1];
    await visit(page, view, entry);
  }
  at = "the first operation";
  await page.goto(`${url}/operations`);
  const operation = page.locator("main a[href^='/operations/']").first();
  if (await operation.count()) await visit(page, view, ["operation", await operation.getAttribute("href"), null]);
  at = "a pool";
  await page.goto(`${url}/claims`);
  const pool = page.locator("main a[href^='/pools/']").first();
  if (await pool.count()) await visit(page, view, ["pool", await pool.getAttribute("href"), null]);
  at = "a stack";
  await page.goto(`${url}/stacks`);
  const stack = page.locator("main th a[href^='/stacks/']").first();
  if (await stack.count()) await followStack(page, view, await stack.getAttribute("href"));
  at = "a rollout";
  await page.goto(`${url}/rollouts`);
  const rollout = page.locator("main a[href^='/rollouts/']").first();
  if (await rollout.count()) await followRollout(page, view, await rollout.getAttribute("href"));
  if (node) {
    at = "a step's log";
    await unfold(page);
    await shoot(page, `node-log-${view}`);
  }
  at = "an adoption";
  await adopt(page, view);
  at = "the stream";
  await page.goto(url);
  await page.locator("#live-mark[data-state=live]").waitFor();
  at = "an error";
  const missing = await page.goto(`${url}/nodes/no-such-node`);
  assert.equal(missing.status(), 404);
  await page.getByText("Look for the object in the list of nodes").waitFor();
  await shoot(page, `not-found-${view}`);
  await context.close();
}

// The halt of a running rollout is in sight without scrolling, on a phone too.
async function followRollout(page, view, path) {
  await visit(page, view, ["rollout", path, null]);
  const halt = page.getByRole("button", { name: "Halt", exact: true });
  if (!(await halt.count())) return;
  const box = await halt.boundingBox();
  const height = page.viewportSize().height;
  if (box.y + box.height > height) faults.push(`${view} ${path}: the halt is ${box.y} px down, of ${height}`);
}

// The filter of packages keeps its text, also without a match.
async function followStack(page, view, path) {
  await visit(page, view, ["stack", path, null]);
  await page.getByLabel("Name", { exact: true }).fill("no-such-package");
  await page.getByRole("button", { name: "Filter" }).click();
  await page.waitForURL(/package=no-such-package/);
  assert.equal(await page.getByLabel("Name", { exact: true }).inputValue(), "no-such-package");
  await visit(page, view, ["stack-filtered", `${path}?package=lib`, null]);
}

// A log unfolds inside its step, and stays unfolded when the page is fetched anew around it.
async function unfold(page) {
  await page.goto(`${url}/nodes/${node}`);
  const log = page.locator("details.log").first();
  if (!(await log.count())) return;
  await log.locator("summary").click();
  await log.locator(".l").first().waitFor();
  await page.evaluate(
    (limit) =>
      new Promise((resolve, reject) => {
        setTimeout(() => reject(new Error("the page is not fetched anew")), limit);
        document.addEventListener("htmx:afterSettle", (event) => event.target.id === "main" && resolve());
        htmx.trigger("#main", "muster:changed");
      }),
    LIMIT_MS,
  );
  assert.ok(await log.locator(".l").first().isVisible(), "the log was folded by a refresh");
}

// What was typed into a form stays in it when it is refused, with what is wrong beside it.
async function adopt(page, view) {
  await page.goto(`${url}/nodes?state=discovered`);
  const found = page.locator("main tbody a[href^='/nodes/']").first();
  if (!(await found.count())) return;
  await page.goto(url + (await found.getAttribute("href")));
  await page.locator("#act-adopt > summary").click();
  await page.locator("#act-adopt form").evaluate((form) => (form.noValidate = true));
  await page.getByLabel("Host key").fill("not a fingerprint");
  await page.getByRole("button", { name: "Show the plan" }).click();
  await page.locator("#wrong-host_key").waitFor();
  assert.equal(await page.getByLabel("Host key").inputValue(), "not a fingerprint");
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (wide > 0) faults.push(`${view} adopt: ${wide} px wider than the window`);
  await shoot(page, `adopt-${view}`);
}

// Without script: signing in, reading and filtering still work.
async function plain(browser) {
  const context = await browser.newContext({ javaScriptEnabled: false });
  context.setDefaultTimeout(LIMIT_MS);
  const page = await context.newPage();
  await signIn(page);
  await page.getByLabel("State").selectOption("available");
  await page.getByRole("button", { name: "Filter" }).click();
  await page.waitForURL(/state=available/);
  await context.close();
}

if (shots) await mkdir(shots, { recursive: true });
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  timeout: LIMIT_MS,
  args: [
    ...["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"],
    // A browser's own errands have no business in a test's network.
    ...["--disable-background-networking", "--disable-component-update", "--disable-sync"],
  ],
});
try {
  for (const view of views) await look(browser, view);
  await plain(browser);
} finally {
  await browser.close();
}
assert.deepEqual(faults, []);
console.log(`${pages.length} pages in ${views.length} views, and without script: no complaints`);

// Visitors: profiles of one Chromium, whose complaints are collected.

import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { after, afterEach, before } from 'node:test';
import { chromium } from 'playwright-core';
import { ALICE, Server } from './harness.mjs';
import { Website } from './website.mjs';

const artefacts = resolve(import.meta.dirname, '../artefacts');

let browser;
let contexts = [];
let complaints = [];

/** A Chromium that takes these servers' certificates for good. */
async function chromiumFor(servers, options) {
  await mkdir(artefacts, { recursive: true });
  return chromium.launch({
    ...options,
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: [
      '--headless=new',
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      `--ignore-certificate-errors-spki-list=${servers.map(({ spki }) => spki).join(',')}`,
    ],
  });
}

/** Starts the browser. It takes these servers' certificates for good. */
export async function launch(...servers) {
  browser = await chromiumFor(servers, {});
}

/** Does something in a browser that keeps whole pages to go back to, as people's browsers do and Playwright's does not. */
export async function withMemory(server, deed) {
  const remembering = await chromiumFor([server], { ignoreDefaultArgs: ['--disable-back-forward-cache'] });
  try {
    const context = await remembering.newContext({ locale: 'en-GB' });
    context.setDefaultTimeout(15_000);
    await deed(() => context.newPage());
  } finally {
    await remembering.close();
  }
}

/** Ends the browser. */
export async function quit() {
  await browser?.close();
}

/** A page in a browser profile of its own. */
export async function visitor(options = {}) {
  const context = await browser.newContext({ locale: 'en-GB', ...options });
  context.setDefaultTimeout(15_000);
  contexts.push(context);
  context.on('console', (message) => {
    const text = message.text();
    if (message.type() === 'error' && !/the server responded with a status of 4/.test(text)) complaints.push(text);
  });
  context.on('weberror', (error) => complaints.push(String(error.error())));
  context.on('response', (response) => {
    const kind = response.request().resourceType();
    if (response.status() >= 400 && ['stylesheet', 'script', 'image', 'font'].includes(kind)) {
      complaints.push(`${response.status()} ${response.url()}`);
    }
  });
  return context.newPage();
}

/** Closes all profiles. The browser complained about nothing while they were open. */
export async function dismiss() {
  for (const context of contexts) await context.close();
  const heard = complaints;
  contexts = [];
  complaints = [];
  assert.deepEqual(heard, [], 'the browser complained about nothing');
}

/** Keeps what the page looks like. */
export async function keep(page, name) {
  const path = resolve(artefacts, `${name}.png`);
  await mkdir(dirname(path), { recursive: true });
  await page.screenshot({ path, fullPage: true, animations: 'disabled' });
}

/** Types a name and a password. */
export async function signIn(page, password, name = ALICE) {
  await page.locator('input#username').fill(name);
  await page.locator('input#password').fill(password);
  await page.locator('button[type=submit]').click();
}

/**
 * The hooks of a file of tests: before them a server with Alice and the client `web` of a website, and the browser start;
 * after each test the browser has complained about nothing. The participants are members of the object that is returned.
 *
 * @param options what the server starts with, or a function that returns it, called when the tests begin
 * @param client further flags of the client
 */
export function scene(options = {}, client = []) {
  const participants = {};
  before(async () => {
    const server = await Server.start(typeof options === 'function' ? await options() : options);
    participants.server = server;
    participants.alice = await server.addAlice();
    const website = await Website.start();
    participants.website = website;
    await website.join(server, await server.addClient('web', website.redirectUri, '--name', 'Website', ...client));
    await launch(server);
  });
  after(async () => {
    await quit();
    await participants.website?.stop();
    await participants.server?.stop();
  });
  afterEach(dismiss);
  return participants;
}

/** What the website shows of the tokens it was given. */
export async function result(page) {
  return JSON.parse(await page.locator('#result').filter({ hasText: '{' }).textContent());
}

/** Nothing has to be scrolled sideways. */
export async function fitsTheScreen(page) {
  const [content, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
  assert.ok(content <= screen, `${page.url()}: ${content} px on a screen of ${screen} px`);
}

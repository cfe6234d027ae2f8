// The single-page application of the guide, word for word but for the issuer's address, in a real Chromium.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';
import { after, afterEach, before, describe, it } from 'node:test';
import { ALICE, Server } from './harness.mjs';
import { program } from './guide.mjs';
import { dismiss, launch, quit, signIn, visitor } from './visitor.mjs';

const LIBRARIES = ['oidc-client-ts', 'jwt-decode', 'idb-keyval'];

const PAGE = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Application</title><link rel="icon" href="data:,">
<script type="importmap">${JSON.stringify({ imports: Object.fromEntries(LIBRARIES.map((name) => [name, `/${name}.js`])) })}</script>
<button id="in">Sign in</button><button id="out">Sign out</button><pre id="result"></pre>
<script type="module">
import * as application from '/application.js';
window.application = application;
document.querySelector('#in').onclick = application.signIn;
document.querySelector('#out').onclick = application.signOut;
const token = await application.accessToken();
document.querySelector('#result').textContent = JSON.stringify({ token, problem: application.problem });
</script></html>`;

let server;
let alice;
let site;
let here;

before(async () => {
  // Each access token is about to end: each time that one is wanted is a refresh.
  server = await Server.start({ flags: ['--lifetimes-access-token', '50s'] });
  alice = await server.addAlice();
  const code = await program('sign-in-single-page-application.md', 'app.mjs');
  const files = new Map([
    ['/', ['text/html', PAGE]],
    ['/application.js', ['text/javascript', code.replace('https://id.example.com', server.issuer)]],
  ]);
  for (const name of LIBRARIES) {
    files.set(`/${name}.js`, ['text/javascript', await readFile(fileURLToPath(import.meta.resolve(name)))]);
  }
  site = createServer((request, response) => {
    const [type, body] = files.get(new URL(request.url, here).pathname) ?? [];
    response.writeHead(body ? 200 : 404, { 'content-type': type ?? 'text/plain' }).end(body);
  });
  await new Promise((done) => site.listen(0, '127.0.0.1', done));
  here = `http://localhost:${site.address().port}/`;
  await server.json('client', 'add', 'spa', '--public', '--redirect-uri', here, '--post-logout-redirect-uri', here);
  await launch(server);
});

after(async () => {
  await quit();
  site?.closeAllConnections();
  await new Promise((done) => site?.close(done) ?? done());
  await server?.stop();
});

afterEach(dismiss);

/** What the page shows once the browser is back. */
async function shown(page) {
  await page.waitForURL((url) => url.href === here);
  return JSON.parse(await page.locator('#result').filter({ hasText: '{' }).textContent());
}

/** Presses a button that leads away, so that what is shown next is what the page shows when the browser is back. */
async function leaveBy(page, button) {
  await page.locator('#result').evaluate((result) => result.replaceChildren());
  await page.locator(button).click();
}

async function begin() {
  const page = await visitor();
  await page.goto(here);
  assert.deepEqual(await shown(page), { token: null, problem: null });
  await leaveBy(page, '#in');
  await signIn(page, alice.password);
  return page;
}

describe('an application in the browser', () => {
  it('signs a person in, keeps that over a reload, and out', async () => {
    const page = await begin();
    const { token, problem } = await shown(page);
    assert.equal(problem, null);
    const claims = await server.fetch(`${server.issuer}/oauth2/userinfo`, { headers: { authorization: `Bearer ${token}` } });
    assert.equal((await claims.json()).email, ALICE);
    await page.reload();
    const again = await shown(page);
    assert.ok(again.token && again.token !== token, 'refreshed');
    await leaveBy(page, '#out');
    assert.deepEqual(await shown(page), { token: null, problem: null });
  });

  it('works on after a no', async () => {
    await server.command('client', 'update', 'spa', '--consent', 'require');
    const page = await begin();
    await page.locator('button[name=decision][value=deny]').click();
    assert.deepEqual(await shown(page), { token: null, problem: 'access_denied' });
    await page.reload();
    assert.deepEqual(await shown(page), { token: null, problem: null });
    await server.command('client', 'update', 'spa', '--consent', 'skip');
    await leaveBy(page, '#in');
    await page.locator('button[value=continue]').click();
    assert.ok((await shown(page)).token);
  });

  it('refreshes in one tab at a time', async () => {
    const page = await begin();
    await shown(page);
    const other = await page.context().newPage();
    await other.goto(here);
    await shown(other);
    const ask = (tab) =>
      tab.evaluate(async () => {
        const tokens = [];
        for (let round = 0; round < 10; round += 1) tokens.push(await window.application.accessToken());
        return tokens;
      });
    const tokens = (await Promise.all([ask(page), ask(other)])).flat();
    assert.ok(!tokens.includes(null), 'nobody was signed out');
    assert.equal(new Set(tokens).size, tokens.length);
    assert.doesNotMatch(server.log, /refresh_token_replayed/);
  });
});

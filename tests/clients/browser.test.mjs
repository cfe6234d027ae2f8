// The pages in a real Chromium.

import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { resolve } from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import { chromium } from 'playwright-core';
import { ALICE, Server } from './harness.mjs';
import { Website } from './website.mjs';

const artefacts = resolve(import.meta.dirname, '../artefacts');

let server;
let alice;
let website;
let browser;
let contexts = [];
let complaints = [];

async function launch(...servers) {
  return chromium.launch({
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

/** A browser profile of its own, whose complaints are collected. */
async function visitor(options = {}) {
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

async function keep(page, name) {
  await page.screenshot({ path: resolve(artefacts, `${name}.png`), fullPage: true });
}

async function signIn(page, password = alice.password) {
  await page.locator('input#username').fill(ALICE);
  await page.locator('input#password').fill(password);
  await page.locator('button[type=submit]').click();
}

/** What the website shows of the tokens it was given. */
async function result(page) {
  return JSON.parse(await page.locator('#result').filter({ hasText: '{' }).textContent());
}

async function fitsTheScreen(page) {
  const [content, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
  assert.ok(content <= screen, `${content} px on a screen of ${screen} px`);
}

before(async () => {
  await mkdir(artefacts, { recursive: true });
  server = await Server.start();
  alice = await server.addAlice();
  website = await Website.start();
  const clients = [
    ['web', '--name', 'Website', '--post-logout-redirect-uri', website.signedOut],
    ['second', '--name', 'Second site', '--post-logout-redirect-uri', website.signedOut],
    ['careful', '--name', 'Careful site', '--consent', 'require'],
  ];
  for (const [id, ...flags] of clients) await website.join(server, await server.addClient(id, website.redirectUri, ...flags));
  await server.addClient('spa', `${website.origin}/spa`, '--public');
  browser = await launch(server);
});

after(async () => {
  await browser?.close();
  await website?.stop();
  await server?.stop();
});

afterEach(async () => {
  for (const context of contexts) await context.close();
  const heard = complaints;
  contexts = [];
  complaints = [];
  assert.deepEqual(heard, [], 'the browser complained about nothing');
});

describe('signing in', () => {
  it('shows what was wrong, keeps the name, and goes on with the right password', async () => {
    const page = await visitor();
    await page.goto(website.start('web'));
    assert.match(await page.title(), /Sign in/);
    await keep(page, 'login');
    await signIn(page, 'not the password');
    await page.locator('[role=alert]').waitFor();
    await keep(page, 'login-wrong-password');
    assert.equal(await page.locator('input#username').inputValue(), ALICE);
    assert.equal(await page.locator('input#password').inputValue(), '');
    await page.locator('input#password:focus').waitFor();
    await page.locator('input#password').fill(alice.password);
    await page.locator('button[type=submit]').click();
    const { claims, token } = await result(page);
    assert.equal(claims.sub, alice.uuid);
    assert.equal(token.email, ALICE);
    await keep(page, 'relying-party');
  });

  it('needs nothing but the keyboard', async () => {
    const page = await visitor();
    await page.goto(website.start('web'));
    await page.locator('input#username:focus').waitFor();
    await page.keyboard.type(ALICE);
    await page.keyboard.press('Tab');
    await page.keyboard.type(alice.password);
    await page.keyboard.press('Enter');
    assert.equal((await result(page)).claims.sub, alice.uuid);
  });

  it('is asked for once for two sites', async () => {
    const page = await visitor();
    await page.goto(website.start('web'));
    await signIn(page);
    const first = await result(page);
    await page.goto(website.start('second'));
    const second = await result(page);
    assert.equal(second.client_id, 'second');
    assert.ok(first.claims.sid);
    assert.equal(second.claims.sid, first.claims.sid);
  });

  it('posts the response to the client under the content security policy', async () => {
    const page = await visitor();
    await page.goto(website.start('web', { response_mode: 'form_post' }));
    await signIn(page);
    const { method, claims } = await result(page);
    assert.equal(method, 'POST');
    assert.equal(claims.sub, alice.uuid);
  });

  it('works with script turned off, in both response modes', async () => {
    const page = await visitor({ javaScriptEnabled: false });
    await page.goto(website.start('web'));
    await signIn(page);
    assert.equal((await result(page)).method, 'GET');
    await page.goto(website.start('web', { response_mode: 'form_post' }));
    await keep(page, 'form-post-without-script');
    await page.locator('button[type=submit]').click();
    assert.equal((await result(page)).method, 'POST');
  });

  it('fits a phone, in the light and in the dark', async () => {
    for (const colorScheme of ['light', 'dark']) {
      const page = await visitor({ viewport: { width: 320, height: 568 }, colorScheme });
      await page.goto(website.start('careful'));
      await fitsTheScreen(page);
      await keep(page, `login-phone-${colorScheme}`);
      await signIn(page);
      await page.locator('button[name=decision][value=allow]').waitFor();
      await fitsTheScreen(page);
      await keep(page, `consent-phone-${colorScheme}`);
    }
  });

  it('lets an application in the browser get, use, refresh and revoke tokens by itself', async () => {
    const page = await visitor();
    const settings = JSON.stringify({ issuer: server.issuer, client_id: 'spa' });
    await page.goto(`${website.origin}/spa?${new URLSearchParams({ settings })}`);
    await signIn(page);
    assert.deepEqual(await result(page), { sub: alice.uuid, email: ALICE, refreshed: true });
  });

  it('says on a page of its own that a client is not known', async () => {
    const page = await visitor();
    const answer = await page.goto(`${server.issuer}/oauth2/authorize?client_id=nobody&response_type=code`);
    assert.equal(answer.status(), 400);
    assert.match(await page.textContent('body'), /Request error/);
    await keep(page, 'error');
  });
});

describe('consent', () => {
  it('is denied, then allowed, then remembered', async () => {
    const page = await visitor();
    await page.goto(website.start('careful'));
    await signIn(page);
    await page.locator('button[name=decision][value=deny]').waitFor();
    assert.match(await page.textContent('body'), /Careful site/);
    await keep(page, 'consent');
    await page.locator('button[name=decision][value=deny]').click();
    await page.locator('#error').waitFor();
    assert.equal(await page.textContent('#error'), 'access_denied');
    await page.goto(website.start('careful'));
    await page.locator('button[name=decision][value=allow]').click();
    assert.equal((await result(page)).claims.sub, alice.uuid);
    await page.goto(website.start('careful'));
    assert.equal((await result(page)).client_id, 'careful');
  });
});

describe('signing out', () => {
  it('asks first when no client vouches for it, and then needs a new sign-in', async () => {
    const page = await visitor();
    await page.goto(website.start('web'));
    await signIn(page);
    await page.locator('#plain').click();
    await page.locator('button[name=decision][value=logout]').waitFor();
    await keep(page, 'logout-confirm');
    await page.locator('button[name=decision][value=logout]').click();
    await page.getByText('You are signed out').first().waitFor();
    await keep(page, 'logged-out');
    await page.goto(website.start('web'));
    await page.locator('input#password').waitFor();
  });

  it('leads back to the client that asked for it', async () => {
    const page = await visitor();
    await page.goto(website.start('second'));
    await signIn(page);
    await page.locator('#out').click();
    const confirm = page.locator('button[name=decision][value=logout]');
    await confirm.or(page.locator('#state')).first().waitFor();
    if (await confirm.isVisible()) await confirm.click();
    assert.equal(await page.textContent('#state'), 'bye');
  });
});

describe('the development server', () => {
  it('signs its example user in and shows the tokens decoded', async () => {
    const dev = await Server.start({ dev: true });
    const own = browser;
    try {
      browser = await launch(dev);
      const page = await visitor();
      await page.goto(dev.issuer);
      await keep(page, 'dev-home');
      const [, username, password] = /(\S+@\S+)[^\n]*?password:? +(\S+)/i.exec(dev.log) ?? [];
      assert.ok(password, `it prints how to sign in:\n${dev.log}`);
      await page.locator('a.button').first().click();
      await page.locator('input#username').fill(username);
      await page.locator('input#password').fill(password);
      await page.locator('button[type=submit]').click();
      await page.getByText('at+jwt').first().waitFor();
      const text = await page.textContent('body');
      for (const shown of ['access_token', 'id_token', 'refresh_token', '"account_id"', dev.issuer]) {
        assert.ok(text.includes(shown), shown);
      }
      await keep(page, 'dev-tokens');
    } finally {
      await browser.close();
      browser = own;
      await dev.stop();
    }
  });
});

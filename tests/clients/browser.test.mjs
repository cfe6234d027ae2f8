// The pages in a real Chromium.

import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { ALICE, Server } from './harness.mjs';
import { dismiss, fitsTheScreen, keep, launch, quit, result, signIn, visitor } from './visitor.mjs';
import { Website } from './website.mjs';

let server;
let dev;
let alice;
let website;

before(async () => {
  [server, dev] = await Promise.all([Server.start(), Server.start({ dev: true })]);
  alice = await server.addAlice();
  website = await Website.start();
  const clients = [
    ['web', '--name', 'Website', '--post-logout-redirect-uri', website.signedOut],
    ['second', '--name', 'Second site', '--post-logout-redirect-uri', website.signedOut],
    ['careful', '--name', 'Careful site', '--consent', 'require'],
  ];
  for (const [id, ...flags] of clients) await website.join(server, await server.addClient(id, website.redirectUri, ...flags));
  await server.addClient('spa', `${website.origin}/spa`, '--public');
  await launch(server, dev);
});

after(async () => {
  await quit();
  await website?.stop();
  await dev?.stop();
  await server?.stop();
});

afterEach(dismiss);

describe('the connection', () => {
  it('is agreed on by a key exchange that resists quantum computers', async () => {
    const page = await visitor();
    const session = await page.context().newCDPSession(page);
    await session.send('Network.enable');
    const received = new Promise((resolve) => session.once('Network.responseReceived', resolve));
    await page.goto(website.start('web'));
    assert.equal((await received).response.securityDetails.keyExchangeGroup, 'X25519MLKEM768');
  });
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
    await signIn(page, alice.password);
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
    await signIn(page, alice.password);
    const { method, claims } = await result(page);
    assert.equal(method, 'POST');
    assert.equal(claims.sub, alice.uuid);
  });

  it('works with script turned off, in both response modes', async () => {
    const page = await visitor({ javaScriptEnabled: false });
    await page.goto(website.start('web'));
    await signIn(page, alice.password);
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
      await signIn(page, alice.password);
      await page.locator('button[name=decision][value=allow]').waitFor();
      await fitsTheScreen(page);
      await keep(page, `consent-phone-${colorScheme}`);
    }
  });

  it('lets an application in the browser get, use, refresh and revoke tokens by itself', async () => {
    const page = await visitor();
    const settings = JSON.stringify({ issuer: server.issuer, client_id: 'spa' });
    await page.goto(`${website.origin}/spa?${new URLSearchParams({ settings })}`);
    await signIn(page, alice.password);
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
    await signIn(page, alice.password);
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
    await signIn(page, alice.password);
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
    await signIn(page, alice.password);
    await page.locator('#out').click();
    const confirm = page.locator('button[name=decision][value=logout]');
    await confirm.or(page.locator('#state')).first().waitFor();
    if (await confirm.isVisible()) await confirm.click();
    assert.equal(await page.textContent('#state'), 'bye');
  });
});

describe('the development server', () => {
  it('signs its example user in and shows the tokens decoded', async () => {
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
    for (const shown of ['Access token', 'ID token', 'Refresh token', 'account_id', dev.issuer]) {
      assert.ok(text.includes(shown), shown);
    }
    await keep(page, 'dev-tokens');
  });
});

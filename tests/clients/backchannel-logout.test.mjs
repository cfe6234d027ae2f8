// Sessions end at applications (OpenID Connect Back-Channel Logout 1.0): at Apache httpd with mod_auth_openidc, and at
// receivers that read the logout tokens with jose. The browser does not visit the application.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:https';
import { text } from 'node:stream/consumers';
import { after, afterEach, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { jwtVerify } from 'jose';
import { Browser } from './browser.mjs';
import { ALICE, freePort, Server } from './harness.mjs';
import { Httpd } from './httpd.mjs';
import { answers, Programs } from './programs.mjs';
import { RelyingParty } from './relying-party.mjs';
import { dismiss, launch, quit, signIn, visitor } from './visitor.mjs';

const EVENT = 'http://schemas.openid.net/event/backchannel-logout';
const CALLBACK = 'https://app.example/cb';

let [server, alice, httpd, receiver, programs] = [];
/** The forms that the receiver got. */
const posted = [];

before(async () => {
  httpd = await Httpd.prepare();
  receiver = createServer({ key: httpd.key, cert: httpd.cert }, async (request, response) => {
    posted.push({ path: request.url, type: request.headers['content-type'], body: await text(request) });
    response.writeHead(204).end();
  });
  await once(receiver.listen(0, '127.0.0.1'), 'listening');
  server = await Server.start({ flags: ['--outbound-ca-file', httpd.caFile, '--outbound-allow', '127.0.0.0/8'] });
  alice = await server.addAlice();
  await httpd.start(server, await server.addClient('httpd', httpd.redirectUri, '--backchannel-logout-uri', httpd.logoutUri));
  programs = await Programs.open(server);
  await launch(server, httpd);
});

after(async () => {
  await quit();
  await programs?.close();
  await server?.stop();
  receiver?.closeAllConnections();
  receiver?.close();
  await httpd?.stop();
});

afterEach(dismiss);

/** Waits until something is so, at most a minute. */
async function until(describe, isSo) {
  const deadline = Date.now() + 60_000;
  while (!(await isSo())) {
    assert.ok(Date.now() < deadline, `${await describe()}\n${server.log.slice(-4000)}`);
    await sleep(50);
  }
}

/** An application whose logout tokens the receiver gets. */
async function addReceiver(id) {
  const uri = `https://127.0.0.1:${receiver.address().port}/${id}`;
  return RelyingParty.discover(server, await server.addClient(id, CALLBACK, '--backchannel-logout-uri', uri));
}

/** The one form that the receiver has for an application. */
async function formFor(id) {
  const forms = () => posted.filter(({ path }) => path === `/${id}`);
  await until(() => `${id} got ${forms().length} forms`, () => forms().length > 0);
  assert.equal(forms().length, 1);
  assert.equal(forms()[0].type, 'application/x-www-form-urlencoded');
  return new URLSearchParams(forms()[0].body);
}

/** Verifies a logout token as section 2.6 says. */
const verify = (party, token) =>
  jwtVerify(token, party.jwks, {
    issuer: server.issuer,
    audience: party.client.client_id,
    typ: 'logout+jwt',
    algorithms: ['RS256'],
    requiredClaims: ['sub', 'sid', 'iat', 'exp', 'jti', 'events'],
  });

const signOut = async (browser) => browser.decide(await browser.open(`${server.issuer}/oauth2/logout`), 'logout');

describe('a logout token', () => {
  it('is named by the metadata', async () => {
    const metadata = (await addReceiver('metadata')).config.serverMetadata();
    assert.deepEqual([metadata.backchannel_logout_supported, metadata.backchannel_logout_session_supported], [true, true]);
  });

  it('names the session that ended, to each application of it', async () => {
    const [one, two] = [await addReceiver('one'), await addReceiver('two')];
    const browser = new Browser(server);
    const first = await one.signIn(browser, { email: ALICE, password: alice.password });
    const second = await two.signIn(browser);
    assert.equal(first.claims().sid, second.claims().sid);
    const elsewhere = await one.signIn(new Browser(server), { email: ALICE, password: alice.password });
    assert.notEqual(elsewhere.claims().sid, first.claims().sid);
    await signOut(browser);
    const identifiers = new Set();
    for (const party of [one, two]) {
      const form = await formFor(party.client.client_id);
      assert.deepEqual([...form.keys()], ['logout_token']);
      const { payload } = await verify(party, form.get('logout_token'));
      assert.deepEqual([payload.sub, payload.sid], [alice.uuid, first.claims().sid]);
      assert.deepEqual(payload.events, { [EVENT]: {} });
      assert.equal(payload.nonce, undefined);
      identifiers.add(payload.jti);
    }
    assert.equal(identifiers.size, 2);
  });

  it('is taken by the program of the guide, and only for its application', async () => {
    const port = await freePort();
    const adapt = (code) => code.replace('listen(3000)', `listen(${port})`);
    const program = await programs.start('sign-out-everywhere.md', 'receiver.mjs', { adapt });
    await answers(program, `http://localhost:${port}/`);
    const [web, other] = [await addReceiver('web'), await addReceiver('other')];
    const browser = new Browser(server);
    await web.signIn(browser, { email: ALICE, password: alice.password });
    await other.signIn(browser);
    await signOut(browser);
    const statusOf = async (body) => (await fetch(`http://localhost:${port}/backchannel-logout`, { method: 'POST', body })).status;
    assert.equal(await statusOf(await formFor('web')), 204);
    assert.equal(await statusOf(await formFor('other')), 400);
    assert.equal(await statusOf(new URLSearchParams({ logout_token: 'x' })), 400);
  });
});

describe('Apache with mod_auth_openidc', () => {
  /** Signs in by a browser of its own. */
  async function signedIn() {
    const page = await visitor();
    await page.goto(`${httpd.origin}/index.html`);
    await signIn(page, alice.password);
    await page.waitForURL(`${httpd.origin}/index.html`);
    assert.equal(await page.locator('#sub').textContent(), alice.uuid);
    return page;
  }

  /** What Apache answers to this browser: 200 in a session, else 401, because it is no navigation. */
  async function statusFor(page) {
    const cookies = await page.context().cookies(httpd.origin);
    const header = cookies.map(({ name, value }) => `${name}=${value}`).join('; ');
    const answer = await httpd.fetch(`${httpd.origin}/index.html`, { headers: { cookie: header } });
    await answer.arrayBuffer();
    return answer.status;
  }

  const untilSignedOut = (page) => until(() => httpd.log(), async () => (await statusFor(page)) === 401);

  it('ends the session of the browser that signs out, and no other', async () => {
    const [page, other] = [await signedIn(), await signedIn()];
    assert.deepEqual([await statusFor(page), await statusFor(other)], [200, 200]);
    await page.goto(`${server.issuer}/oauth2/logout`);
    await page.locator('button[name=decision][value=logout]').click();
    await untilSignedOut(page);
    assert.equal(await statusFor(other), 200);
    await page.goto(`${httpd.origin}/index.html`);
    await page.locator('input#password').waitFor();
  });

  it('ends the session that the operator ends', async () => {
    const [page, other] = [await signedIn(), await signedIn()];
    await server.json('session', 'revoke', await page.locator('#sid').textContent(), '--yes');
    await untilSignedOut(page);
    assert.equal(await statusFor(other), 200);
    await server.json('user', 'disable', ALICE);
    await untilSignedOut(other);
    await server.json('user', 'enable', ALICE);
  });
});

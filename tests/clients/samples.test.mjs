// The programs of the guide sign a person in, word for word but for addresses.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { get } from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import { Secret, TOTP } from 'otpauth';
import { Browser, Callback } from './browser.mjs';
import { alice, enter, leave, server } from './cast.mjs';
import { ALICE, freePort } from './harness.mjs';
import { answers, Programs } from './programs.mjs';

let programs;

before(async () => {
  await enter();
  programs = await Programs.open(server);
});

after(async () => {
  await programs?.close();
  await leave();
});

describe('a server', () => {
  let site;

  /** Asks the application, with its cookie; a path is sent as it is. */
  async function ask(path, cookie) {
    const [answer] = await once(get(site, { path, headers: cookie ? { cookie } : {} }), 'response');
    const given = answer.headers['set-cookie']?.[0].split(';')[0];
    return { status: answer.statusCode, location: answer.headers.location, cookie: given, text: await text(answer) };
  }

  /** Begins a sign-in there, and signs Alice in here. */
  async function begin() {
    const begun = await ask('/login');
    assert.equal(begun.status, 303);
    const browser = new Browser(server);
    const callback = await browser.signIn(await browser.open(begun.location), ALICE, alice.password);
    assert.ok(callback instanceof Callback, callback.text);
    return { cookie: begun.cookie, path: `${callback.url.pathname}${callback.url.search}` };
  }

  before(async () => {
    const port = await freePort();
    site = `http://localhost:${port}`;
    const there = (line) => line.replaceAll('http://localhost:3000', site).replaceAll('listen(3000,', `listen(${port},`);
    const client = await server.json('client', 'add', 'sample', '--redirect-uri', `${site}/callback`);
    const program = await programs.start('sign-in-web-application.md', 'server.mjs', {
      adapt: (code) => there(code).replaceAll("'web'", "'sample'"),
      environment: { CLIENT_SECRET: client.client_secret },
    });
    await answers(program, site);
  });

  it('signs a person in', async () => {
    const { cookie, path } = await begin();
    const done = await ask(path, cookie);
    assert.deepEqual([done.status, done.location], [303, '/']);
    assert.notEqual(done.cookie, cookie);
    assert.equal(JSON.parse((await ask('/', done.cookie)).text).email, ALICE);
    assert.match((await ask('/', cookie)).text, /Sign in/, 'the cookie of before is of no use');
  });

  it('signs nobody in by an answer to another browser', async () => {
    const other = await begin();
    const own = await begin();
    const signedIn = await ask(own.path, own.cookie);
    const asking = await ask('/login');
    for (const cookie of [undefined, 'app=unknown', signedIn.cookie, asking.cookie]) {
      const refused = await ask(other.path, cookie);
      assert.deepEqual([refused.status, refused.cookie], [400, undefined], cookie);
    }
    assert.equal((await ask(other.path, other.cookie)).status, 303, 'whom it was for');
  });

  it('signs nobody in by an answer that nobody asked for', async () => {
    const address = new URL(`${server.issuer}/oauth2/authorize`);
    address.search = new URLSearchParams({
      client_id: 'sample',
      response_type: 'code',
      redirect_uri: `${site}/callback`,
      scope: 'openid',
    });
    const refusal = await new Browser(server).open(address);
    assert.equal(refusal.parameters.get('error'), 'invalid_request', 'without PKCE no code is issued');
    await server.command('client', 'update', 'sample', '--pkce', 'optional');
    const browser = new Browser(server);
    const { url } = await browser.signIn(await browser.open(address), ALICE, alice.password);
    assert.ok(url.searchParams.get('code'));
    for (const cookie of [undefined, 'app=unknown', (await ask('/login')).cookie]) {
      const refused = await ask(`${url.pathname}${url.search}`, cookie);
      assert.deepEqual([refused.status, refused.cookie], [400, undefined], cookie);
    }
    await server.command('client', 'update', 'sample', '--pkce', 'required');
  });

  it('goes on after a request that makes no sense', async () => {
    for (const path of ['//', '/callback?code=1&state=2', '/callback?error=access_denied']) {
      assert.equal((await ask(path)).status, 400, path);
    }
    assert.equal((await ask('/')).status, 200);
  });
});

describe("a program on the user's machine", () => {
  it('signs a person in and ends', async () => {
    await server.json('client', 'add', 'cli', '--public', '--redirect-uri', 'http://127.0.0.1/callback');
    const program = await programs.start('sign-in-native-application.md', 'cli.mjs');
    let address;
    for await (const line of createInterface(program.stdout)) {
      address = line;
      if (line.startsWith('https:')) break;
    }
    const browser = new Browser(server);
    const callback = await browser.signIn(await browser.open(address), ALICE, alice.password);
    assert.ok(callback instanceof Callback, callback.text);
    const ended = once(program, 'exit');
    const answer = await fetch(callback.url);
    assert.equal(await answer.text(), 'Go back to the terminal.');
    assert.deepEqual(await ended, [0, null]);
  });
});

describe('an API that asks for a stronger sign-in', () => {
  const SEED = 'a seed from elsewhere';
  const page = 'ask-for-a-stronger-sign-in.md';
  const app = new TOTP({ secret: new Secret({ buffer: new TextEncoder().encode(SEED).buffer }) });
  const used = new Set();
  let site;
  let api;

  /** Asks the application, and follows it to the service. Ends at a page of the service or at the answer of the API. */
  async function ask(browser, path, cookie) {
    for (let hops = 0; hops < 5; hops += 1) {
      const answer = await fetch(`${site}${path}`, { redirect: 'manual', headers: cookie ? { cookie } : {} });
      cookie = answer.headers.get('set-cookie')?.split(';')[0] ?? cookie;
      if (answer.status !== 303) return { status: answer.status, text: await answer.text(), cookie, hops };
      const location = new URL(answer.headers.get('location'), site);
      if (location.origin === site) {
        path = location.pathname;
        continue;
      }
      const shown = await browser.open(location);
      if (!(shown instanceof Callback)) return { shown, location, cookie, hops };
      path = `${shown.url.pathname}${shown.url.search}`;
    }
    throw new Error('the application goes in circles');
  }

  /** Goes on where the service was done. */
  const after = (browser, callback, cookie) => {
    assert.ok(callback instanceof Callback, callback.text);
    return ask(browser, `${callback.url.pathname}${callback.url.search}`, cookie);
  };

  /** Types the code that the application shows. Each works once. */
  async function typeCode(browser, shown) {
    assert.equal(shown.path, '/second-factor');
    while (used.has(app.generate())) await new Promise((resolve) => setTimeout(resolve, 500));
    const code = app.generate();
    used.add(code);
    const form = shown.forms.find((candidate) => candidate.field('code'));
    form.field('code').value = code;
    return browser.submit(shown, form);
  }

  before(async () => {
    const [sitePort, apiPort] = [await freePort(), await freePort()];
    site = `http://localhost:${sitePort}`;
    api = `http://localhost:${apiPort}`;
    const there = (code) =>
      code
        .replaceAll('http://localhost:3000', site)
        .replaceAll('listen(3000,', `listen(${sitePort},`)
        .replaceAll('http://localhost:8080', api)
        .replaceAll('listen(8080', `listen(${apiPort}`)
        .replaceAll('{ maxAge: 300 } }', "{ maxAge: 300 }, '/never': { maxAge: 0 } }");
    const bank = await server.json('client', 'add', 'bank', '--redirect-uri', `${site}/callback`);
    await answers(await programs.start(page, 'api.mjs', { adapt: there }), api);
    const environment = { CLIENT_SECRET: bank.client_secret };
    await answers(await programs.start(page, 'app.mjs', { adapt: there, environment }), `${site}/callback`);
  });

  it('refuses without a word about the sign-in where no token is, and names what a token lacks', async () => {
    const bare = await fetch(`${api}/transfer`);
    assert.deepEqual([bare.status, bare.headers.get('www-authenticate')], [401, 'Bearer']);
    const wrong = await fetch(`${api}/transfer`, { headers: { authorization: 'Bearer x' } });
    assert.equal(wrong.headers.get('www-authenticate'), 'Bearer error="invalid_token"');
    assert.equal((await fetch(`${api}/constructor`)).status, 404);
  });

  it('sends the user to sign in again, and not in circles', async () => {
    const browser = new Browser(server);
    const first = await ask(browser, '/balance');
    const balance = await after(browser, await browser.signIn(first.shown, ALICE, alice.password), first.cookie);
    const asked = await ask(browser, '/never', balance.cookie);
    assert.equal(asked.location.searchParams.get('max_age'), '0');
    assert.equal(asked.location.searchParams.get('acr_values'), null);
    const refused = await after(browser, await browser.signIn(asked.shown, ALICE, alice.password), asked.cookie);
    assert.equal(refused.status, 401);
  });

  it('is called in the end, once the user has a second factor and answers it', async () => {
    const browser = new Browser(server);
    const first = await ask(browser, '/balance');
    const balance = await after(browser, await browser.signIn(first.shown, ALICE, alice.password), first.cookie);
    assert.deepEqual(JSON.parse(balance.text), { done: '/balance', acr: '1' });
    const unmet = await ask(browser, '/transfer', balance.cookie);
    assert.equal(unmet.status, 400, 'the user has no second factor');

    const users = join(programs.folder, 'users.jsonl');
    const credentialData = JSON.stringify({ subType: 'totp', digits: 6, period: 30, algorithm: 'HmacSHA1' });
    const totp = [{ keycloak: { secretData: JSON.stringify({ value: SEED }), credentialData } }];
    const { uuid } = await server.json('user', 'show', ALICE);
    await writeFile(users, JSON.stringify({ uuid, email: ALICE, totp }));
    const report = await server.json('user', 'import', users, '--existing', 'update');
    assert.deepEqual([report.updated, report.authenticator_apps], [1, 1]);

    const again = await ask(browser, '/balance', unmet.cookie);
    const asked = await ask(browser, '/transfer', again.cookie);
    assert.equal(asked.location.searchParams.get('acr_values'), '2');
    assert.equal(asked.location.searchParams.get('max_age'), null);
    const done = await after(browser, await typeCode(browser, asked.shown), asked.cookie);
    assert.deepEqual(JSON.parse(done.text), { done: '/transfer', acr: '2' });
    const without = await ask(browser, '/address', done.cookie);
    assert.deepEqual([without.hops, JSON.parse(without.text).done], [0, '/address'], 'the sign-in is recent');
    await server.command('user', 'reset', ALICE, '--factors');
  });
});

// The programs of the guide sign a person in, word for word but for addresses.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { get } from 'node:http';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
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

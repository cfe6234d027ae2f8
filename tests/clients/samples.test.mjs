// The programs of the guide sign a person in, word for word but for addresses.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Browser, Callback } from './browser.mjs';
import { alice, enter, leave, server } from './cast.mjs';
import { program as programOf } from './guide.mjs';
import { ALICE, freePort } from './harness.mjs';

let folder;
const programs = [];

before(async () => {
  await enter();
  folder = await mkdtemp(join(tmpdir(), 'idsvc-samples-'));
  await symlink(join(import.meta.dirname, 'node_modules'), join(folder, 'node_modules'));
  await writeFile(join(folder, 'ca.pem'), server.ca);
});

after(async () => {
  for (const { program, ended } of programs) {
    program.kill('SIGKILL');
    await ended;
  }
  await leave();
  if (folder) await rm(folder, { recursive: true, force: true });
});

/** Runs a program that trusts the server's certificate. */
async function run(name, code, environment = {}) {
  const file = join(folder, `${name}.mjs`);
  await writeFile(file, code.replaceAll('https://id.example.com', server.issuer));
  const program = spawn(process.execPath, [file], {
    env: { PATH: process.env.PATH, NODE_EXTRA_CA_CERTS: join(folder, 'ca.pem'), ...environment },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  programs.push({ program, ended: once(program, 'close') });
  return program;
}

describe('a server', () => {
  let site;
  let program;

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
    const code = await programOf('sign-in-web-application.md', 'server.mjs');
    const port = await freePort();
    site = `http://localhost:${port}`;
    const there = (line) => line.replaceAll('http://localhost:3000', site).replaceAll('listen(3000,', `listen(${port},`);
    const client = await server.json('client', 'add', 'sample', '--redirect-uri', `${site}/callback`);
    program = await run('server', there(code).replaceAll("'web'", "'sample'"), { CLIENT_SECRET: client.client_secret });
    const deadline = Date.now() + 60_000;
    for (;;) {
      assert.equal(program.exitCode, null, 'it runs');
      assert.ok(Date.now() < deadline, 'it listens within a minute');
      if (await ask('/').then(() => true, () => false)) break;
      await sleep(50);
    }
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
    const code = await programOf('sign-in-native-application.md', 'cli.mjs');
    await server.json('client', 'add', 'cli', '--public', '--redirect-uri', 'http://127.0.0.1/callback');
    const program = await run('program', code);
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

// Devices without a browser sign people in (RFC 8628), by openid-client, oidc-agent and the program of the guide.
// The person decides in a real Chromium.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, afterEach, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import * as oidc from 'openid-client';
import { refused } from './cast.mjs';
import { program } from './guide.mjs';
import { Server } from './harness.mjs';
import { RelyingParty } from './relying-party.mjs';
import { dismiss, fitsTheScreen, keep, launch, quit, signIn, visitor } from './visitor.mjs';

const GRANT = 'urn:ietf:params:oauth:grant-type:device_code';
const GRANTS = ['--grant', 'device_code', '--grant', 'refresh_token'];
const PHONE = { viewport: { width: 360, height: 640 } };

let [server, alice, tv, folder] = [];
const started = [];

before(async () => {
  server = await Server.start();
  alice = await server.addAlice();
  tv = await RelyingParty.discover(server, await server.json('client', 'add', 'tv', '--public', '--name', 'Acme Television', ...GRANTS));
  folder = await mkdtemp(join(tmpdir(), 'idsvc-device-'));
  await writeFile(join(folder, 'ca.pem'), server.ca);
  await launch(server);
});

after(async () => {
  for (const { child, ended } of started) {
    end(child);
    await ended;
  }
  await quit();
  await server?.stop();
  await rm(folder, { recursive: true, force: true });
});

afterEach(dismiss);

/** Ends a program and what it started, all of which are in its process group. */
function end({ pid }) {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch (error) {
    if (error.code !== 'ESRCH') throw error;
  }
}

/** Starts a program that trusts the certificate of the service and keeps its files in the folder. */
function start(name, words, environment = {}) {
  const child = spawn(name, words, {
    cwd: folder,
    detached: true,
    env: { PATH: process.env.PATH, HOME: folder, CURL_CA_BUNDLE: join(folder, 'ca.pem'), ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = once(child, 'close');
  started.push({ child, ended });
  return { child, ended };
}

/** Runs a program to its end, and returns what it prints. */
async function run(name, words, environment) {
  const { child, ended } = start(name, words, environment);
  const [output, errors, [code]] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
  assert.equal(code, 0, `${name} ${words.join(' ')}: ${output}${errors}`);
  return output;
}

/** Waits until a program has printed a text, and returns the match. */
async function printed({ child }, pattern) {
  let all = '';
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (all += text));
  for (;;) {
    const found = pattern.exec(all);
    if (found) return found;
    assert.equal(child.exitCode, null, `it runs: ${all}`);
    await Promise.race([once(child.stdout, 'data'), once(child.stderr, 'data'), once(child, 'close')]);
  }
}

/** Types a code as a person does, signs in, and stops at the decision. */
async function atTheDecision(code, address = `${server.issuer}/device`) {
  const page = await visitor(PHONE);
  await page.goto(address);
  if (address.includes('?')) assert.equal(await page.locator('input#user_code').inputValue(), code);
  else await page.locator('input#user_code').fill(code.toLowerCase().replace('-', ' '));
  await page.locator('button[type=submit]').click();
  await signIn(page, alice.password);
  await page.locator('.user-code', { hasText: code }).waitFor();
  return page;
}

/** Decides, and waits until the page says so. */
async function decide(page, decision) {
  await page.locator(`button[name=decision][value=${decision}]`).click();
  await page.locator('button[name=decision]').waitFor({ state: 'detached' });
}

describe('a device with openid-client', () => {
  const ask = (scope = 'openid profile email offline_access') => oidc.initiateDeviceAuthorization(tv.config, { scope });
  const poll = (codes) => oidc.pollDeviceAuthorizationGrant(tv.config, codes, undefined, { signal: AbortSignal.timeout(60_000) });
  /** One poll, without the patience of the library. */
  const pollOnce = ({ device_code }) => oidc.genericGrantRequest(tv.config, GRANT, { device_code });

  it('finds the endpoint and the grant in the metadata', () => {
    const metadata = tv.config.serverMetadata();
    assert.equal(metadata.device_authorization_endpoint, `${server.issuer}/oauth2/device_authorization`);
    assert.ok(metadata.grant_types_supported.includes(GRANT));
  });

  it('gets tokens once a person has allowed it', async () => {
    const codes = await ask();
    assert.equal(codes.verification_uri, `${server.issuer}/device`);
    const polled = poll(codes);
    const page = await atTheDecision(codes.user_code);
    await page.getByText('Acme Television').first().waitFor();
    await fitsTheScreen(page);
    await keep(page, 'device-decision');
    await decide(page, 'allow');
    await keep(page, 'device-allowed');
    const tokens = await polled;
    assert.equal(tokens.claims().sub, alice.uuid);
    const { payload } = await tv.verify(tokens.access_token);
    assert.deepEqual([payload.sub, payload.client_id], [alice.uuid, 'tv']);
    assert.equal((await tv.userinfo(tokens)).email, alice.email);
    assert.equal((await tv.refresh(tokens.refresh_token)).uuid, alice.uuid);
    await assert.rejects(pollOnce(codes), refused('invalid_grant', 400));
    await assert.rejects(tv.refresh(tokens.refresh_token), refused('invalid_grant', 400));
  });

  it('is told of a denial, and the address with the code only fills it in', async () => {
    const codes = await ask('openid');
    await assert.rejects(pollOnce(codes), refused('authorization_pending', 400));
    await assert.rejects(pollOnce(codes), refused('slow_down', 400));
    const page = await atTheDecision(codes.user_code, codes.verification_uri_complete);
    await decide(page, 'deny');
    await keep(page, 'device-denied');
    await assert.rejects(pollOnce(codes), refused('access_denied', 400));
    await assert.rejects(oidc.initiateDeviceAuthorization(tv.config, { scope: 'services:all' }), refused('invalid_scope', 400));
  });
});

it('oidc-agent gets a token and refreshes it', { timeout: 120_000 }, async () => {
  const scopes = ['openid', 'email', 'offline_access'];
  const client = await server.json('client', 'add', 'agent', ...GRANTS, ...scopes.flatMap((scope) => ['--scope', scope]));
  const [socket, accounts] = ['agent.sock', 'accounts'].map((name) => join(folder, name));
  const environment = { OIDC_SOCK: socket, OIDC_CONFIG_DIR: accounts, OIDC_ENCRYPTION_PW: 'x', TMPDIR: folder };
  await mkdir(accounts);
  const agent = start('oidc-agent', ['--console', `--socket-path=${socket}`], environment);
  while (!existsSync(socket)) {
    assert.equal(agent.child.exitCode, null, 'it runs');
    await sleep(50);
  }
  const registered = ['--client-id=agent', `--client-secret=${client.client_secret}`, `--issuer=${server.issuer}`];
  const alone = ['--pw-env', '--prompt=none', '--no-url-call', `--cert-path=${join(folder, 'ca.pem')}`];
  const words = ['--flow=device', ...registered, `--scope=${scopes.join(' ')}`, ...alone, 'phone'];
  const generates = start('oidc-gen', words, environment);
  const [, code] = await printed(generates, /enter the code: (\S+)/);
  await decide(await atTheDecision(code), 'allow');
  assert.deepEqual(await generates.ended, [0, null]);
  const token = async (...flags) => (await run('oidc-token', [...flags, 'phone'], environment)).trim();
  const first = await tv.verify(await token());
  assert.deepEqual([first.payload.sub, first.payload.client_id], [alice.uuid, 'agent']);
  const second = await tv.verify(await token('--force-new'));
  assert.equal(second.payload.sub, alice.uuid);
  assert.notEqual(second.payload.jti, first.payload.jti);
});

it('the program of the guide ends with tokens', { timeout: 120_000 }, async () => {
  const code = await program('sign-in-on-a-television.md', 'tv.sh');
  await writeFile(join(folder, 'tv.sh'), code.replaceAll('https://id.example.com', server.issuer));
  const device = start('bash', ['tv.sh']);
  const [, address, shown] = await printed(device, /Open (\S+) and enter (\S+)/);
  await decide(await atTheDecision(shown, address), 'allow');
  assert.deepEqual(await device.ended, [0, null]);
  const tokens = JSON.parse(await readFile(join(folder, 'tokens.json'), 'utf8'));
  assert.equal((await tv.verify(tokens.access_token)).payload.sub, alice.uuid);
});

// Certificates from Pebble, the test server of the people behind Let's Encrypt, for the real binary. Pebble looks for
// the service by TLS-ALPN-01, and refuses now and then a nonce that is good, so that clients learn to try again.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { createPrivateKey, sign } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from 'node:tls';
import { promisify } from 'node:util';
import { Agent, fetch } from 'undici';
import { binary, freePort } from './harness.mjs';

const run = promisify(execFile);
const DOMAINS = ['id.example.test', 'login.example.test'];

let folder;
let ports;
const children = new Set();

/** Starts a program; it is ended with the tests at the latest. */
function start(program, words, environment = {}) {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('IDSVC_'));
  const child = spawn(program, words, { cwd: folder, env: { ...Object.fromEntries(kept), ...environment } });
  child.log = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text) => {
      child.log += text;
    });
  }
  child.ended = new Promise((done) => {
    child.once('error', (error) => {
      child.log += error.message;
      done();
    });
    child.once('close', done);
  });
  children.add(child);
  child.ended.then(() => children.delete(child));
  return child;
}

async function end(child) {
  child.kill('SIGTERM');
  await child.ended;
}

/** Waits until `look` comes back with something. */
async function until(look, child) {
  const deadline = Date.now() + 60_000;
  for (;;) {
    const found = await look().catch(() => undefined);
    if (found) return found;
    assert.ok(Date.now() < deadline && children.has(child), child.log);
    await sleep(50);
  }
}

/** The authority's own certificate is trusted by both sides as what it is: self-signed. */
async function startPebble() {
  const pebble = start('pebble', ['-config', 'pebble.json', '-dnsserver', `127.0.0.1:${ports.dns}`], {
    PEBBLE_VA_NOSLEEP: '1',
    PEBBLE_WFE_NONCEREJECT: '20',
  });
  const dispatcher = new Agent({ connect: { ca: await readFile(join(folder, 'ca.pem')) } });
  pebble.root = await until(async () => {
    const answer = await fetch(`https://localhost:${ports.management}/roots/0`, { dispatcher });
    return answer.ok ? answer.text() : undefined;
  }, pebble);
  return pebble;
}

function startService(...domains) {
  return start(binary, ['serve', ...domains.flatMap((domain) => ['--acme', domain])], {
    IDSVC_DATA_DIR: join(folder, 'data'),
    IDSVC_LISTEN: `127.0.0.1:${ports.service}`,
    IDSVC_METRICS_LISTEN: `127.0.0.1:${ports.metrics}`,
    IDSVC_ACME_DIRECTORY: `https://localhost:${ports.directory}/dir`,
    IDSVC_ACME_CONTACT: 'admin@example.test',
    IDSVC_OUTBOUND_CA_FILE: join(folder, 'ca.pem'),
    IDSVC_OUTBOUND_ALLOW: '127.0.0.0/8,::1/128',
  });
}

function ready(service) {
  return until(async () => (await fetch(`http://127.0.0.1:${ports.metrics}/readyz`)).status === 200, service);
}

/** The certificate that a client of this name is shown, once it has trusted it. */
function visit(servername, ca) {
  return new Promise((done, failed) => {
    const socket = connect({ port: ports.service, host: '127.0.0.1', servername, ca }, () => {
      done(socket.getPeerX509Certificate());
      socket.destroy();
    });
    socket.once('error', failed);
  });
}

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'idsvc-acme-'));
  const names = ['directory', 'management', 'dns', 'desk', 'service', 'metrics'];
  ports = Object.fromEntries(await Promise.all(names.map(async (name) => [name, await freePort()])));
  await run(
    'openssl',
    ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', 'ca.key'].concat(
      ['-out', 'ca.pem', '-days', '2', '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'],
      ['-addext', 'basicConstraints=critical,CA:FALSE'],
    ),
    { cwd: folder },
  );
  const pebble = {
    listenAddress: `127.0.0.1:${ports.directory}`,
    managementListenAddress: `127.0.0.1:${ports.management}`,
    certificate: 'ca.pem',
    privateKey: 'ca.key',
    httpPort: 1,
    tlsPort: ports.service,
  };
  await writeFile(join(folder, 'pebble.json'), JSON.stringify({ pebble }));
});

beforeEach(() => {
  start('pebble-challtestsrv', [
    ...['-management', `127.0.0.1:${ports.desk}`, '-dns01', `127.0.0.1:${ports.dns}`],
    ...['-http01', '', '-https01', '', '-tlsalpn01', '', '-defaultIPv4', '127.0.0.1', '-defaultIPv6', ''],
  ]);
});

afterEach(() => Promise.all([...children].map(end)));

after(async () => {
  await rm(folder, { recursive: true, force: true });
});

test('a service gets its certificate, keeps it over a restart, and another for more domains', async () => {
  const pebble = await startPebble();
  let service = startService(DOMAINS[0]);
  await ready(service);
  const first = await visit(DOMAINS[0], pebble.root);
  assert.equal(first.subjectAltName, `DNS:${DOMAINS[0]}`);
  await end(service);

  service = startService(DOMAINS[0]);
  await ready(service);
  assert.equal((await visit(DOMAINS[0], pebble.root)).fingerprint256, first.fingerprint256);
  await end(service);

  // The name that had a certificate keeps it until there is one for both.
  service = startService(...DOMAINS);
  await ready(service);
  await until(async () => (await visit(DOMAINS[0], pebble.root)).fingerprint256 !== first.fingerprint256, service);
  for (const domain of DOMAINS) {
    const shown = await visit(domain, pebble.root);
    assert.notEqual(shown.fingerprint256, first.fingerprint256);
  }
});

/** Orders a certificate in the place of one that is lost, which so soon after the last has to be asked for. */
async function orderAnew() {
  await rm(join(folder, 'data/certs/acme.pem'));
  const service = startService(...DOMAINS);
  const page = `http://127.0.0.1:${ports.metrics}/readyz`;
  await until(async () => (await (await fetch(page)).text()).includes('the next order is made after'), service);
  service.kill('SIGHUP');
  await ready(service);
  return service;
}

/** Deactivates the account of the service in its name (RFC 8555 section 7.3.6). */
async function deactivate(child) {
  const { account } = JSON.parse(await readFile(join(folder, 'data/certs/acme.json')));
  const { credentials } = account;
  const key = createPrivateKey({ key: Buffer.from(credentials.key_pkcs8, 'base64url'), format: 'der', type: 'pkcs8' });
  const dispatcher = new Agent({ connect: { ca: await readFile(join(folder, 'ca.pem')) } });
  const encode = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  await until(async () => {
    const fresh = await fetch(`https://localhost:${ports.directory}/nonce-plz`, { method: 'HEAD', dispatcher });
    const header = { alg: 'ES256', kid: credentials.id, nonce: fresh.headers.get('replay-nonce'), url: credentials.id };
    const jws = { protected: encode(header), payload: encode({ status: 'deactivated' }) };
    const signed = sign('sha256', `${jws.protected}.${jws.payload}`, { key, dsaEncoding: 'ieee-p1363' });
    const answer = await fetch(credentials.id, {
      method: 'POST',
      headers: { 'content-type': 'application/jose+json' },
      body: JSON.stringify({ ...jws, signature: signed.toString('base64url') }),
      dispatcher,
    });
    return answer.ok && (await answer.json()).status === 'deactivated';
  }, child);
}

test('an authority that has forgotten the account, and has other keys, is dealt with', async () => {
  const pebble = await startPebble();
  const service = await orderAnew();
  await visit(DOMAINS[1], pebble.root);
  assert.match(service.log, /does not take the account.*accountDoesNotExist/);
});

test('an account that was deactivated is replaced', async () => {
  const pebble = await startPebble();
  await end(await orderAnew());
  await deactivate(pebble);
  const service = await orderAnew();
  await visit(DOMAINS[1], pebble.root);
  assert.match(service.log, /does not take the account.*unauthorized/);
});

// Runs the real binary, sets it up with its own commands, and reaches it over verified TLS.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { createHash, X509Certificate } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Agent, fetch as undiciFetch } from 'undici';

const run = promisify(execFile);
const here = import.meta.dirname;

export const binary = process.env.IDSVC_BIN
  ? resolve(process.env.IDSVC_BIN)
  : resolve(here, '../../target/debug/idsvc');

export const ALICE = 'alice@example.com';

/** Every standard claim of OpenID Connect Core 5.1, as the operator types it and as UserInfo answers it. */
export const ALICE_CLAIMS = {
  name: 'Alice Example',
  given_name: 'Alice',
  family_name: 'Example',
  middle_name: 'Maria',
  nickname: 'ali',
  preferred_username: 'alice',
  profile: 'https://example.com/alice',
  picture: 'https://example.com/alice.png',
  website: 'https://alice.example.com',
  gender: 'female',
  birthdate: '1990-04-01',
  zoneinfo: 'Europe/Brussels',
  locale: 'en-GB',
  phone_number: '+32 2 555 01 23',
  address: {
    formatted: 'Korenmarkt 1\n9000 Ghent\nBelgium',
    street_address: 'Korenmarkt 1',
    locality: 'Ghent',
    region: 'East Flanders',
    postal_code: '9000',
    country: 'Belgium',
  },
};

export const STANDARD_SCOPES = ['openid', 'profile', 'email', 'phone', 'address', 'offline_access'];

/** A port of 127.0.0.1 that was free a moment ago. */
export async function freePort() {
  const probe = createServer();
  await new Promise((done, failed) => probe.once('error', failed).listen(0, '127.0.0.1', done));
  const { port } = probe.address();
  await new Promise((done) => probe.close(done));
  return port;
}

/** Base64 of the SHA-256 of the public key of a certificate, as browsers want it. */
export function spkiOf(pem) {
  const der = new X509Certificate(pem).publicKey.export({ type: 'spki', format: 'der' });
  return createHash('sha256').update(der).digest('base64');
}

/** The environment without settings that would reach the binary from outside the test. */
function cleanEnvironment(extra) {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('IDSVC_'));
  return { ...Object.fromEntries(kept), ...extra };
}

export class Server {
  #child;
  #ended;
  #log = '';
  #agent;

  /** Starts `idsvc serve` on a data directory and a port of its own and waits until it is ready. */
  static async start({ dev = false, flags = [] } = {}) {
    for (let attempt = 1; ; attempt += 1) {
      const server = new Server();
      server.dev = dev;
      server.directory = await mkdtemp(join(tmpdir(), 'idsvc-clients-'));
      server.dataDir = join(server.directory, 'data');
      server.port = await freePort();
      server.issuer = `https://localhost:${server.port}`;
      server.flags = flags;
      try {
        await server.#launch();
        return server;
      } catch (error) {
        await server.#remove();
        const collided = /address (already )?in use|in use/i.test(error.message);
        if (!collided || attempt === 5) throw error;
      }
    }
  }

  async #launch() {
    const flags = ['--data-dir', this.dataDir, '--listen', `127.0.0.1:${this.port}`, '--base-url', this.issuer];
    flags.push(...(this.dev ? ['--dev'] : ['--tls-mode', 'self-signed']), ...this.flags);
    const child = spawn(binary, ['serve', ...flags], {
      cwd: this.directory,
      env: cleanEnvironment(),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        this.#log += text;
      });
    }
    this.#ended = new Promise((done) => {
      child.once('error', (error) => {
        this.#log += `\n${error.message}`;
        done({ code: null, signal: null });
      });
      child.once('close', (code, signal) => done({ code, signal }));
    });
    let over = false;
    this.#ended.then(() => {
      over = true;
    });
    const deadline = Date.now() + 60_000;
    for (;;) {
      if (over) throw new Error(`${binary} serve ended before it was ready:\n${this.#log}`);
      if (await this.#isReady()) return;
      if (Date.now() > deadline) {
        await this.kill();
        throw new Error(`${binary} serve was not ready within 60 s:\n${this.#log}`);
      }
      await sleep(50);
    }
  }

  async #isReady() {
    if (!this.ca) {
      this.ca = await this.#readCertificate();
      if (!this.ca) return false;
      this.#agent = new Agent({ connect: { ca: this.ca } });
    }
    try {
      const answer = await this.fetch(`${this.issuer}/readyz`, { signal: AbortSignal.timeout(2_000) });
      await answer.arrayBuffer();
      return answer.status === 200;
    } catch (error) {
      if (/certificate|CERT|altname/i.test(error.cause?.code ?? '')) {
        await this.kill();
        throw error;
      }
      return false;
    }
  }

  /** The certificate that `--tls-mode self-signed` wrote. */
  async #readCertificate() {
    const certs = join(this.dataDir, 'certs');
    const names = await readdir(certs).catch(() => []);
    for (const name of names.filter((name) => name.endsWith('.pem')).sort()) {
      const text = await readFile(join(certs, name), 'utf8').catch(() => '');
      const pem = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----\n?/.exec(text);
      if (pem) return pem[0];
    }
    return undefined;
  }

  /** `fetch` that trusts this server's certificate beside nothing else. */
  fetch = (url, options = {}) => {
    return undiciFetch(url, { ...options, duplex: options.body ? 'half' : undefined, dispatcher: this.#agent });
  };

  get agent() {
    return this.#agent;
  }

  get spki() {
    return spkiOf(this.ca);
  }

  /** What the process has written so far. */
  get log() {
    return this.#log;
  }

  /** Runs a command of the binary against this server's data directory. */
  async command(...words) {
    const { stdout } = await run(binary, words, {
      cwd: this.directory,
      env: cleanEnvironment({ IDSVC_DATA_DIR: this.dataDir }),
      timeout: 60_000,
    });
    return stdout;
  }

  /** Runs a command with `--json` and reads its one document. */
  async json(...words) {
    return JSON.parse(await this.command(...words, '--json'));
  }

  /** Registers a client that may ask for every standard scope. */
  async addClient(id, redirectUri, ...flags) {
    const scopes = STANDARD_SCOPES.flatMap((scope) => ['--scope', scope]);
    const client = await this.json('client', 'add', id, '--redirect-uri', redirectUri, ...scopes, ...flags);
    assert.equal(client.client_id, id);
    return { ...client, redirect_uri: redirectUri };
  }

  /** Adds a user with a generated password; the password is in the answer. */
  async addUser(email, ...flags) {
    return this.json('user', 'add', email, '--generate-password', ...flags);
  }

  /** Adds Alice, who has every standard claim. */
  async addAlice() {
    const { name, phone_number, address, ...others } = ALICE_CLAIMS;
    const claims = Object.entries(others).concat(
      Object.entries(address).map(([part, value]) => [`address.${part}`, value]),
    );
    return this.addUser(
      ALICE,
      '--email-verified',
      ...['--name', name, '--phone-number', phone_number, '--venue-id', 'venue-7', '--organization', 'acme'],
      ...claims.flatMap(([claim, value]) => ['--claim', `${claim}=${value}`]),
    );
  }

  /** Ends the process at once, as a power cut would. */
  async kill() {
    this.#child?.kill('SIGKILL');
    await this.#ended;
  }

  /** Starts the process again on the same data. */
  async restart() {
    await this.#agent?.close();
    this.ca = undefined;
    await this.#launch();
  }

  /** Asks the process to end, checks how it did, and removes what it left. */
  async stop() {
    let impatient;
    try {
      await this.#agent?.destroy();
      this.#child.kill('SIGTERM');
      impatient = setTimeout(() => this.#child.kill('SIGKILL'), 15_000);
      const { code, signal } = await this.#ended;
      assert.deepEqual({ code, signal }, { code: 0, signal: null }, `SIGTERM ends it in order:\n${this.#log}`);
      assert.doesNotMatch(this.#log, /panicked at/, 'nothing panicked');
      if (!this.dev) assert.doesNotMatch(this.#log, /idsvc_(rt|ac|cs|key)_[A-Za-z0-9]/, 'no secret is in the log');
    } finally {
      clearTimeout(impatient);
      await this.#remove();
    }
  }

  async #remove() {
    await rm(this.directory, { recursive: true, force: true });
  }
}

/** The claims of a JWS, unverified: for reading only. */
export function decode(token) {
  const [header, payload] = token.split('.', 2).map((part) => JSON.parse(Buffer.from(part, 'base64url').toString()));
  return { header, payload };
}

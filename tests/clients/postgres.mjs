// A PostgreSQL server with TLS on a port and in a folder of its own. It ends with the test process.

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { appendFile, chown, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from './harness.mjs';

const DEBIAN = '/usr/lib/postgresql';

/** The folder of the newest PostgreSQL's programs. */
function findPrograms() {
  if (process.env.IDSVC_TEST_POSTGRES_BIN) return process.env.IDSVC_TEST_POSTGRES_BIN;
  const [newest] = readdirSync(DEBIAN).sort((a, b) => b - a);
  return join(DEBIAN, newest, 'bin');
}

/** The user who runs the server if this process is root, because PostgreSQL refuses root. */
function serverUser() {
  if (process.getuid() !== 0) return {};
  const [uid, gid] = ['-u', '-g'].map((flag) => Number(execFileSync('id', [flag, 'postgres'], { encoding: 'utf8' })));
  return { uid, gid };
}

export class Postgres {
  #child;
  #ended;
  #user = serverUser();

  /** Starts a server with these lines in postgresql.conf, and this certificate for `localhost`. */
  static async start(settings, { cert, key }) {
    const server = await Postgres.#inNewFolder();
    const words = ['--no-sync', '--auth-local=trust', '--auth-host=scram-sha-256', '--username=postgres'];
    server.#run('initdb', [...words, '-D', server.#data]);
    await appendFile(join(server.#data, 'postgresql.conf'), settings);
    for (const [name, text] of [['server.crt', cert], ['server.key', key]]) {
      const file = join(server.#data, name);
      await writeFile(file, text, { mode: 0o600 });
      if (server.#user.uid !== undefined) await chown(file, server.#user.uid, server.#user.gid);
    }
    await server.resume();
    return server;
  }

  /** Starts a standby of this server, with the same settings and certificate. */
  async startStandby() {
    const standby = await Postgres.#inNewFolder();
    const words = ['-h', this.folder, '-p', `${this.port}`, '-U', 'postgres', '--checkpoint=fast', '--write-recovery-conf'];
    standby.#run('pg_basebackup', [...words, '-D', standby.#data]);
    await standby.resume();
    return standby;
  }

  static async #inNewFolder() {
    const server = new Postgres();
    // The path of a unix socket is short, and the user of the server has to reach it.
    server.folder = await mkdtemp('/tmp/idsvc-postgres-');
    server.port = await freePort();
    const { uid, gid } = server.#user;
    if (uid !== undefined) await chown(server.folder, uid, gid);
    return server;
  }

  #run(program, words) {
    execFileSync(join(findPrograms(), program), words, { ...this.#user, cwd: '/', stdio: 'ignore' });
  }

  get #data() {
    return join(this.folder, 'data');
  }

  /** Starts the server on its data. */
  async resume() {
    const flags = ['-D', this.#data, '-k', this.folder, '-p', `${this.port}`, '-c', 'listen_addresses=127.0.0.1'];
    const words = ['--pdeathsig', 'QUIT', join(findPrograms(), 'postgres'), ...flags];
    this.#child = spawn('setpriv', words, { ...this.#user, cwd: '/', stdio: 'ignore' });
    this.#ended = once(this.#child, 'exit');
    for (;;) {
      const status = await readFile(join(this.#data, 'postmaster.pid'), 'utf8').catch(() => '');
      const lines = status.trim().split('\n');
      if (lines[0] === `${this.#child.pid}` && lines.at(-1).trim() === 'ready') return;
      if (this.#child.exitCode !== null) throw new Error(`postgres ended with exit code ${this.#child.exitCode}`);
      await sleep(20);
    }
  }

  /** Ends the server and keeps its data. */
  async pause() {
    this.#child.kill('SIGQUIT');
    await this.#ended;
  }

  /** Ends the server and removes its data. */
  async stop() {
    await this.pause();
    await rm(this.folder, { recursive: true, force: true });
  }

  /** The variables by which psql finds the server as its superuser. */
  get environment() {
    return { PGHOST: this.folder, PGPORT: `${this.port}`, PGUSER: 'postgres' };
  }
}

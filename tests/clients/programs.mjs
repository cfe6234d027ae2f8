// Runs programs of the guide. Only addresses are changed.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { program as programOf } from './guide.mjs';

/** Waits until a program that was started answers at an address. */
export async function answers(program, address) {
  const deadline = Date.now() + 60_000;
  while (!(await fetch(address).then(() => true, () => false))) {
    assert.equal(program.exitCode, null, 'it runs');
    assert.ok(Date.now() < deadline, 'it listens within a minute');
    await sleep(50);
  }
}

/** Programs in a folder of their own, which trust the certificate of one server. */
export class Programs {
  #server;
  #started = [];

  static async open(server) {
    const programs = new Programs();
    programs.#server = server;
    programs.folder = await mkdtemp(join(tmpdir(), 'idsvc-samples-'));
    await symlink(join(import.meta.dirname, 'node_modules'), join(programs.folder, 'node_modules'));
    await writeFile(join(programs.folder, 'ca.pem'), server.ca);
    return programs;
  }

  /** Starts a program of a page. `adapt` changes its text beyond the address of the service. */
  async start(page, file, { adapt = (code) => code, environment = {}, words = [] } = {}) {
    const code = adapt((await programOf(page, file)).replaceAll('https://id.example.com', this.#server.issuer));
    const path = join(this.folder, file);
    await writeFile(path, code);
    return this.run([path, ...words], environment);
  }

  /** Starts Node.js with these words. */
  run(words, environment = {}) {
    const program = spawn(process.execPath, words, {
      env: { PATH: process.env.PATH, NODE_EXTRA_CA_CERTS: join(this.folder, 'ca.pem'), ...environment },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    this.#started.push({ program, ended: once(program, 'close') });
    return program;
  }

  /** Ends what still runs, and removes the folder. */
  async close() {
    for (const { program, ended } of this.#started) {
      program.kill('SIGKILL');
      await ended;
    }
    await rm(this.folder, { recursive: true, force: true });
  }
}

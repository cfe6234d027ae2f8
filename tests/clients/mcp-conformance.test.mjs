// Runs the conformance tests of the Model Context Protocol for authorization servers.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import fs from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, it } from 'node:test';
import { Browser } from './browser.mjs';
import { freePort, Server } from './harness.mjs';
import { Programs } from './programs.mjs';

const RESOURCE = 'https://mcp.example.com/mcp';
const PROGRAM = join(import.meta.dirname, 'node_modules/@modelcontextprotocol/conformance/dist/index.js');

const moduleOf = (code) => `data:text/javascript,${encodeURIComponent(code)}`;
/** The program imports `globSync`, which Node.js has since release 22. The tests do not need it. */
const FS = moduleOf('export * from "node:fs"; export const globSync = undefined;');
const HOOKS = moduleOf(
  `export const resolve = (name, context, next) => name === 'fs' ? { url: '${FS}', shortCircuit: true } : next(name, context);`,
);
const PRELOAD = moduleOf(`import { register } from 'node:module'; register(${JSON.stringify(HOOKS)});`);

let server;
let alice;
let programs;

before(async () => {
  server = await Server.start({ flags: ['--clients-metadata-documents', 'true'] });
  alice = await server.addAlice();
  await server.command('api', 'add', 'notes', '--identifier', RESOURCE, '--scope', 'notes.read');
  programs = await Programs.open(server);
});

after(async () => {
  await programs?.close();
  await server?.stop();
});

it('passes every scenario without a warning', { timeout: 60_000 }, async () => {
  const port = await freePort();
  const callback = `http://127.0.0.1:${port}/callback`;
  await server.command('client', 'add', 'mcp', '--public', '--redirect-uri', callback, '--api', 'notes');
  const results = join(programs.folder, 'results');
  const words = ['--url', server.issuer, '--client-id', 'mcp', '--resource', RESOURCE, '-p', String(port), '-o', results];
  const program = programs.run([...(fs.globSync ? [] : ['--import', PRELOAD]), PROGRAM, 'authorization', ...words]);
  const ended = once(program, 'exit');
  for await (const line of createInterface(program.stdout)) {
    const address = /https:\S+\/oauth2\/authorize\?\S+/.exec(line)?.[0];
    if (!address) continue;
    const browser = new Browser(server);
    const { url } = await browser.signIn(await browser.open(address), alice.email, alice.password);
    await fetch(url);
  }
  assert.deepEqual(await ended, [0, null]);
  const scenarios = await readdir(results);
  const files = scenarios.map((scenario) => readFile(join(results, scenario, 'checks.json'), 'utf8'));
  const checks = (await Promise.all(files)).flatMap((file) => JSON.parse(file));
  assert.equal(scenarios.length, 2, scenarios.join());
  assert.deepEqual(checks.filter(({ status }) => status !== 'SUCCESS'), []);
});

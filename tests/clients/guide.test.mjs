// Runs every command and every program of README and guide: each page on a data directory and in a folder of its own,
// its blocks in order, in one shell.

import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, mkdir, mkdtemp, readFile, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { it } from 'node:test';
import { blocksOf, pages, read } from './guide.mjs';
import { binary, freePort, Server } from './harness.mjs';

/** What a block may need, and the program that a machine with it has. The machines of the tests lack the others. */
const TOOLS = { node: 'npm', python: 'python3', go: 'go', java: 'mvn', cargo: 'cargo' };
const ELSEWHERE = ['systemd', 'package', 'release', 'podman', 'internet', 'kubernetes', 'root'];
/** What several-nodes.test.mjs runs. */
const SEVERAL_NODES = 'nodes';
const PORTS = ['3000', '3001', '8080', '9464', '8443', '9443'];
const MINUTES = 60_000;

const present = Object.keys(TOOLS).filter((name) => spawnSync(TOOLS[name], ['--version']).error === undefined);

/** Whether a block is the command that runs these tests. */
const isThisRun = ({ code }) => code === 'tests/run\n';

/** Whether a block is a command that goes on until it is told to stop. */
const serves = ({ language, code }) => language === 'sh' && /^(idsvc|cargo run --release --) serve\b.*\n?$/.test(code);

/** The certificates that the machine trusts, in one file to which that of the service is added. */
async function trustStore(folder, certificate) {
  const file = join(folder, 'trusted.pem');
  const system = await readFile(process.env.SSL_CERT_FILE ?? '/etc/ssl/certs/ca-certificates.crt', 'utf8').catch(() => '');
  await writeFile(file, `${system}\n${certificate ?? ''}`);
  return file;
}

/** The same for Java. */
async function javaTrustStore(folder, certificate) {
  const home = dirname(dirname(await realpath(execFileSync('which', ['java'], { encoding: 'utf8' }).trim())));
  const [file, pem] = [join(folder, 'trusted.jks'), join(folder, 'service.pem')];
  await writeFile(file, await readFile(join(home, 'lib/security/cacerts')));
  await writeFile(pem, certificate);
  const words = ['-importcert', '-noprompt', '-alias', 'service', '-file', pem, '-keystore', file];
  execFileSync('keytool', [...words, '-storepass', 'changeit'], { stdio: 'ignore' });
  return `-Djavax.net.ssl.trustStore=${file} ${process.env.JAVA_TOOL_OPTIONS ?? ''}`.trim();
}

/** The shell script of a page. What it needs beside itself is written to `parts`. */
async function scriptOf(page, blocks, parts) {
  const lines = ['set -euo pipefail'];
  for (const [index, { language, needs, line, file, code, served }] of blocks.entries()) {
    if (needs.includes(SEVERAL_NODES)) continue;
    const missing = needs.filter((need) => !present.includes(need));
    if (missing.length > 0) {
      if (process.env.IDSVC_LONG_REPORT) {
        await appendFile(process.env.IDSVC_LONG_REPORT, `${page}:${line} NOT RUN: needs ${missing.join(', ')}\n`);
      }
      continue;
    }
    const part = join(parts, `${index}`);
    await writeFile(part, code);
    lines.push(`echo '== ${page}:${line}' >&2`);
    if (served) {
      lines.push(`bash '${part}' </dev/null &`, '"$GUIDE_WAIT" $!');
    } else if (language === 'sh') {
      lines.push(`. '${part}' </dev/null`);
    } else if (file && !file.startsWith('/')) {
      lines.push(`mkdir -p '${dirname(file)}'`, `cp '${part}' '${file}'`);
    }
    if (file && basename(file) === 'idsvc.toml') lines.push(`idsvc config check --config '${part}' >/dev/null`);
  }
  return lines.join('\n');
}

/** A command that waits until the service of a page is ready, and trusts its certificate from then on. */
const WAIT = `#!/bin/bash
for ((attempt = 0; attempt < 600; attempt++)); do
    kill -0 "$1" || exit 1
    for certificate in "\${IDSVC_DATA_DIR:-idsvc-data/dev}/certs/self-signed.pem"; do
        if curl --silent --fail --cacert "$certificate" "$GUIDE_ISSUER/readyz" >/dev/null 2>&1; then
            cat "$certificate" >>"$SSL_CERT_FILE"
            exit 0
        fi
    done
    sleep 0.1
done
exit 1
`;

async function walk(page, { signal }) {
  const folder = await mkdtemp(join(tmpdir(), 'idsvc-guide-'));
  const [work, parts, programs] = ['work', '.parts', '.bin'].map((name) => join(folder, name));
  let [server, shell] = [];
  try {
    for (const path of [work, parts, programs]) await mkdir(path);
    await symlink(binary, join(programs, 'idsvc'));
    await writeFile(join(programs, 'wait'), WAIT, { mode: 0o755 });
    const raw = await read(page);
    const served = blocksOf(raw).find((block) => serves(block) && block.needs.length === 0);
    const isDevelopment = / --dev\b/.test(served?.code);
    const ports = Object.fromEntries(await Promise.all(PORTS.map(async (port) => [port, await freePort()])));
    const flags = ['--metrics-listen', `127.0.0.1:${ports['9464']}`, '--clients-registration', 'open'];
    flags.push('--accounts-sign-up', 'invitation');
    if (!served) server = await Server.start({ flags });
    const issuer = server?.issuer ?? `https://localhost:${ports['8443']}`;
    const settings = {
      IDSVC_DATA_DIR: server?.dataDir ?? join(folder, 'data'),
      IDSVC_BASE_URL: issuer,
      IDSVC_LISTEN: `127.0.0.1:${new URL(issuer).port}`,
      IDSVC_TLS_MODE: 'self-signed',
    };
    const blocks = blocksOf(raw).filter((block) => !isThisRun(block)).map((block) => ({
      ...block,
      served: serves(block),
      code: block.code
        .replaceAll('https://id.example.com', issuer)
        .replaceAll('cargo run --release --', 'idsvc')
        .replaceAll(/(?<=[:(= ])(3000|3001|8080|9464|8443|9443)\b/g, (port) => ports[port]),
    }));
    const trusted = await trustStore(folder, server?.ca);
    const needs = (name) => blocks.some((block) => block.needs.includes(name)) && present.includes(name);
    if (needs('python')) execFileSync('python3', ['-m', 'venv', join(folder, 'venv')]);
    const environment = Object.entries(process.env).filter(([name]) => !name.startsWith('IDSVC_'));
    const script = await scriptOf(page, blocks, parts);
    shell = spawn('bash', ['-c', script], {
      cwd: work,
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        ...Object.fromEntries(environment),
        PATH: [programs, join(folder, 'venv/bin'), process.env.PATH].join(':'),
        ...(isDevelopment ? { IDSVC_LISTEN: settings.IDSVC_LISTEN } : settings),
        ...Object.fromEntries(
          ['SSL_CERT_FILE', 'CURL_CA_BUNDLE', 'NODE_EXTRA_CA_CERTS', 'REQUESTS_CA_BUNDLE', 'PIP_CERT'].map((name) => [name, trusted]),
        ),
        ...(needs('java') && server ? { JAVA_TOOL_OPTIONS: await javaTrustStore(folder, server.ca) } : {}),
        GUIDE_WAIT: join(programs, 'wait'),
        GUIDE_ISSUER: issuer,
      },
    });
    const ended = once(shell, 'exit');
    const printed = Promise.all([text(shell.stdout), text(shell.stderr)]);
    signal.addEventListener('abort', () => end(shell), { once: true });
    const [code] = await ended;
    end(shell);
    if (code !== 0) assert.fail(`exit code ${code}\n${(await printed).join('\n')}`);
  } finally {
    if (shell) end(shell);
    await server?.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

/** Ends a shell and what it started, all of which are in its process group. */
function end(shell) {
  try {
    process.kill(-shell.pid, 'SIGKILL');
  } catch (error) {
    if (error.code !== 'ESRCH') throw error;
  }
}

const chosen = process.env.GUIDE_PAGE;
for (const page of await pages()) {
  if (chosen && basename(page) !== chosen && page !== chosen) continue;
  it(page, { timeout: 15 * MINUTES }, (test) => walk(page, test));
}

it('a block needs only what is known', async () => {
  for (const page of await pages()) {
    for (const { needs, line } of blocksOf(await read(page))) {
      const known = [...Object.keys(TOOLS), ...ELSEWHERE, SEVERAL_NODES];
      for (const need of needs) assert.ok(known.includes(need), `${page}:${line} needs ${need}`);
    }
  }
});

// Does what the page about several nodes says: PostgreSQL with two roles, three nodes, and HAProxy or nginx before them.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdir, mkdtemp, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { certificates } from './certificates.mjs';
import { blocksOf, read } from './guide.mjs';
import { binary, freePort } from './harness.mjs';
import { Postgres } from './postgres.mjs';

const run = promisify(execFile);
const PAGE = 'packaging/guide/run-several-nodes.md';
const HAPROXY = 'packaging/load-balancer/haproxy.cfg';
const NGINX = 'packaging/load-balancer/nginx.conf';
const NODES = ['node1', 'node2', 'node3'];
const REQUEST = new URLSearchParams({
  client_id: 'app',
  redirect_uri: 'https://app.example.com/callback',
  response_type: 'code',
  scope: 'openid',
  code_challenge: 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM',
  code_challenge_method: 'S256',
});
/** The tests run everything as one user, also where there is no `sudo`. */
const SUDO = '#!/bin/bash\n[ "$1" = -u ] && shift 2\nexec "$@"\n';

let [folder, database, standby, blocks, environment, balancerPort, password] = [];
const ports = {};
const children = new Map();

/** The text of the page or a configuration, with the addresses, paths and ports of this test. */
function localized(text) {
  const pairs = [
    ['db1.example.com,db2.example.com', `localhost:${database.port},localhost:${standby.port}`],
    ['/etc/ssl/certs/ca-certificates.crt', join(folder, 'tls/ca.pem')],
    ['/run/haproxy/', `${folder}/`],
    ['/etc/haproxy/id.example.com.pem', join(folder, 'tls/both.pem')],
    ['/etc/idsvc', join(folder, 'etc')],
    ['/var/lib/idsvc', join(folder, 'node1')],
    ['[::]:443', `127.0.0.1:${ports.node1}`],
    [':::443 v4v6', `127.0.0.1:${balancerPort}`],
    ...NODES.map((name, index) => [`192.0.2.1${index + 1}:443`, `127.0.0.1:${ports[name]}`]),
  ];
  return pairs.reduce((done, [from, to]) => done.replaceAll(from, to), text);
}

/** The block of the page that contains this text. */
function block(text) {
  const found = blocks.filter(({ code }) => code.includes(text));
  assert.equal(found.length, 1, `blocks with ${text}`);
  return localized(found[0].code);
}

/** Runs shell commands like those of the page, and returns what they print. */
async function shell(code, extra = {}) {
  const options = { cwd: join(folder, 'work'), env: { ...environment, ...extra }, timeout: 60_000 };
  const { stdout } = await run('bash', ['-euo', 'pipefail', '-c', code], options);
  return stdout;
}

function start(name, program, words, env = {}) {
  const child = spawn(program, words, { cwd: folder, env: { ...environment, ...env }, stdio: ['ignore', 'ignore', 'pipe'] });
  let log = '';
  child.stderr.setEncoding('utf8').on('data', (text) => {
    log += text;
  });
  children.set(name, { child, ended: once(child, 'exit'), log: () => log });
}

async function end(name) {
  const { child, ended } = children.get(name);
  // If nginx is killed, its workers go on.
  child.kill(name === 'nginx' ? 'SIGTERM' : 'SIGKILL');
  await ended;
  children.delete(name);
}

/** Waits until something is so, at most 30 seconds. */
async function until(describe, isSo) {
  for (let attempt = 0; attempt < 300; attempt += 1) {
    if (await isSo()) return;
    await sleep(100);
  }
  assert.fail(`${describe} was not so\n${[...children].map(([name, { log }]) => `${name}: ${log()}`).join('\n')}`);
}

/** Status, body and redirect of an answer, of a node or of the balancer. */
async function get(port, path, flags = []) {
  const words = ['--disable', '--silent', '--cacert', join(folder, 'tls/ca.pem'), '--write-out', '\n%{redirect_url}\n%{http_code}'];
  words.push('--connect-to', `id.example.com:443:127.0.0.1:${port}`, ...flags, `https://id.example.com${path}`);
  const answer = await run('curl', words, { env: environment }).catch(() => ({ stdout: '\n\n0' }));
  const [, body, redirect, status] = /^([\s\S]*)\n(.*)\n(\d+)$/.exec(answer.stdout);
  return { status: Number(status), body: body.trim(), redirect };
}

/** Begins a sign-in at one node, has the page from another and sends the form to the third. */
async function signIn(typed) {
  const jar = join(folder, 'cookies');
  await rm(jar, { force: true });
  const cookies = ['--cookie', jar, '--cookie-jar', jar];
  const { redirect } = await get(ports.node1, `/oauth2/authorize?${REQUEST}`, cookies);
  const { pathname, search } = new URL(redirect);
  const page = await get(ports.node2, pathname + search, cookies);
  const fields = ['transaction', 'csrf'].map((name) => [name, new RegExp(`name="${name}" value="([^"]+)"`).exec(page.body)[1]]);
  fields.push(['username', 'alice@example.com'], ['password', typed]);
  return get(ports.node3, '/login', [...cookies, '--data', `${new URLSearchParams(fields)}`]);
}

async function startNode(name) {
  start(name, binary, ['serve'], {
    IDSVC_DATA_DIR: join(folder, name),
    IDSVC_LISTEN: `127.0.0.1:${ports[name]}`,
    IDSVC_TRUSTED_PROXIES: '127.0.0.1',
  });
  await until(`${name} is ready`, async () => (await get(ports[name], '/readyz')).status === 200);
}

/** Starts HAProxy with a configuration of the page. It keeps the user of the tests, and writes no log. */
async function startBalancer(text) {
  const file = join(folder, 'haproxy.cfg');
  await writeFile(file, localized(text).replaceAll(/^ +(user|group|log) .*\n/gm, ''));
  start('haproxy', 'haproxy', ['-db', '-f', file]);
  await until('the balancer answers', async () => (await get(balancerPort, '/readyz')).body === 'ready');
}

/** Starts nginx with its configuration. It keeps the user of the tests, and writes its log to standard error. */
async function startNginx() {
  const file = join(folder, 'nginx.conf');
  const text = (await read(NGINX))
    .replaceAll(/^user .*\n|^ +listen 443;\n/gm, '')
    .replace('[::]:443', `127.0.0.1:${balancerPort}`)
    .replace('/run/', `${folder}/`)
    .replace('/var/log/nginx/error.log', 'stderr');
  await writeFile(file, localized(text));
  start('nginx', 'nginx', ['-e', 'stderr', '-c', file, '-g', 'daemon off;']);
  await until('nginx answers', async () => (await get(balancerPort, '/readyz')).body === 'ready');
  return file;
}

/** Whether a node begins a sign-in for the client. */
const takesClient = async (name) => (await get(ports[name], `/oauth2/authorize?${REQUEST}`)).status === 303;

describe('several nodes', { timeout: 10 * 60_000 }, () => {
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'idsvc-nodes-'));
    for (const name of ['etc', 'tls', 'database', 'work', '.bin']) await mkdir(join(folder, name));
    for (const name of ['balancer', ...NODES]) ports[name] = await freePort();
    balancerPort = ports.balancer;
    const [service, server] = [
      await certificates(join(folder, 'tls'), 'id.example.com'),
      await certificates(join(folder, 'database'), 'localhost'),
    ];
    await writeFile(join(folder, 'etc/fullchain.pem'), service.cert);
    await writeFile(join(folder, 'etc/privkey.pem'), service.key, { mode: 0o600 });
    await writeFile(join(folder, 'tls/both.pem'), service.cert + service.key);
    await copyFile(server.caFile, join(folder, 'etc/database-ca.pem'));
    await symlink(binary, join(folder, '.bin/idsvc'));
    await writeFile(join(folder, '.bin/sudo'), SUDO, { mode: 0o755 });
    const curl = `connect-to = "id.example.com:443:127.0.0.1:${balancerPort}"\ncacert = "${service.caFile}"\n`;
    await writeFile(join(folder, '.curlrc'), curl);
    blocks = blocksOf(await read(PAGE));
    database = await Postgres.start(blocks.find(({ file }) => file === 'postgresql.conf').code, server);
    standby = await database.startStandby();
    const outside = Object.entries(process.env).filter(([name]) => !/^(IDSVC_|PG|CURL_)/.test(name));
    environment = {
      ...Object.fromEntries(outside),
      ...database.environment,
      PATH: [join(folder, '.bin'), process.env.PATH, '/usr/sbin'].join(':'),
      CURL_HOME: folder,
      IDSVC_CONFIG: join(folder, 'etc/idsvc.toml'),
    };
  });

  after(async () => {
    for (const name of [...children.keys()]) await end(name);
    await standby?.stop();
    await database?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  it('moves the data of one node to PostgreSQL', async () => {
    const toml = block('[store]');
    await writeFile(environment.IDSVC_CONFIG, toml.replace(/\[store\][\s\S]*?\n\n/, ''));
    await shell(`idsvc init
      idsvc client add app --public --redirect-uri https://app.example.com/callback`);
    ({ password } = JSON.parse(await shell('idsvc user add alice@example.com --generate-password --json')));
    await shell(block('CREATE ROLE'));
    for (const name of ['owner-url', 'store-url']) await rename(join(folder, 'work', name), join(folder, 'etc', name));
    await shell(block('idsvc.redb.moved'));
    await writeFile(environment.IDSVC_CONFIG, toml);
    assert.match(await shell(block('idsvc config check\n')), /nothing to do/);
  });

  it('gives the role of the nodes no table', async () => {
    const query = `SELECT count(*) FILTER (WHERE has_table_privilege('idsvc', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE')), count(*)
      FROM pg_class c WHERE c.relnamespace = 'idsvc'::regnamespace AND c.relkind = 'r'`;
    const [allowed, tables] = (await shell(`psql --no-psqlrc -At -c "${query}" idsvc`)).trim().split('|').map(Number);
    assert.equal(allowed, 0);
    assert.ok(tables > 10);
  });

  it('runs three nodes that share users and clients', async () => {
    for (const name of NODES.slice(1)) {
      await mkdir(join(folder, name), { mode: 0o700 });
      await copyFile(join(folder, 'node1/master.key'), join(folder, name, 'master.key'));
    }
    for (const name of NODES) await startNode(name);
    const on = (name) => ({ IDSVC_DATA_DIR: join(folder, name) });
    for (const name of NODES) {
      assert.match(await shell('idsvc user list', on(name)), /alice@example\.com/);
      assert.ok(await takesClient(name));
    }
    const failures = async () => JSON.parse(await shell('idsvc user show alice@example.com --json', on('node1'))).failed_passwords;
    assert.match((await signIn('wrong')).body, /do not match/);
    await until('node1 knows of the wrong password', async () => (await failures())?.count === 1);
    assert.match((await signIn(password)).redirect, /^https:\/\/app\.example\.com\/callback\?code=/);
    await shell('idsvc client disable app', on('node2'));
    await until('node3 refuses the client', async () => !(await takesClient('node3')));
    await shell('idsvc client enable app', on('node3'));
    await until('node1 takes the client', () => takesClient('node1'));
    await shell('idsvc user disable alice@example.com', on('node1'));
    assert.equal(JSON.parse(await shell('idsvc user show alice@example.com --json', on('node3'))).enabled, false);
    await assert.rejects(shell('idsvc compact', on('node2')), /nothing to compact/);
  });

  it('refuses a node with another master key or another address', async () => {
    const refusal = async (settings) => {
      start('other', binary, ['serve'], { IDSVC_LISTEN: '127.0.0.1:0', ...settings });
      const { ended, log } = children.get('other');
      const [code] = await ended;
      children.delete('other');
      assert.equal(code, 1, log());
      return log();
    };
    const IDSVC_DATA_DIR = join(folder, 'other');
    await assert.rejects(shell('idsvc init', { IDSVC_DATA_DIR }), /has data already.* copy master\.key/);
    const alone = { IDSVC_DATA_DIR, IDSVC_CONFIG: join(folder, 'etc/alone.toml') };
    const toml = await readFile(environment.IDSVC_CONFIG, 'utf8');
    await writeFile(alone.IDSVC_CONFIG, toml.replace(/\[store\][\s\S]*?\n\n/, ''));
    await shell('idsvc init && rm --force "$IDSVC_DATA_DIR/idsvc.redb"', alone);
    assert.match(await refusal({ IDSVC_DATA_DIR }), /is not the key that .* was sealed with/);
    await copyFile(join(folder, 'node1/master.key'), join(IDSVC_DATA_DIR, 'master.key'));
    assert.match(await refusal({ IDSVC_DATA_DIR, IDSVC_BASE_URL: 'https://other.example.com' }), /the nodes that use this database run as https:\/\/id\.example\.com/);
  });

  it('puts HAProxy before them, and drains a node', async () => {
    const whole = await read(HAPROXY);
    const shown = blocks.find(({ file }) => file === 'haproxy.cfg').code.replace('# haproxy.cfg\n', '');
    assert.ok(whole.includes(shown), `${PAGE} shows another backend than ${HAPROXY}`);
    await startBalancer(whole);
    await shell(block('state drain'));
    await end('node1');
    for (let count = 0; count < 10; count += 1) assert.equal((await get(balancerPort, '/readyz')).status, 200);
    await startNode('node1');
  });

  it('tells the nodes the addresses of clients', async () => {
    await end('haproxy');
    const [settings] = (await read(HAPROXY)).split('frontend https');
    await startBalancer(settings.replace('global\n', 'global\n    tune.bufsize 32768\n') + block('mode http'));
    const request = "curl --silent --interface 127.0.0.2 --user nobody:wrong --data grant_type=client_credentials";
    assert.match(await shell(`${request} https://id.example.com/oauth2/token`), /invalid_client/);
    const long = '$(head -c 12000 /dev/zero | tr "\\0" a)';
    const status = await shell(`curl --silent --output answer --write-out '%{http_code}' "https://id.example.com/login?long=${long}"`);
    assert.equal(status, '303');
    await until('a node has logged the address', () => NODES.some((name) => children.get(name).log().includes('127.0.0.2')));
  });

  it('puts nginx before them, which leaves out a node that does not run', async () => {
    await end('haproxy');
    const file = await startNginx();
    await end('node1');
    for (let count = 0; count < 10; count += 1) assert.equal((await get(balancerPort, '/readyz')).status, 200);
    await startNode('node1');
    const text = await readFile(file, 'utf8');
    const line = `server 127.0.0.1:${ports.node2} max_fails=1 fail_timeout=5s`;
    await writeFile(file, text.replace(line, `${line} down`));
    await shell(`nginx -e stderr -c '${file}' -s reload`);
    await end('node2');
    for (let count = 0; count < 10; count += 1) assert.equal((await get(balancerPort, '/readyz')).status, 200);
    await startNode('node2');
    await end('nginx');
  });

  it('says that the database does not answer, and goes on once it does', async () => {
    await database.pause();
    await until('node2 is not ready', async () => {
      const { status, body } = await get(ports.node2, '/readyz');
      return status === 503 && body === 'the database does not answer';
    });
    assert.equal((await get(ports.node2, '/.well-known/openid-configuration')).status, 200);
    await until('node2 refuses requests', async () => (await get(ports.node2, '/login')).status === 503);
    await database.resume();
    for (const name of NODES) await until(`${name} is ready`, async () => (await get(ports[name], '/readyz')).status === 200);
    assert.match(await shell('idsvc user list'), /alice@example\.com/);
  });

  it('goes back to one machine by a backup', async () => {
    const back = { IDSVC_DATA_DIR: join(folder, 'back'), IDSVC_CONFIG: join(folder, 'etc/one-node.toml') };
    const toml = await readFile(environment.IDSVC_CONFIG, 'utf8');
    await writeFile(back.IDSVC_CONFIG, toml.replace(/\[store\][\s\S]*?\n\n/, ''));
    await shell('idsvc backup back.backup', { IDSVC_DATA_DIR: join(folder, 'node2') });
    await shell(`idsvc restore back.backup --master-key '${join(folder, 'node2/master.key')}'`, back);
    assert.match(await shell('idsvc user list', back), /alice@example\.com/);
  });

  it('begins without data', async () => {
    const urls = await Promise.all(['owner-url', 'store-url'].map((name) => readFile(join(folder, 'etc', name), 'utf8')));
    const [owner, store] = ['fresh-owner-url', 'fresh-store-url'].map((name) => join(folder, 'etc', name));
    await writeFile(owner, urls[0].replace('/idsvc?', '/fresh?'), { mode: 0o600 });
    await writeFile(store, urls[1].replace('/idsvc?', '/fresh?'), { mode: 0o600 });
    await shell(`psql --no-psqlrc -c 'CREATE DATABASE fresh OWNER idsvc_owner' postgres
      psql --no-psqlrc -c 'CREATE SCHEMA idsvc AUTHORIZATION idsvc_owner; GRANT USAGE ON SCHEMA idsvc TO idsvc;
        ALTER DEFAULT PRIVILEGES FOR ROLE idsvc_owner IN SCHEMA idsvc GRANT EXECUTE ON FUNCTIONS TO idsvc' fresh`);
    const fresh = { IDSVC_DATA_DIR: join(folder, 'fresh'), IDSVC_STORE_URL_FILE: store };
    const code = block('idsvc init\n').replaceAll(join(folder, 'etc/owner-url'), owner);
    await assert.rejects(shell('idsvc init && idsvc user list', { ...fresh, IDSVC_DATA_DIR: join(folder, 'early') }), /run idsvc migrate/);
    assert.match(await shell(code, fresh), /the database is set up/);
    assert.match(await shell('idsvc doctor', fresh), /0 to be mended/);
  });

  it('goes on at the standby after a failover', async () => {
    await database.pause();
    await shell(`psql --no-psqlrc -c 'SELECT pg_promote()' postgres\n${block('ALTER SYSTEM SET')}`, standby.environment);
    for (const name of NODES) await until(`${name} is ready`, async () => (await get(ports[name], '/readyz')).status === 200);
    await shell('idsvc user add carol@example.com --generate-password', { IDSVC_DATA_DIR: join(folder, 'node1') });
    assert.match(await shell('idsvc user list', { IDSVC_DATA_DIR: join(folder, 'node3') }), /carol@example\.com/);
  });
});

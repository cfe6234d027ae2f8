// Starts the image as compose.yaml and the manifests of Kubernetes do, and checks both against the schemas.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { appendFile, chmod, chown, copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { certificates } from './certificates.mjs';
import { ComposeService, Podman, Sandbox } from './engine.mjs';
import { blocksOf, read } from './guide.mjs';
import { binary, freePort } from './harness.mjs';
import { Postgres } from './postgres.mjs';
import { PACKAGING, composeTerms, documents, makeSecret, openToGroup, podOf, podTerms, venv } from './terms.mjs';

const run = promisify(execFile);
const MANIFESTS = ['one-node.yaml', 'several-nodes.yaml', 'migrate.yaml'];
const HOST = 'id.example.com';
/** The group of the image, and of `fsGroup`. */
const GROUP = 65532;
const ONE_NODE = 'kubernetes/one-node.yaml';
const OPENSHIFT = { runAsUser: 1000660000, runAsGroup: 0, fsGroup: 1000660000 };

/** Volumes as clusters give them to the pod of one node. */
const VOLUMES = [
  { what: 'a volume of fsGroup', owner: [0, GROUP], mode: 0o2775 },
  { what: 'a volume of fsGroup that is the data directory itself', owner: [0, GROUP], mode: 0o2775, dataDir: '/data' },
  { what: 'a volume that is open to everybody', owner: [0, 0], mode: 0o777 },
  { what: 'a volume of OpenShift', owner: [0, OPENSHIFT.fsGroup], mode: 0o2775, identity: OPENSHIFT },
  { what: 'a volume of OpenShift that is the data directory itself', owner: [0, OPENSHIFT.fsGroup], mode: 0o2775, identity: OPENSHIFT, dataDir: '/data' },
];

/** Reports what this machine does not permit. */
async function notRun(what) {
  console.log(`NOT RUN: ${what}`);
  if (process.env.IDSVC_LONG_REPORT) await appendFile(process.env.IDSVC_LONG_REPORT, `containers NOT RUN: ${what}\n`);
}

/** Waits until something is so, at most a minute. */
async function until(what, container, isSo) {
  for (const deadline = Date.now() + 60_000; Date.now() < deadline; await sleep(100)) {
    if (await isSo()) return;
    if (await container.hasEnded()) break;
  }
  assert.fail(`${what} was not so\n${await container.log()}`);
}

/** The answer of a service on this port, asked by its name or as the kubelet does: by address, without verification. */
function get(port, path, tls = { rejectUnauthorized: false }) {
  return new Promise((done) => {
    const options = { host: '127.0.0.1', port, path, agent: false, ...tls };
    request(options, async (answer) => {
      let body = '';
      for await (const part of answer.setEncoding('utf8')) body += part;
      done({ status: answer.statusCode, body });
    })
      .on('error', (error) => done({ status: 0, body: error.message }))
      .end();
  });
}

/** What the kernel says of a process. */
async function standing(pid) {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  const field = (name) => new RegExp(`^${name}:\\s*(.*)$`, 'm').exec(status)[1].split(/\s+/);
  const mounts = (await readFile(`/proc/${pid}/mountinfo`, 'utf8')).split('\n').map((line) => line.split(' '));
  return {
    user: [...new Set([...field('Uid'), ...field('Gid')])].map(Number),
    capabilities: ['CapPrm', 'CapEff', 'CapBnd', 'CapAmb'].map((name) => BigInt(`0x${field(name)[0]}`)),
    noNewPrivileges: field('NoNewPrivs')[0] === '1',
    isReadOnly: mounts.filter((mount) => mount[4] === '/').at(-1)[5].split(',').includes('ro'),
  };
}

/** That a service has no right that it does not need. */
async function assertConfined(container, user) {
  const found = await standing(await container.pid());
  const none = [0n, 0n, 0n, 0n];
  assert.deepEqual(found, { user, capabilities: none, noNewPrivileges: true, isReadOnly: true });
}

/** Adds a client to a running service. */
async function addClient(container) {
  await container.exec(['client', 'add', 'app', '--public', '--redirect-uri', 'https://app.example.com/callback']);
}

async function assertClient(container) {
  const clients = await container.exec(['client', 'list']);
  assert.match(clients, /\bapp\b/);
}

it('the files name the images of this release', async () => {
  const [, version] = /^version = "(.*)"$/m.exec(await read('Cargo.toml'));
  const names = ['compose.yaml', ...MANIFESTS.map((name) => `kubernetes/${name}`)];
  const texts = await Promise.all(names.map((name) => read(`packaging/${name}`)));
  const found = texts.map((text) => [...text.matchAll(/image: ghcr\.io\/OWNER\/(\S+)/g)].map(([, image]) => image));
  const several = `idsvc-postgres:${version}`;
  assert.deepEqual(found, [[`idsvc:${version}`], [`idsvc:${version}`], [several], [several]]);
});

describe('the schemas', () => {
  for (const name of MANIFESTS) {
    it(`of Kubernetes accept ${name}`, async () => {
      const file = join(PACKAGING, 'kubernetes', name);
      const { stdout, stderr } = await run(join(venv, 'bin/kubernetes-validate'), ['--strict', file]);
      assert.match(stdout + stderr, /passed for resource/);
    });
  }

  it('of Kubernetes refuse a word that they do not know', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'idsvc-schema-'));
    const text = await read(`packaging/${ONE_NODE}`);
    await writeFile(join(folder, 'wrong.yaml'), text.replace('readOnlyRootFilesystem', 'readOnlyRoot'));
    const refused = run(join(venv, 'bin/kubernetes-validate'), ['--strict', join(folder, 'wrong.yaml')]);
    await assert.rejects(refused, ({ stdout, stderr }) => /'readOnlyRoot' was unexpected/.test(stdout + stderr));
    await rm(folder, { recursive: true });
  });

  it('of Compose accept compose.yaml', async (test) => {
    const program = process.env.IDSVC_COMPOSE_READER;
    if (!program) {
      await notRun('the schema of Compose needs Go');
      return test.skip();
    }
    await run(program, [join(PACKAGING, 'compose.yaml')]);
  });
});

const isRoot = process.getuid() === 0;
if (!isRoot) await notRun('only root can start containers with these terms');

describe('containers', { timeout: 15 * 60_000, skip: !isRoot }, () => {
  let [folder, engine, tls, count] = [undefined, undefined, undefined, 0];

  const place = async (name) => {
    count += 1;
    const made = join(folder, `${count}-${name}`);
    await mkdir(made);
    return made;
  };
  /** Asks by the name of the service, with its certificate. */
  const issuerAt = async (port) => {
    const { body } = await get(port, '/.well-known/openid-configuration', { servername: HOST, ca: tls.ca, headers: { host: HOST } });
    return JSON.parse(body).issuer;
  };

  before(async () => {
    folder = await mkdtemp('/tmp/idsvc-containers-');
    await chmod(folder, 0o755);
    tls = await certificates(await place('tls'), HOST);
    // The static executable cannot use PostgreSQL.
    const executables = { idsvc: process.env.IDSVC_STATIC || binary, 'idsvc-postgres': binary };
    engine = new Podman(await place('podman'));
    const used = await engine.prepare(executables).catch(async (error) => {
      await notRun(`no container engine works on this machine: ${error.message}`);
      engine = new Sandbox(await place('sandbox'));
      return engine.prepare(executables);
    });
    console.log(used);
  });

  afterEach(() => engine.clear());

  after(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  it('compose.yaml starts a service that has no right too many, and keeps its volume', async () => {
    const [project, port] = [await place('project'), await freePort()];
    for (const name of ['tls', 'secrets']) await mkdir(join(project, name));
    const files = { 'tls/fullchain.pem': tls.cert, 'tls/privkey.pem': tls.key, 'secrets/backup-passphrase': 'correct horse battery staple\n' };
    for (const [name, text] of Object.entries(files)) {
      await writeFile(join(project, name), text, { mode: 0o440 });
      await chown(join(project, name), 0, GROUP);
    }
    await copyFile(join(PACKAGING, 'compose.yaml'), join(project, 'compose.yaml'));
    const environment = { IDSVC_LISTEN: `127.0.0.1:${port}` };
    const changes = { image: 'localhost/idsvc', network_mode: 'host', environment };
    await writeFile(join(project, 'changes.yaml'), JSON.stringify({ services: { idsvc: changes } }));
    const [{ services: { idsvc: service } }] = await documents('compose.yaml');

    let container;
    if (engine instanceof Podman) {
      container = new ComposeService(engine, join(venv, 'bin/podman-compose'), [join(project, 'compose.yaml'), join(project, 'changes.yaml')]);
    } else {
      const data = await place('data');
      await chown(data, GROUP, GROUP);
      await chmod(data, 0o700);
      container = engine.container('compose', composeTerms(service, 'idsvc', { folder: project, places: { data }, environment }));
      const health = service.healthcheck.test.slice(2);
      container.isHealthy = () => container.exec(health).then(() => true, () => false);
    }

    await container.up();
    await until('the service is healthy', container, () => container.isHealthy());
    assert.equal(await issuerAt(port), `https://${HOST}`);
    await assertConfined(container, [GROUP]);
    await addClient(container);
    const backup = await container.exec(['backup', '-', '--passphrase-file', service.environment.IDSVC_BACKUP_PASSPHRASE_FILE]);
    assert.match(backup, /^age-encryption\.org/);
    assert.equal(await container.down(), 0);
    await container.up();
    await until('the service is healthy again', container, () => container.isHealthy());
    await assertClient(container);
    assert.equal(await container.down(), 0);
  });

  for (const { what, owner, mode, identity, dataDir } of VOLUMES) {
    it(`one-node.yaml starts, and starts again, with ${what}`, async () => {
      const pod = await podOf(ONE_NODE);
      const group = identity?.fsGroup ?? pod.securityContext.fsGroup;
      const [data, port, metrics] = [await place('data'), await freePort(), await freePort()];
      await chown(data, ...owner);
      await chmod(data, mode);
      const places = { data };
      const secrets = { tls: { 'tls.crt': tls.cert, 'tls.key': tls.key }, backup: { passphrase: 'correct horse battery staple\n' } };
      for (const { name, secret } of pod.volumes) {
        places[name] = await place(name);
        await makeSecret(places[name], secrets[name], { mode: secret.defaultMode, group });
      }
      const environment = { IDSVC_LISTEN: `127.0.0.1:${port}`, IDSVC_METRICS_LISTEN: `127.0.0.1:${metrics}` };
      if (dataDir) environment.IDSVC_DATA_DIR = dataDir;
      const [only] = pod.containers;
      const container = engine.container('one-node', podTerms(pod, only, 'idsvc', { places, environment, identity }));
      const isReady = async () => {
        const probes = [only.startupProbe, only.livenessProbe, only.readinessProbe].map(({ httpGet }) => httpGet);
        assert.ok(probes.every(({ port, scheme }) => port === 'https' && scheme === 'HTTPS'));
        const answers = await Promise.all(probes.map(({ path }) => get(port, path)));
        return answers.every(({ status }) => status === 200);
      };

      await container.up();
      await until('the pod is ready', container, isReady);
      await assertConfined(container, identity ? [identity.runAsUser, identity.runAsGroup] : [GROUP]);
      await addClient(container);
      assert.equal(await container.down(), 0);
      if (owner[1] === group) await openToGroup(data, group);
      await container.up();
      await until('the pod is ready again', container, isReady);
      await assertClient(container);
      assert.equal(await container.down(), 0);
    });
  }

  it('several-nodes.yaml starts nodes that share a database, after migrate.yaml', async () => {
    const certificate = await certificates(await place('database'), 'localhost');
    const page = blocksOf(await read('packaging/guide/run-several-nodes.md'));
    const database = await Postgres.start('max_locks_per_transaction = 256\nssl = on\n', certificate);
    try {
      const work = await place('work');
      const roles = page.find(({ code }) => code.includes('CREATE ROLE')).code;
      const env = { ...process.env, ...database.environment };
      const hosts = 'db1.example.com,db2.example.com';
      await run('bash', ['-euo', 'pipefail', '-c', roles.replace(hosts, `localhost:${database.port}`)], { cwd: work, env });
      const [ownerUrl, storeUrl] = await Promise.all(['owner-url', 'store-url'].map((name) => readFile(join(work, name), 'utf8')));
      await run(binary, ['init', '--data-dir', join(work, 'key')], { cwd: work });
      const key = await readFile(join(work, 'key/master.key'), 'utf8');
      const secrets = {
        tls: { 'tls.crt': tls.cert, 'tls.key': tls.key },
        store: { 'store-url': storeUrl, 'database-ca.pem': certificate.ca },
        owner: { 'owner-url': ownerUrl, 'database-ca.pem': certificate.ca },
        'master-key': { 'master.key': key },
      };
      const placesOf = async ({ volumes, securityContext }) => {
        const places = {};
        for (const { name, secret } of volumes) {
          places[name] = await place(name);
          if (secret) {
            await makeSecret(places[name], secrets[name], { mode: secret.defaultMode, group: securityContext.fsGroup });
          } else {
            // An emptyDir is open to everybody, and to fsGroup.
            await chown(places[name], 0, securityContext.fsGroup);
            await chmod(places[name], 0o2777);
          }
        }
        return places;
      };

      const job = await podOf('kubernetes/migrate.yaml');
      const migration = podTerms(job, job.containers[0], 'idsvc-postgres', { places: await placesOf(job) });
      assert.match(await engine.container('migrate', migration).toEnd(), /the database is set up/);

      const pod = await podOf('kubernetes/several-nodes.yaml');
      const nodes = [];
      for (const name of ['first', 'second']) {
        const [places, port, metrics] = [await placesOf(pod), await freePort(), await freePort()];
        const environment = { IDSVC_LISTEN: `127.0.0.1:${port}`, IDSVC_METRICS_LISTEN: `127.0.0.1:${metrics}` };
        const [first] = pod.initContainers;
        await engine.container(`${name}-${first.name}`, podTerms(pod, first, 'busybox', { places })).toEnd();
        const node = engine.container(name, podTerms(pod, pod.containers[0], 'idsvc-postgres', { places, environment }));
        await node.up();
        await until(`the ${name} node is ready`, node, async () => (await get(port, '/readyz')).status === 200);
        await assertConfined(node, [GROUP]);
        nodes.push(node);
      }
      await addClient(nodes[0]);
      await assertClient(nodes[1]);
      for (const node of nodes) assert.equal(await node.down(), 0);
    } finally {
      await engine.clear();
      await database.stop();
    }
  });
});

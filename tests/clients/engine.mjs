// Runs images in containers: with podman, or, where no engine works, with the same terms as bwrap and setpriv make them.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, copyFile, mkdir, readFile, rename, symlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const CONTAINERFILE = resolve(import.meta.dirname, '../../packaging/Containerfile');
const BUSYBOX = '/bin/busybox';
/** As in the manifests. */
const STOP_SECONDS = 45;

/** The libraries that an executable loads, as paths. A static one loads none. */
async function librariesOf(executable) {
  const { stdout } = await run('ldd', [executable]).catch(() => ({ stdout: '' }));
  return [...stdout.matchAll(/(\/\S+) \(0x/g)].map(([, path]) => path);
}

/** Makes the context of packaging/Containerfile, as packaging/build does, with the libraries of a debug binary. */
async function makeContext(folder, executable) {
  const root = join(folder, 'rootfs');
  await mkdir(join(root, 'data'), { recursive: true });
  await chmod(join(root, 'data'), 0o700);
  await copyFile(executable, join(folder, 'idsvc'));
  await chmod(join(folder, 'idsvc'), 0o755);
  for (const library of await librariesOf(executable)) {
    await mkdir(dirname(join(root, library)), { recursive: true });
    await copyFile(library, join(root, library));
  }
}

/** Makes the root directory of an image with a shell. */
async function makeShell(root) {
  await mkdir(join(root, 'bin'), { recursive: true });
  await copyFile(BUSYBOX, join(root, 'bin/busybox'));
  await chmod(join(root, 'bin/busybox'), 0o755);
  for (const name of ['sh', 'mkdir', 'cp']) await symlink('busybox', join(root, 'bin', name));
}

/** Podman's runtimes. Inside a container there may be no control groups that one could make. */
const RUNTIMES = [['crun', 'enabled'], ['runc', 'enabled'], ['crun', 'disabled']];

export class Podman {
  #folder;
  #environment;

  constructor(folder) {
    this.#folder = folder;
  }

  /** Builds the images, and chooses a runtime that works here. Throws if none does. */
  async prepare(executables) {
    const faults = [];
    for (const [runtime, groups] of RUNTIMES) {
      await this.#configure(runtime, groups);
      if (runtime === RUNTIMES[0][0] && faults.length === 0) await this.#build(executables);
      try {
        await this.run(['run', '--rm', `localhost/${Object.keys(executables)[0]}`, '--version']);
        return `podman with ${runtime}, control groups ${groups}`;
      } catch (error) {
        await this.clear();
        faults.push(`${runtime}: ${(error.stderr ?? error.message).trim().split('\n').at(-1)}`);
      }
    }
    throw new Error(faults.join('; '));
  }

  async #configure(runtime, groups) {
    const file = (name) => join(this.#folder, name);
    const quoted = (name) => JSON.stringify(file(name));
    await writeFile(file('storage.conf'), `[storage]\ndriver = "vfs"\ngraphroot = ${quoted('images')}\nrunroot = ${quoted('run')}\n`);
    const settings = [
      '[containers]',
      `cgroups = "${groups}"`,
      // The machine may lack a tool that makes networks, and the right to raise limits.
      'netns = "host"',
      'default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]',
      '[engine]',
      `runtime = "${runtime}"`,
      'cgroup_manager = "cgroupfs"',
      'events_logger = "none"',
      'lock_type = "file"',
      `tmp_dir = ${quoted('tmp')}`,
    ];
    await writeFile(file('containers.conf'), `${settings.join('\n')}\n`);
    this.#environment = {
      ...process.env,
      CONTAINERS_CONF: file('containers.conf'),
      CONTAINERS_STORAGE_CONF: file('storage.conf'),
      // There may be no systemd that asks for the health. The tests do.
      DISABLE_HC_SYSTEMD: 'true',
    };
  }

  async #build(executables) {
    const words = ['build', '--layers=false', '--quiet'];
    for (const [name, executable] of Object.entries(executables)) {
      const context = join(this.#folder, `context-${name}`);
      await makeContext(context, executable);
      await this.run([...words, '--file', CONTAINERFILE, '--tag', `localhost/${name}`, context]);
    }
    const context = join(this.#folder, 'context-busybox');
    await makeShell(join(context, 'rootfs'));
    await writeFile(join(context, 'Containerfile'), 'FROM scratch\nCOPY rootfs/ /\nENV PATH=/bin\n');
    await this.run([...words, '--tag', 'localhost/busybox', context]);
  }

  /** Runs podman, or another program with its settings. */
  run(words, { program = 'podman', cwd } = {}) {
    return run(program, words, { env: this.#environment, cwd, timeout: 120_000, maxBuffer: 1 << 26 });
  }

  container(name, terms) {
    return new PodmanContainer(this, name, terms);
  }

  /** Removes the containers. */
  async clear() {
    await this.run(['rm', '--all', '--force', '--time', '0']);
  }
}

class PodmanContainer {
  constructor(podman, name, terms) {
    Object.assign(this, { podman, name, terms });
  }

  #start(flags) {
    const { image, user, groups, isReadOnly, drop, noNewPrivileges, environment, mounts, command, words } = this.terms;
    if (user) flags.push('--user', user);
    for (const group of groups) flags.push('--group-add', `${group}`);
    if (isReadOnly) flags.push('--read-only', '--read-only-tmpfs=false');
    for (const capability of drop) flags.push('--cap-drop', capability);
    if (noNewPrivileges) flags.push('--security-opt', 'no-new-privileges');
    for (const [key, value] of Object.entries(environment)) flags.push('--env', `${key}=${value}`);
    for (const { source, target, isReadOnly } of mounts) flags.push('--volume', `${source}:${target}${isReadOnly ? ':ro' : ''}`);
    if (command) flags.push('--entrypoint', JSON.stringify(command));
    return this.podman.run(['run', '--name', this.name, ...flags, `localhost/${image}`, ...words]);
  }

  async up() {
    await this.#start(['--detach']);
  }

  /** Runs it to its end, and returns what it prints. */
  async toEnd() {
    return (await this.#start(['--rm'])).stdout;
  }

  /** Runs a command of the service in the container, and returns what it prints. */
  async exec(words) {
    return (await this.podman.run(['exec', this.name, '/idsvc', ...words])).stdout;
  }

  async #inspect(field) {
    return (await this.podman.run(['inspect', '--format', `{{.State.${field}}}`, this.name])).stdout.trim();
  }

  async pid() {
    return Number(await this.#inspect('Pid'));
  }

  async hasEnded() {
    return (await this.#inspect('Running')) === 'false';
  }

  async log() {
    const { stdout, stderr } = await this.podman.run(['logs', this.name]).catch((error) => error);
    return `${stdout}${stderr}`;
  }

  /** Stops it in order, and returns its exit code. */
  async stop() {
    await this.podman.run(['stop', '--time', `${STOP_SECONDS}`, this.name]);
    return Number(await this.#inspect('ExitCode'));
  }

  /** Stops it and removes it, without what it mounts. Returns its exit code. */
  async down() {
    const code = await this.stop();
    await this.podman.run(['rm', this.name]);
    return code;
  }
}

/** The service `idsvc` of compose files. The first is the one of packaging, and others change it. */
export class ComposeService extends PodmanContainer {
  constructor(podman, program, files) {
    super(podman, 'project_idsvc_1');
    Object.assign(this, { program, files });
  }

  #compose(...words) {
    const files = this.files.flatMap((file) => ['--file', basename(file)]);
    const all = ['--in-pod', 'false', '--project-name', 'project', ...files, ...words];
    return this.podman.run(all, { program: this.program, cwd: dirname(this.files[0]) });
  }

  async up() {
    await this.#compose('up', '--detach');
  }

  async exec(words) {
    return (await this.#compose('exec', '-T', 'idsvc', '/idsvc', ...words)).stdout;
  }

  /** Whether the health command of the file says that all is well. */
  isHealthy() {
    return this.podman.run(['healthcheck', 'run', this.name]).then(() => true, () => false);
  }

  /** Removes the container and keeps the volumes. */
  async down() {
    const code = await this.stop();
    await this.#compose('down');
    return code;
  }
}

/** Makes the terms of a container without an engine. Only root can. */
export class Sandbox {
  #folder;
  #roots = 0;
  #children = [];

  constructor(folder) {
    this.#folder = folder;
  }

  async prepare(executables) {
    for (const [name, executable] of Object.entries(executables)) {
      const context = join(this.#folder, `context-${name}`);
      await makeContext(context, executable);
      await rename(join(context, 'idsvc'), join(context, 'rootfs/idsvc'));
    }
    await makeShell(join(this.#folder, 'context-busybox/rootfs'));
    return 'no engine: bwrap and setpriv';
  }

  /** Makes a root directory with what the image holds, and with setpriv, which runs the command as another user. */
  async makeRoot({ image, mounts }) {
    this.#roots += 1;
    const root = join(this.#folder, `root-${this.#roots}`);
    await run('cp', ['-a', join(this.#folder, `context-${image}`, 'rootfs'), root]);
    await run('chown', ['-R', '65532:65532', root]);
    const setpriv = (await run('which', ['setpriv'])).stdout.trim();
    const folders = ['/proc', '/dev', '/data', '/etc', '/.setpriv', ...mounts.map(({ target }) => target)];
    for (const folder of folders) await mkdir(join(root, folder), { recursive: true });
    await writeFile(join(root, 'etc/hosts'), '127.0.0.1 localhost\n');
    const files = [setpriv, ...(await librariesOf(setpriv))];
    for (const file of files) await copyFile(file, join(root, '.setpriv', basename(file)));
    const loader = basename(files.find((file) => basename(file).startsWith('ld-')));
    const become = [`/.setpriv/${loader}`, '--library-path', '/.setpriv', '/.setpriv/setpriv'];
    return { root, become };
  }

  container(name, terms) {
    return new SandboxContainer(this, terms);
  }

  spawn(words) {
    const child = spawn('bwrap', words, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.#children.push(child);
    return child;
  }

  async clear() {
    for (const child of this.#children) child.kill('SIGKILL');
  }
}

class SandboxContainer {
  #child;
  #ended;
  #log = '';
  #place;

  constructor(sandbox, terms) {
    Object.assign(this, { sandbox, terms });
  }

  /** The words that run a command with the terms of the container. */
  #words(command) {
    const { root, become } = this.#place;
    const { user, groups, isReadOnly, drop, noNewPrivileges, environment, mounts } = this.terms;
    const [uid, gid] = (user ?? '65532:65532').split(':');
    const words = ['--unshare-pid', '--as-pid-1', '--die-with-parent', isReadOnly ? '--ro-bind' : '--bind', root, '/'];
    words.push('--proc', '/proc', '--dev', '/dev', '--chdir', '/data', '--clearenv', '--setenv', 'PATH', '/bin');
    const defaults = { IDSVC_DATA_DIR: '/data', IDSVC_LISTEN: '0.0.0.0:8443' };
    for (const [name, value] of Object.entries({ ...defaults, ...environment })) words.push('--setenv', name, value);
    for (const mount of mounts) words.push(mount.isReadOnly ? '--ro-bind' : '--bind', mount.source, mount.target);
    words.push('--cap-add', 'ALL', '--', ...become, '--reuid', uid, '--regid', gid);
    words.push(...(groups.length > 0 ? ['--groups', groups.join()] : ['--clear-groups']));
    if (drop.includes('ALL')) words.push('--inh-caps=-all', '--bounding-set=-all');
    if (noNewPrivileges) words.push('--no-new-privs');
    return [...words, '--', ...command];
  }

  #command() {
    return [...(this.terms.command ?? ['/idsvc']), ...(this.terms.command || this.terms.words.length > 0 ? this.terms.words : ['serve'])];
  }

  async up() {
    this.#place ??= await this.sandbox.makeRoot(this.terms);
    this.#child = this.sandbox.spawn(this.#words(this.#command()));
    this.#ended = once(this.#child, 'close');
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        this.#log += text;
      });
    }
  }

  async toEnd() {
    await this.up();
    const [code] = await this.#ended;
    if (code !== 0) throw new Error(`exit code ${code}\n${this.#log}`);
    return this.#log;
  }

  async exec(words) {
    return (await run('bwrap', this.#words(['/idsvc', ...words]), { timeout: 120_000 })).stdout;
  }

  async pid() {
    const { pid } = this.#child;
    return Number((await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8')).trim());
  }

  async hasEnded() {
    return this.#child.exitCode !== null;
  }

  async log() {
    return this.#log;
  }

  async down() {
    process.kill(await this.pid(), 'SIGTERM');
    const [code] = await this.#ended;
    return code;
  }
}

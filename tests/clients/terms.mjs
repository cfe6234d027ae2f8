// Reads the terms of containers from packaging: what compose.yaml and the manifests of Kubernetes ask an engine for.

import { execFile } from 'node:child_process';
import { chmod, chown, mkdir, readdir, symlink, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
export const PACKAGING = resolve(import.meta.dirname, '../../packaging');
/** Where the packages of containers.txt are. */
export const venv = process.env.IDSVC_CONTAINERS_VENV;
const READ = 'import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))';

/** The documents of a YAML file of packaging. */
export async function documents(file) {
  const { stdout } = await run(join(venv, 'bin/python'), ['-c', READ, join(PACKAGING, file)]);
  return JSON.parse(stdout);
}

/** The template of the pods of a manifest. */
export async function podOf(file) {
  const kinds = ['StatefulSet', 'Deployment', 'Job'];
  return (await documents(file)).find(({ kind }) => kinds.includes(kind)).spec.template.spec;
}

/**
 * The terms of one container of a pod. `places` has the folder of each volume, and `identity` takes the place of the
 * user and the groups.
 */
export function podTerms(pod, container, image, { places, environment = {}, identity }) {
  const { runAsUser, runAsGroup, fsGroup } = { ...pod.securityContext, ...identity };
  const { securityContext, env = [], volumeMounts, command, args = [] } = container;
  return {
    image,
    user: `${runAsUser}:${runAsGroup}`,
    groups: [fsGroup],
    isReadOnly: securityContext.readOnlyRootFilesystem === true,
    drop: securityContext.capabilities?.drop ?? [],
    noNewPrivileges: securityContext.allowPrivilegeEscalation === false,
    environment: { ...Object.fromEntries(env.map(({ name, value }) => [name, value])), ...environment },
    mounts: volumeMounts.map(({ name, mountPath, readOnly }) => ({ source: places[name], target: mountPath, isReadOnly: readOnly })),
    command,
    words: args,
  };
}

/** The terms of a service of a compose file, whose named volumes are in these folders. */
export function composeTerms(service, image, { folder, places, environment }) {
  const mounts = service.volumes.map((volume) => {
    const [source, target, mode] = volume.split(':');
    return { source: places[source] ?? join(folder, source), target, isReadOnly: mode === 'ro' };
  });
  return {
    image,
    user: service.user,
    groups: [],
    isReadOnly: service.read_only === true,
    drop: service.cap_drop ?? [],
    noNewPrivileges: (service.security_opt ?? []).includes('no-new-privileges:true'),
    environment: { ...service.environment, ...environment },
    mounts: [...mounts, { source: join(folder, 'secrets'), target: '/run/secrets', isReadOnly: true }],
    words: [],
  };
}

/** Writes the files of a secret as the kubelet does: behind links, with the mode of the volume, for its group. */
export async function makeSecret(folder, files, { mode, group }) {
  const data = join(folder, '..2026_11_29');
  await mkdir(data, { recursive: true });
  await symlink('..2026_11_29', join(folder, '..data'));
  for (const [name, text] of Object.entries(files)) {
    await writeFile(join(data, name), text);
    await chown(join(data, name), 0, group);
    await chmod(join(data, name), mode);
    await symlink(join('..data', name), join(folder, name));
  }
}

/** Opens a volume and all that is in it to a group, as the kubelet does for `fsGroup`. */
export async function openToGroup(folder, group) {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const inside = entries.filter((entry) => !entry.isSymbolicLink()).map((entry) => [join(entry.parentPath ?? entry.path, entry.name), entry.isDirectory()]);
  for (const [path, isFolder] of [[folder, true], ...inside]) {
    await run('chown', [`:${group}`, path]);
    await run('chmod', [isFolder ? 'g+rwxs' : 'g+rw', path]);
  }
}

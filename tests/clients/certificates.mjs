// Makes a certificate authority and a certificate with openssl.

import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** A certificate authority and a certificate for `host`. Both are written to the directory. */
export async function certificates(directory, host) {
  const file = (name) => join(directory, name);
  const fresh = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
  const make = (...words) => run('openssl', ['req', '-x509', ...fresh, ...words]);
  await writeFile(file('empty.cnf'), '[req]\ndistinguished_name = name\n[name]\n');
  const plain = ['-config', file('empty.cnf')];
  await make(
    ...plain, '-keyout', file('ca.key'), '-out', file('ca.pem'), '-subj', '/CN=Authority of the tests',
    '-addext', 'basicConstraints=critical,CA:TRUE', '-addext', 'keyUsage=critical,keyCertSign',
  );
  const kind = /^[0-9.]+$/.test(host) ? 'IP' : 'DNS';
  await make(
    ...plain, '-CA', file('ca.pem'), '-CAkey', file('ca.key'), '-keyout', file('key.pem'), '-out', file('cert.pem'),
    '-subj', `/CN=${host}`, '-addext', `subjectAltName=${kind}:${host}`, '-addext', 'basicConstraints=critical,CA:FALSE',
  );
  const [ca, cert, privateKey] = await Promise.all(['ca', 'cert', 'key'].map((name) => readFile(file(`${name}.pem`), 'utf8')));
  return { caFile: file('ca.pem'), ca, cert, key: privateKey };
}

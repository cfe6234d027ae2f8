// Apache httpd with mod_auth_openidc as an application on loopback, over TLS.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Agent, fetch as undiciFetch } from 'undici';
import { certificates } from './certificates.mjs';
import { freePort, spkiOf } from './harness.mjs';

const MODULES = ['mpm_event', 'authn_core', 'authz_core', 'authz_user', 'include', 'ssl', 'auth_openidc'];

/** The page shows what the module knows of the user. */
const PAGE = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Application</title><link rel="icon" href="data:,">
<p id="sub"><!--#echo var="OIDC_CLAIM_sub" --></p><p id="sid"><!--#echo var="OIDC_CLAIM_sid" --></p></html>`;

export class Httpd {
  #agent;
  #child;
  #ended;

  /** `fetch` that trusts the authority of Apache's certificate. */
  fetch = (url, options = {}) => undiciFetch(url, { ...options, dispatcher: this.#agent });

  /** Makes the folder, the port and the certificate. The host is another site than localhost. */
  static async prepare(host = '127.0.0.1') {
    const httpd = new Httpd();
    httpd.folder = await mkdtemp(join(tmpdir(), 'idsvc-httpd-'));
    // If the tests run as root, Apache serves as another user.
    await chmod(httpd.folder, 0o755);
    Object.assign(httpd, await certificates(httpd.folder, host));
    httpd.port = await freePort();
    httpd.origin = `https://${host}:${httpd.port}`;
    httpd.redirectUri = `${httpd.origin}/callback`;
    httpd.logoutUri = `${httpd.redirectUri}?logout=backchannel`;
    httpd.spki = spkiOf(httpd.cert);
    httpd.#agent = new Agent({ connect: { ca: httpd.ca } });
    return httpd;
  }

  /** Starts Apache, whose users sign in at the server by this client. */
  async start(server, client) {
    const file = (name) => join(this.folder, name);
    await mkdir(file('htdocs'));
    await writeFile(file('htdocs/index.html'), PAGE);
    await writeFile(file('service.pem'), server.ca);
    await writeFile(file('httpd.conf'), `
ServerRoot ${this.folder}
ServerName ${new URL(this.origin).host}
Listen 127.0.0.1:${this.port}
PidFile ${file('httpd.pid')}
ErrorLog ${file('error.log')}
User www-data
Group www-data
${MODULES.map((name) => `LoadModule ${name}_module /usr/lib/apache2/modules/mod_${name}.so`).join('\n')}
SSLEngine on
SSLCertificateFile ${file('cert.pem')}
SSLCertificateKeyFile ${file('key.pem')}
DocumentRoot ${file('htdocs')}
OIDCProviderMetadataURL ${server.issuer}/.well-known/openid-configuration
OIDCCABundlePath ${file('service.pem')}
OIDCClientID ${client.client_id}
OIDCClientSecret ${client.client_secret}
OIDCRedirectURI ${this.redirectUri}
OIDCScope "openid email"
OIDCPKCEMethod S256
OIDCCryptoPassphrase ${crypto.randomUUID()}
<Location />
  AuthType openid-connect
  Require valid-user
  Options +Includes
  ForceType text/html
  SetOutputFilter INCLUDES
</Location>
`);
    this.#child = spawn('/usr/sbin/apache2', ['-f', file('httpd.conf'), '-D', 'FOREGROUND'], { stdio: ['ignore', 'inherit', 'inherit'] });
    this.#ended = once(this.#child, 'close');
    const deadline = Date.now() + 60_000;
    while (!(await readFile(file('httpd.pid'), 'utf8').catch(() => ''))) {
      assert.equal(this.#child.exitCode, null, `it runs: ${await this.log()}`);
      assert.ok(Date.now() < deadline, 'it starts within a minute');
      await sleep(50);
    }
  }

  log() {
    return readFile(join(this.folder, 'error.log'), 'utf8').catch(() => '');
  }

  /** Ends Apache, which ends its workers, and removes the folder. */
  async stop() {
    await this.#agent.destroy();
    this.#child?.kill('SIGTERM');
    await this.#ended;
    await rm(this.folder, { recursive: true, force: true });
  }
}

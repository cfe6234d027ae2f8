// The MCP server of the guide, and clients of the SDK that know only the address of the server.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:https';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, it } from 'node:test';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { Browser, Callback } from './browser.mjs';
import { certificates } from './certificates.mjs';
import { decode, freePort, Server } from './harness.mjs';
import { answers, Programs } from './programs.mjs';
import { RelyingParty } from './relying-party.mjs';

const PAGE = 'protect-an-mcp-server.md';
const OTHER = 'https://mcp.example.com/other';
const METADATA = {
  client_name: 'Notes for tests',
  redirect_uris: ['http://127.0.0.1/callback'],
  grant_types: ['authorization_code', 'refresh_token'],
  token_endpoint_auth_method: 'none',
};

let folder;
let publisher;
/** The address of the document with METADATA. */
let published;
let server;
let alice;
let programs;
/** The address of the MCP server. */
let address;

/** Serves the metadata of a client over https, with a certificate of an authority of its own. */
async function publish() {
  folder = await mkdtemp(join(tmpdir(), 'idsvc-publisher-'));
  const { key, cert, caFile } = await certificates(folder, 'localhost');
  publisher = createServer({ key, cert }, (request, response) => {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ client_id: published, ...METADATA }));
  }).listen(0, '127.0.0.1');
  await once(publisher, 'listening');
  published = `https://localhost:${publisher.address().port}/client.json`;
  return ['--outbound-ca-file', caFile, '--outbound-allow', '127.0.0.0/8'];
}

before(async () => {
  const outbound = await publish();
  server = await Server.start({
    flags: ['--clients-registration', 'open', '--clients-metadata-documents', 'true', ...outbound],
  });
  alice = await server.addAlice();
  const port = await freePort();
  address = `http://localhost:${port}/mcp`;
  const api = (id, identifier, ...flags) => server.command('api', 'add', id, '--identifier', identifier, ...flags);
  await api('notes', address, '--scope', 'notes.read', '--open');
  await api('other', OTHER, '--scope', 'other.read', '--open');
  programs = await Programs.open(server);
  const adapt = (code) => code.replaceAll(/(?<=localhost:|listen\()8080\b/g, port);
  await answers(await programs.start(PAGE, 'server.mjs', { adapt }), address);
});

after(async () => {
  await programs?.close();
  await server?.stop();
  publisher?.close();
  if (folder) await rm(folder, { recursive: true, force: true });
});

/** A program with the SDK, as an `OAuthClientProvider`. */
class Application {
  redirectUrl = 'http://127.0.0.1:7777/callback';
  clientMetadata = { ...METADATA, redirect_uris: [this.redirectUrl] };
  visits = [];
  saved = [];

  constructor(clientMetadataUrl) {
    this.clientMetadataUrl = clientMetadataUrl;
  }

  state() {
    return 'a state';
  }

  clientInformation() {
    return this.client;
  }

  saveClientInformation(client) {
    this.client = client;
  }

  tokens() {
    return this.saved.at(-1);
  }

  saveTokens(tokens) {
    this.saved.push(tokens);
  }

  codeVerifier() {
    return this.verifier;
  }

  saveCodeVerifier(verifier) {
    this.verifier = verifier;
  }

  redirectToAuthorization(url) {
    this.visits.push(url);
  }

  transport() {
    return new StreamableHTTPClientTransport(new URL(address), { authProvider: this, fetch: server.fetch });
  }

  /** Calls the tool. */
  async call() {
    const client = new Client({ name: 'tests', version: '1.0.0' });
    await client.connect(this.transport());
    const { content } = await client.callTool({ name: 'whoami' });
    await client.close();
    return content[0].text;
  }

  /** Connects without a token, signs Alice in, and exchanges the code. */
  async signIn() {
    const refused = this.transport();
    const client = new Client({ name: 'tests', version: '1.0.0' });
    await assert.rejects(client.connect(refused), UnauthorizedError);
    const { page, callback } = await allow(this.visits.at(-1));
    assert.equal(callback.parameters.get('state'), 'a state');
    assert.equal(callback.parameters.get('iss'), this.client.issuer);
    await refused.finishAuth(callback.parameters.get('code'));
    return page;
  }
}

/** Signs Alice in, and allows what she is asked for. She is asked once for each client and API. */
async function allow(url) {
  const browser = new Browser(server);
  const page = await browser.signIn(await browser.open(url), alice.email, alice.password);
  const callback = page instanceof Callback ? page : await browser.decide(page, 'allow');
  assert.ok(callback instanceof Callback, callback.text);
  return { page, callback };
}

/** Sends a request with a token to the MCP server, without the SDK. */
async function ask(token) {
  const answer = await fetch(address, { method: 'POST', headers: { authorization: `Bearer ${token}` } });
  return { status: answer.status, challenge: answer.headers.get('www-authenticate') };
}

for (const [way, documentOf] of [
  ['registers itself', () => undefined],
  ['publishes its metadata', () => published],
]) {
  describe(`a client that ${way}`, () => {
    it('signs a person in, calls a tool, refreshes, and calls it again', async () => {
      const application = new Application(documentOf());
      const page = await application.signIn();
      assert.match(page.text, /Notes for tests/);
      assert.match(page.text, /on this device/, 'where access goes');
      if (documentOf()) assert.equal(application.client.client_id, published);
      const first = application.tokens();
      assert.equal(decode(first.access_token).payload.aud, address);
      const said = `You are ${alice.uuid}, at ${application.client.client_id}`;
      assert.equal(await application.call(), said);

      application.saveTokens({ ...first, access_token: 'expired' });
      assert.equal(await application.call(), said);
      const next = application.tokens();
      assert.notEqual(next.refresh_token, first.refresh_token);
      assert.equal(decode(next.access_token).payload.aud, address);
      assert.equal(application.visits.length, 1, 'the person is asked once');
    });

    it('is refused with a token for another API', async () => {
      const application = new Application(documentOf());
      await application.signIn();
      const client = { client_id: application.client.client_id, redirect_uri: application.redirectUrl };
      const party = await RelyingParty.discover(server, client);
      const { url, checks } = await party.begin({ scope: 'other.read', resource: OTHER, nonce: undefined });
      const { callback } = await allow(url);
      const tokens = await party.finish(callback, checks);
      assert.equal(decode(tokens.access_token).payload.aud, OTHER);
      const { status, challenge } = await ask(tokens.access_token);
      assert.equal(status, 401);
      assert.match(challenge, /error="invalid_token"/);
    });

    it('is the program of the guide', async () => {
      const words = [address, documentOf()].filter((word) => word);
      const program = await programs.start(PAGE, 'client.mjs', { words });
      const lines = createInterface(program.stdout)[Symbol.asyncIterator]();
      let line;
      do line = (await lines.next()).value;
      while (!line.startsWith('https:'));
      const ended = once(program, 'exit');
      const { callback } = await allow(line);
      assert.equal(await (await fetch(callback.url)).text(), 'Go back to the terminal.');
      assert.match((await lines.next()).value, new RegExp(`^You are ${alice.uuid}, at `));
      assert.deepEqual(await ended, [0, null]);
    });
  });
}

describe('the server', () => {
  it('says where tokens come from, and refuses what it does not understand', async () => {
    const { status, challenge } = await ask('');
    assert.equal(status, 401);
    const document = /resource_metadata="([^"]+)"/.exec(challenge)[1];
    const { resource, authorization_servers } = await (await fetch(document)).json();
    assert.deepEqual({ resource, authorization_servers }, { resource: address, authorization_servers: [server.issuer] });
    assert.match((await ask('none.such.token')).challenge, /error="invalid_token"/);
  });
});

/** VS Code registers each loopback address twice: for any port, and with the port that it prefers. */
const OF_VS_CODE = {
  client_name: 'Visual Studio Code',
  client_uri: 'https://code.visualstudio.com',
  grant_types: ['authorization_code', 'refresh_token'],
  response_types: ['code'],
  redirect_uris: [
    'https://insiders.vscode.dev/redirect',
    'https://vscode.dev/redirect',
    'http://localhost/',
    'http://127.0.0.1/',
    'http://localhost:33418/',
    'http://127.0.0.1:33418/',
  ],
  scope: 'notes.read',
  token_endpoint_auth_method: 'none',
  application_type: 'native',
};

describe('the registration of well-known clients', () => {
  for (const [name, metadata] of [
    ['VS Code', OF_VS_CODE],
    ['Claude', { ...METADATA, client_name: 'Claude', redirect_uris: ['https://claude.ai/api/mcp/auth_callback'] }],
    ['Claude Code', { ...METADATA, client_name: 'Claude Code', redirect_uris: ['http://localhost:54321/callback'] }],
  ]) {
    it(`takes what ${name} sends`, async () => {
      const discovered = await (await server.fetch(`${server.issuer}/.well-known/oauth-authorization-server`)).json();
      const answer = await server.fetch(discovered.registration_endpoint, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(metadata),
      });
      const client = await answer.json();
      assert.equal(answer.status, 201, client.error_description);
      assert.deepEqual(client.redirect_uris, metadata.redirect_uris);
      assert.equal(client.token_endpoint_auth_method, 'none');
    });
  }
});

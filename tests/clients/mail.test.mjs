// A mail as a mail server and a MIME parser that were written elsewhere read it.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { after, before, it } from 'node:test';
import PostalMime from 'postal-mime';
import { SMTPServer } from 'smtp-server';
import { certificates } from './certificates.mjs';
import { Server } from './harness.mjs';

let folder;
let server;
let mailServer;
const taken = [];

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'idsvc-mail-'));
  const { caFile, cert, key } = await certificates(folder, 'localhost');
  mailServer = new SMTPServer({
    cert,
    key,
    authMethods: ['PLAIN'],
    onAuth: ({ username, password }, _session, done) => {
      const isRight = username === 'me@acme.example' && password === 'open sesame';
      done(isRight ? null : new Error('wrong'), { user: username });
    },
    onData: (stream, session, done) => {
      buffer(stream).then((message) => {
        taken.push({ message, envelope: session.envelope, isEncrypted: session.secure });
        done(null, 'taken');
      }, done);
    },
  });
  mailServer.on('error', () => {});
  mailServer.listen(0, '127.0.0.1');
  await once(mailServer.server, 'listening');
  const passwordFile = join(folder, 'password');
  await writeFile(passwordFile, 'open sesame\n', { mode: 0o600 });
  server = await Server.start({
    flags: [
      ...['--mail-url', `smtp://me@acme.example@localhost:${mailServer.server.address().port}`],
      ...['--mail-password-file', passwordFile, '--mail-from', 'Acme Ümlaut <no-reply@acme.example>'],
      ...['--mail-reply-to', 'help@acme.example', '--outbound-ca-file', caFile],
    ],
  });
});

after(async () => {
  await server?.stop();
  mailServer?.close();
  await rm(folder, { recursive: true, force: true });
});

it('a mail is read as it was written', async () => {
  const sent = await server.json('mail', 'test', 'bob@example.com');
  assert.match(sent.answer, /^250 /);
  assert.equal(taken.length, 1);
  const [{ message, envelope, isEncrypted }] = taken;
  assert.ok(isEncrypted);
  assert.equal(envelope.mailFrom.address, 'no-reply@acme.example');
  assert.deepEqual(envelope.rcptTo.map((recipient) => recipient.address), ['bob@example.com']);
  const mail = await PostalMime.parse(message);
  assert.equal(mail.from.name, 'Acme Ümlaut');
  assert.equal(mail.from.address, 'no-reply@acme.example');
  assert.equal(mail.replyTo[0].address, 'help@acme.example');
  assert.deepEqual(mail.to.map((recipient) => recipient.address), ['bob@example.com']);
  assert.match(mail.subject, /^Test mail from /);
  assert.equal(mail.messageId, `<${sent.id}@localhost>`);
  assert.ok(Math.abs(new Date(mail.date) - Date.now()) < 60_000);
  assert.equal(mail.headers.find((header) => header.key === 'auto-submitted').value, 'auto-generated');
  assert.match(mail.text, /This is a test\. Mails from .+ reach this address\./);
  assert.match(mail.html, /<html lang="en" dir="ltr">/);
  assert.match(mail.html, /This is a test\./);
  assert.deepEqual(mail.attachments, []);
});

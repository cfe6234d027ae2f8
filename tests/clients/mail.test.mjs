// A mail as a mail server and a MIME parser that were written elsewhere read it.

import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, it } from 'node:test';
import PostalMime from 'postal-mime';
import { certificates } from './certificates.mjs';
import { Server } from './harness.mjs';
import { Mailbox } from './mailbox.mjs';

let folder;
let server;
let mailbox;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'idsvc-mail-'));
  const { caFile, cert, key } = await certificates(folder, 'localhost');
  mailbox = await Mailbox.start({
    cert,
    key,
    authMethods: ['PLAIN'],
    authOptional: false,
    onAuth: ({ username, password }, _session, done) => {
      const isRight = username === 'me@acme.example' && password === 'open sesame';
      done(isRight ? null : new Error('wrong'), { user: username });
    },
  });
  const passwordFile = join(folder, 'password');
  await writeFile(passwordFile, 'open sesame\n', { mode: 0o600 });
  server = await Server.start({
    flags: [
      ...['--mail-url', `smtp://me@acme.example@localhost:${mailbox.port}`],
      ...['--mail-password-file', passwordFile, '--mail-from', 'Acme Ümlaut <no-reply@acme.example>'],
      ...['--mail-reply-to', 'help@acme.example', '--outbound-ca-file', caFile],
    ],
  });
});

after(async () => {
  await server?.stop();
  mailbox?.stop();
  await rm(folder, { recursive: true, force: true });
});

it('a mail is read as it was written', async () => {
  const sent = await server.json('mail', 'test', 'bob@example.com');
  assert.match(sent.answer, /^250 /);
  const { message, envelope, isEncrypted } = await mailbox.take();
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

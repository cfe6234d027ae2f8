// A mail server that was written elsewhere. It keeps the mails that it is given.

import { once } from 'node:events';
import { buffer } from 'node:stream/consumers';
import PostalMime from 'postal-mime';
import { SMTPServer } from 'smtp-server';

export class Mailbox {
  #server;
  #taken = [];
  #waiting = [];

  /** Starts a mail server on a port of its own. */
  static async start(options = {}) {
    const mailbox = new Mailbox();
    mailbox.#server = new SMTPServer({
      authOptional: true,
      ...options,
      onData: (stream, session, done) => {
        buffer(stream).then((message) => {
          const next = mailbox.#waiting.shift();
          const taken = { message, envelope: session.envelope, isEncrypted: session.secure };
          if (next) next(taken);
          else mailbox.#taken.push(taken);
          done(null, 'taken');
        }, done);
      },
    });
    mailbox.#server.on('error', () => {});
    mailbox.#server.listen(0, '127.0.0.1');
    await once(mailbox.#server.server, 'listening');
    return mailbox;
  }

  get port() {
    return this.#server.server.address().port;
  }

  /** The oldest mail that was not read yet, as it came in. */
  async take() {
    return this.#taken.shift() ?? new Promise((done) => this.#waiting.push(done));
  }

  /** The same, parsed, with its link and its code. */
  async read() {
    const { message } = await this.take();
    const mail = await PostalMime.parse(message);
    mail.link = /https:\/\/\S+/.exec(mail.text)?.[0];
    mail.code = /^\s*(\d{6})\s*$/m.exec(mail.text)?.[1];
    return mail;
  }

  stop() {
    this.#server.close();
  }
}

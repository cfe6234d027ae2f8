// The programs of the README.

import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';

/** What a paragraph that begins like this has: the words of its command, and its program. */
export async function sample(paragraph) {
  const readme = await readFile(resolve(import.meta.dirname, '../../README.md'), 'utf8');
  const begin = readme.indexOf(`**${paragraph}**`);
  const [, words, code] = /^[^\n]*`idsvc ([^`]+)`[^\n]*\n\n```js\n([\s\S]+?)\n```/.exec(readme.slice(begin));
  return { words: words.split(' '), code };
}

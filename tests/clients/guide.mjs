// Reads the blocks of README and guide.

import { readdir, readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';

const root = resolve(import.meta.dirname, '../..');
const folder = 'packaging/guide';

/** README and the handwritten pages of the guide, as paths from the root of the project. */
export async function pages() {
  const names = await readdir(join(root, folder));
  const handwritten = names.filter((name) => name.endsWith('.md')).sort();
  return ['README.md', ...handwritten.map((name) => join(folder, name))];
}

/** The fenced blocks of a page: their language, what they need, the line of their fence, the file they are for, their text. */
export function blocksOf(text) {
  const blocks = [];
  for (const found of text.matchAll(/^( *)```(\w+)(?: needs=([\w,]+))?\n([\s\S]*?)^\1```$/gm)) {
    const [, indent, language, needs, indented] = found;
    const code = indented.replaceAll(new RegExp(`^${indent}`, 'gm'), '');
    const file = /^(?:\/\/|#|<!--) (\S+\.\w+)(?: -->)?\n/.exec(code)?.[1];
    const line = text.slice(0, found.index).split('\n').length;
    blocks.push({ language, needs: needs?.split(',') ?? [], line, file: language === 'sh' ? undefined : file, code });
  }
  return blocks;
}

/** The program of a page that is for this file. */
export async function program(page, file) {
  const blocks = blocksOf(await readFile(join(root, folder, page), 'utf8'));
  return blocks.find((block) => block.file === file).code;
}

/** The text of a page. */
export function read(page) {
  return readFile(join(root, page), 'utf8');
}

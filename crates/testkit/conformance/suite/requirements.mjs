// What a revision of the protocol demands, as the suite's own lists say.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

/** The revisions that are played. */
export const VERSIONS = ['2025-11-25', '2026-07-28'];

/** `{server, client}`, each with what is required and what is only played along. */
export function requirements(at, version) {
  const { parse } = createRequire(join(at.room, 'package.json'))('yaml');
  const lists = parse(readFileSync(join(at.room, `node_modules/@modelcontextprotocol/conformance/requirements/${version}.yaml`), 'utf8'));
  const along = (leg) => lists.not_scored.filter((one) => one.leg === leg).map(({ scenario }) => scenario);
  return Object.fromEntries(['server', 'client'].map((leg) => [leg, { required: lists[leg], along: along(leg) }]));
}

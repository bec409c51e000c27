// What the suite has said: for each scenario its checks, for each check the worst that was said of it.

import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

// What only tells (INFO) is no result.
const WORST_LAST = ['SKIPPED', 'SUCCESS', 'WARNING', 'FAILURE'];

/** Everything that is under `folder`, as `{scenario: {check: status}}`; the suite names a folder for each `PREFIX-SCENARIO-TIME`. */
export function read(folder, prefix = '') {
  const found = {};
  for (const name of readdirSync(folder).sort()) {
    const scenario = /^(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$/.exec(name)[1].slice(prefix.length);
    found[scenario] = checks(JSON.parse(readFileSync(join(folder, name, 'checks.json'), 'utf8')));
  }
  return found;
}

function checks(said) {
  const found = {};
  for (const { id, name, status } of said) {
    if (!WORST_LAST.includes(status)) continue;
    const check = `${id} ${name}`;
    const rank = (one) => WORST_LAST.indexOf(one);
    if (rank(status) > rank(found[check])) found[check] = status;
  }
  return Object.fromEntries(Object.entries(found).sort());
}

/** Whether nothing in a scenario failed. */
export const passes = (scenario) => !Object.values(scenario).includes('FAILURE');

/** Where two plays of the same scenarios differ, as `{scenario, check, direct, through}`. */
export function differences(direct, through) {
  const lines = [];
  for (const scenario of both(direct, through)) {
    const [one, other] = [direct[scenario] ?? {}, through[scenario] ?? {}];
    for (const check of both(one, other)) {
      const [a, b] = [one[check] ?? 'absent', other[check] ?? 'absent'];
      if (a !== b) lines.push({ scenario, check, direct: a, through: b });
    }
  }
  return lines;
}

const both = (one, other) => [...new Set([...Object.keys(one), ...Object.keys(other)])].sort();

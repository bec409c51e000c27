// baseline.json: what passes, what fails and why, where a way differs from the plain one and why, what is not played and why. All of it is strict in both
// directions, and nothing is without its reason.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { HERE } from './install.mjs';
import { differences, passes } from './results.mjs';

const FILE = join(HERE, 'baseline.json');

/** The file. */
export const load = () => JSON.parse(readFileSync(FILE, 'utf8'));

/** What was seen, in the form of the file; reasons are those of `old`. `played[leg][version][way]` is what the suite has said. */
export function seen(played, old) {
  const found = { notApplicable: old.notApplicable };
  for (const [leg, versions] of Object.entries(played)) {
    found[leg] = {};
    for (const [version, ways] of Object.entries(versions)) found[leg][version] = one(ways, old[leg]?.[version]);
  }
  return found;
}

/** Writes the file. */
export function write(found) {
  writeFileSync(FILE, `${JSON.stringify(found, null, 2)}\n`);
}

/** What is not as the file says, or has no reason there. */
export function faults(wanted, found) {
  const lines = [];
  for (const leg of ['server', 'client']) {
    for (const version of Object.keys(found[leg])) {
      const [was, is] = [flat(wanted[leg][version]), flat(found[leg][version])];
      lines.push(...[...was].filter((line) => !is.has(line)).map((line) => `${leg}, ${version}: is in baseline.json, and not so any more: ${line}`));
      lines.push(...[...is].filter((line) => !was.has(line)).map((line) => `${leg}, ${version}: is not in baseline.json: ${line}`));
      const { failed, different } = found[leg][version];
      const unreasoned = [...failed, ...different].filter(({ why }) => why === '');
      lines.push(...unreasoned.map((entry) => `${leg}, ${version}: baseline.json has no reason for ${JSON.stringify(entry)}`));
    }
  }
  return lines;
}

function one(ways, old = { failed: [], different: [] }) {
  const names = Object.keys(Object.assign({}, ...Object.values(ways))).sort();
  const good = (way, name) => ways[way][name] !== undefined && passes(ways[way][name]);
  const bad = (name) => Object.keys(ways).filter((way) => !good(way, name));
  const reason = (list, entry, keys) => list.find((other) => keys.every((key) => String(other[key]) === String(entry[key])))?.why ?? '';
  const failed = names
    .filter((name) => bad(name).length > 0)
    .map((scenario) => ({ scenario, ways: bad(scenario) }))
    .map((entry) => ({ ...entry, why: reason(old.failed, entry, ['scenario', 'ways']) }));
  // A play with kills is compared with the same without, and differs in nothing.
  const others = Object.keys(ways).filter((way) => way !== 'direct' && way !== 'killed');
  const different = others
    .flatMap((way) => differences(ways.direct, ways[way]).map((entry) => ({ way, ...entry })))
    .map((entry) => ({ ...entry, why: reason(old.different, entry, ['way', 'scenario', 'check', 'direct', 'through']) }));
  return { passed: names.filter((name) => bad(name).length === 0), failed, different };
}

function flat({ passed, failed, different }) {
  return new Set([
    ...passed.map((name) => `${name} passes by every way`),
    ...failed.map(({ scenario, ways }) => `${scenario} fails: ${ways.join(', ')}`),
    ...different.map(({ way, scenario, check, direct, through }) => `${scenario}, ${check}: ${direct} direct, ${through} by ${way}`),
  ]);
}

// Evidence as a list of buttons; each opens to its numbers beside those of its peers, and to the query that shows them again.
import { useState } from 'preact/hooks';
import type { Claim } from '../base/decode';
import { count, withUnit } from '../base/format';
import { rooted } from '../base/root';
import { apiPath, curl, profileOf } from '../base/share';
import { profilePlace } from '../base/url';
import { CopyButton } from './copy_button';
import { PlaceLink } from './frame';

const kShown = 3;

export function ClaimList({ title, claims }: { title: string; claims: Claim[] }) {
  const [all, setAll] = useState(false);
  if (claims.length === 0) return null;
  const shown = all ? claims : telling(claims);
  return (
    <div class="claims">
      <h3>{title}</h3>
      <ul>
        {shown.map((claim) => <ClaimItem key={claims.indexOf(claim)} claim={claim} under={title} />)}
        {shown.length < claims.length && (
          <li><button type="button" class="plain more" onClick={() => setAll(true)}>{claims.length - shown.length} more</button></li>
        )}
      </ul>
    </div>
  );
}

// The first few in their order, one of each kind before a second of any: "waits for" in three groups is one thought.
function telling(claims: Claim[]): Claim[] {
  const first = claims.filter((claim, index) => claims.findIndex((other) => other.kind === claim.kind) === index);
  const rest = claims.filter((claim) => !first.includes(claim));
  const kept = new Set([...first, ...rest.filter((claim) => claim.kind !== 'waits_for'), ...rest].slice(0, kShown));
  return claims.filter((claim) => kept.has(claim));
}

function ClaimItem({ claim, under }: { claim: Claim; under: string }) {
  const [open, setOpen] = useState(false);
  return (
    <li>
      <button type="button" class="claim" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span aria-hidden="true" class="arrow">{open ? '▾' : '▸'}</span>
        <span>{withoutTitle(claim.claim, under) || claim.kind}</span>
      </button>
      {open && <Numbers claim={claim} />}
    </li>
  );
}

// Under the heading "Not", "Not the network" reads "the network".
function withoutTitle(text: string, title: string): string {
  return text.startsWith(`${title} `) ? text.slice(title.length + 1) : text;
}

function Numbers({ claim }: { claim: Claim }) {
  const path = apiPath(claim.query);
  const profile = path === null ? null : profileOf(path);
  const facts: [string, string][] = [[claim.subject || 'value', withUnit(claim.value, claim.unit)]];
  // The server writes 0 for "no such number"; a peer or baseline of exactly 0 says nothing a reader would miss.
  if (claim.peers) facts.push(['peers', withUnit(claim.peers, claim.unit)]);
  if (claim.baseline) facts.push(['before', withUnit(claim.baseline, claim.unit)]);
  if (claim.from !== null && claim.to !== null) facts.push(['steps', `${count(claim.from)}–${count(claim.to)}`]);
  return (
    <div class="numbers">
      <dl>
        {facts.map(([name, value]) => (
          <div key={name}><dt>{name}</dt>{' '}<dd>{value}</dd></div>
        ))}
      </dl>
      {path && (
        <p>
          {profile && <PlaceLink class="button" to={profilePlace(profile.job, profile.capture)}>Open the profile</PlaceLink>}
          <a href={rooted(path)} target="_blank" rel="noreferrer">{path}</a>
          <CopyButton content={curl(path)} label="Copy as curl" />
        </p>
      )}
      {!path && claim.query && <p class="muted">{claim.query}</p>}
    </div>
  );
}

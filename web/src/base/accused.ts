// What the heat map can and cannot show of the ranks that open verdicts name. It is coloured by own time: a rank whose link is slow, or that
// never came to a collective, is dark there, so its row carries a glyph and the reader is told why.
import type { Verdict } from './decode';
import { count } from './format';

export type Charge = 'slow' | 'link' | 'hung';
export const kChargeGlyphs: Record<Charge, string> = { slow: '◂', link: '⇄', hung: '■' };

const kLinkLayers: readonly string[] = ['nic', 'link', 'switch', 'nvlink'];

function chargeOf(verdict: Pick<Verdict, 'kind' | 'culprit'>): Charge {
  if (verdict.kind === 'hang' || verdict.kind === 'fail') return 'hung';
  return kLinkLayers.includes(verdict.culprit.layer) ? 'link' : 'slow';
}

// By rank, the gravest.
export function charges(verdicts: readonly Pick<Verdict, 'kind' | 'culprit' | 'state'>[]): Map<number, Charge> {
  const order: Charge[] = ['slow', 'link', 'hung'];
  const found = new Map<number, Charge>();
  for (const verdict of verdicts) {
    if (verdict.state === 'cleared') continue;
    const charge = chargeOf(verdict);
    for (const rank of verdict.culprit.ranks) {
      const known = found.get(rank);
      if (known === undefined || order.indexOf(charge) > order.indexOf(known)) found.set(rank, charge);
    }
  }
  return found;
}

const kNamed = 4;
function ranksText(all: ReadonlyMap<number, Charge>, charge: Charge): string {
  const ranks = [...all].filter(([, one]) => one === charge).map(([rank]) => rank).sort((a, b) => a - b);
  if (ranks.length === 0) return '';
  const more = ranks.length > kNamed ? ` and ${count(ranks.length - kNamed)} more` : '';
  return `${ranks.length === 1 ? 'rank' : 'ranks'} ${ranks.slice(0, kNamed).map(count).join(', ')}${more}`;
}

// Sentences for what the colours do not show; empty: they show it all.
export function notColoured(all: ReadonlyMap<number, Charge>): string[] {
  const [link, hung] = [ranksText(all, 'link'), ranksText(all, 'hung')];
  return [
    link && `⇄ ${link}: named for the network. Its own time is as its peers’; what its transfers waited for is in the rank’s panel.`,
    hung && `■ ${hung}: stands still. Its row ends, or is hatched, where the others go on.`,
  ].filter(Boolean);
}

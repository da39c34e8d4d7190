// Health and state as a glyph and a word: never colour alone. Tone `alarm` (red) is for what needs a person now and nothing
// else, `doubt` (amber) for what is suspected; all else is quiet.
import type { Health, Job, Verdict } from './decode';
import type { VerdictKind } from './verdict_terms';

export type Tone = 'alarm' | 'doubt' | 'quiet';
export interface Mark {
  glyph: string;
  word: string;
  tone: Tone;
}

const kHealth: Record<Health, Mark> = {
  ok: { glyph: '✓', word: 'ok', tone: 'quiet' },
  slow: { glyph: '▲', word: 'slow', tone: 'alarm' },
  hang: { glyph: '■', word: 'hung', tone: 'alarm' },
  suspected: { glyph: '△', word: 'suspected', tone: 'doubt' },
  unknown: { glyph: '◌', word: 'unknown', tone: 'quiet' },
};

export function healthMark(health: Health): Mark {
  return kHealth[health];
}

export function stateMark(job: Job): Mark {
  if (job.state === 'running') return { glyph: '●', word: 'live', tone: 'quiet' };
  if (job.state === 'ended') return { glyph: '○', word: 'ended', tone: 'quiet' };
  return { glyph: '◌', word: job.state === 'silent' ? 'silent' : 'unknown', tone: 'quiet' };
}

const kKinds: Record<VerdictKind, [string, string]> = {
  slow: ['▲', 'slow'],
  hang: ['■', 'hung'],
  fail: ['■', 'failed'],
  incorrect: ['▲', 'incorrect'],
  inefficient: ['▲', 'inefficient'],
};

export function verdictMark(verdict: Verdict): Mark {
  const known: Partial<Record<string, [string, string]>> = kKinds;
  const [glyph, word] = known[verdict.kind] ?? ['◌', verdict.kind || 'unknown'];
  if (verdict.state === 'cleared') return { glyph: '✓', word, tone: 'quiet' };
  return { glyph, word, tone: verdict.state === 'confirmed' ? 'alarm' : 'doubt' };
}

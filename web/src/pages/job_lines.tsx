// Which line makes a rank slow: the difference between its sampled stacks and its peers', as a flame graph and as a table. Nothing where
// nothing was sampled.
import { useSignal, type ReadonlySignal } from '@preact/signals';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { api, paths, Refused } from '../base/api';
import { clock, count, duration, percent, utc } from '../base/format';
import { unlessRefused, usePoll } from '../base/poll';
import { rooted } from '../base/root';
import { copy, curl, linesCommand } from '../base/share';
import { depthOf, flameOf, forkOf, kindsOf, signedPoints, type SampledLine, type Samples } from '../base/stacks';
import { FlameGraph } from '../widgets/flame';
import { Menu } from '../widgets/menu';
import { Table } from '../widgets/table';

export interface Sampled {
  samples: Samples;
  stacks: string;  // collapsed, a line each
}

export interface Sampling {
  sampled: ReadonlySignal<Sampled | null>;
  said: ReadonlySignal<string>;         // what came of the last order
  order: (ranks: string) => Promise<void>;
}

const kRarelyMs = 30_000;
const kSoonMs = 1_000;
const kSeconds = 5;
const kLooking = `Looking at their stacks for ${kSeconds} s …`;
const kSoonForMs = 25_000;

export function useSamples(job: string): Sampling {
  const sampled = useSignal<Sampled | null>(null);
  const said = useSignal('');
  const soonUntil = useSignal(0);
  const version = (samples: Samples): string => samples.ranks.map((rank) => `${rank.rank}:${rank.time_unix_ns}`).join();
  usePoll([job, soonUntil.value], async (signal) => {
    const samples = await unlessRefused(api.samples(job, signal));
    if (!samples || samples.rank === null) return;
    if (sampled.value && version(sampled.value.samples) === version(samples)) return;
    const stacks = await unlessRefused(api.stacks(job, signal));
    said.value = '';
    sampled.value = { samples, stacks: stacks ?? '' };
  }, () => {}, () => (Date.now() < soonUntil.value ? kSoonMs : kRarelyMs));
  const end = soonUntil.value;
  useEffect(() => {
    if (end === 0) return undefined;
    const timer = window.setTimeout(() => {
      if (said.value === kLooking) said.value = `No stacks came within ${kSoonForMs / 1e3} s; lockstep lines shows why.`;
    }, Math.max(0, end - Date.now()));
    return () => clearTimeout(timer);
  }, [end]);
  const order = async (ranks: string): Promise<void> => {
    try {
      await api.orderSamples(job, ranks, kSeconds, new AbortController().signal);
      said.value = kLooking;
      soonUntil.value = Date.now() + kSoonForMs;
    } catch (error) {
      said.value = `Not sampled: ${error instanceof Refused ? error.message : 'the server does not answer.'}`;
    }
  };
  return { sampled, said, order };
}

export function LinesCard({ job, sampled }: { job: string; sampled: Sampled }) {
  const { samples, stacks } = sampled;
  const kinds = useMemo(() => kindsOf(samples), [samples]);
  const [asked, setKind] = useState('');
  const [asTable, setTable] = useState(false);
  const kind = kinds.includes(asked) ? asked : kinds[0] ?? 'main thread';
  const whole = useMemo(() => flameOf(stacks, samples, kind), [stacks, samples, kind]);
  const fork = useMemo(() => forkOf(whole), [whole]);
  const [all, setAll] = useState(false);
  const shared = depthOf(fork);
  const rank = samples.rank ?? 0;
  const own = samples.ranks.find((one) => one.rank === rank);
  const lines = useMemo(() => [...samples.lines].sort((a, b) => b.share - b.peers - (a.share - a.peers)), [samples]);
  return (
    <section class="card charts" id="lines" aria-label="Lines">
      <div class="chart-head">
        <h2>Which line makes rank {count(rank)} slow?</h2>
        {kinds.length > 1 && (
          <div class="controls">
            <label>in
              <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
                {kinds.map((one) => <option key={one} value={one}>{one}</option>)}
              </select>
            </label>
          </div>
        )}
        <ul class="legend">
          <li><span class="swatch flame-more" aria-hidden="true" />+ rank {count(rank)} more</li>
          <li><span class="swatch flame-same" aria-hidden="true" />alike</li>
          <li><span class="swatch flame-less" aria-hidden="true" />− peers more</li>
        </ul>
        <Menu label="Menu of the lines" items={[
          { label: 'Copy as curl', run: () => copy(curl(paths.samples(job))) },
          { label: 'Copy as CLI', run: () => copy(linesCommand(job)) },
          { label: 'Download for speedscope', run: () => { location.href = `${rooted(paths.samples(job))}?format=speedscope`; } },
          { label: 'Download for pprof', run: () => { location.href = `${rooted(paths.samples(job))}?format=pprof`; } },
          { label: asTable ? 'Show as flame graph' : 'Show as table', run: () => setTable(!asTable) },
        ]} />
      </div>
      <p class="answer">{samples.sentence || 'No line stands out.'}</p>
      {asTable || stacks === ''
        ? <LineTable lines={lines} rank={rank} />
        : (
          <>
            <FlameGraph root={all ? whole : fork} rank={rank} label={`Stacks of rank ${rank} beside its peers, ${kind}. Arrows go from frame to frame, Enter goes into one, Escape out.`} />
            <p class="muted">
              Width: share of time, points beside a name: how much more of it than its peers.
              {own && <> Looked {count(own.looks)} times in {duration(own.duration_ms)}, <span title={utc(own.time_unix_ns)}>{clock(own.time_unix_ns, true)}</span>; peers: {samples.peers.map((one) => count(one)).join(', ') || 'none'}.</>}
              {' '}<button type="button" class="plain" onClick={() => setTable(true)}>as a table</button>
              {shared > 1 && <button type="button" class="plain" aria-pressed={all} onClick={() => setAll(!all)}>{all ? 'without' : 'with'} the {count(shared)} callers that all have in common</button>}
            </p>
          </>
        )}
      {samples.ranks.map((one) => one.note && <p key={one.rank} class="muted">Rank {count(one.rank)}: {one.note}</p>)}
    </section>
  );
}

function LineTable({ lines, rank }: { lines: readonly SampledLine[]; rank: number }) {
  return (
    <Table caption="Lines" what="lines" sorted="most beyond the peers first" rows={lines} total={lines.length} rowKey={(line) => `${line.thread}/${line.file}/${line.words}`} pageRows={20} columns={[
      { head: 'line', cell: (line) => <span title={line.file}>{line.words}{line.isLibrary && <span class="muted"> · library</span>}</span> },
      { head: 'thread', cell: (line) => line.thread },
      { head: `rank ${count(rank)}`, numeric: true, cell: (line) => percent(line.share) },
      { head: 'peers', numeric: true, cell: (line) => percent(line.peers) },
      { head: 'difference', unit: 'points', numeric: true, cell: (line) => signedPoints({ own: line.share, peers: line.peers }) },
    ]} />
  );
}

// The numbers behind a kernel profile: kernels, gaps and ranks, one rank beside the median of the others, or beside itself
// in another capture. All per step.
import type { ComponentChildren } from 'preact';
import { useMemo } from 'preact/hooks';
import { paths } from '../base/api';
import { clock, count, number, percent } from '../base/format';
import { byDifference, compareGaps, compareKernels, compareParts, difference, incomparable, peersOf, shortKernel, stepsOf, type ComparedKernel, type ProfileSummary, type RankSummary } from '../base/kernel_profile';
import { classToken } from '../base/kernel_timeline';
import { stepsText } from '../base/profile';
import { copy, csv, curl, download } from '../base/share';
import { go, type ProfilePlace } from '../base/url';
import { fineDuration } from '../base/view';
import { PlaceLink } from '../widgets/frame';
import { Menu } from '../widgets/menu';
import { HostLink } from '../widgets/place_links';
import { Table, type Column } from '../widgets/table';
import type { ProfileData } from './profile_data';

interface Props {
  place: ProfilePlace;
  data: ProfileData;
  summary: ProfileSummary;
  rank: number | null;
  pickKernel: (kernel: string) => void;
  find: (kernel: string) => void;
}

export function ProfileTables(props: Props) {
  const { place, data, summary, rank } = props;
  const before = data.before.value;
  const peers = useMemo(() => peersOf(summary, rank, before), [summary, rank, before]);
  const others: Others = { peers, head: before ? 'then' : 'others', words: othersWords(data, place, peers, rank) };
  return (
    <>
      <Kernels {...props} others={others} />
      <div class="two even">
        {rank !== null && <Gaps {...{ summary, rank }} others={others} />}
        {rank !== null && <Parts {...{ summary, rank }} others={others} />}
      </div>
      <Ranks {...{ place, summary, rank }} />
    </>
  );
}

// Whom a rank is compared with.
interface Others {
  peers: RankSummary[];
  head: string;   // of a column
  words: string;  // after "against"; empty: with nobody
}

function othersWords(data: ProfileData, place: ProfilePlace, peers: readonly RankSummary[], rank: number | null): string {
  if (peers.length === 0) return '';
  if (!data.before.value) return `the median of ${count(peers.length)} ${peers.length === 1 ? 'other' : 'others'}`;
  const capture = data.others.value.find((one) => one.capture === place.against);
  const which = capture ? stepsText(capture) : place.against;
  return peers.length === 1 && peers[0]!.rank === rank ? `itself in ${which}` : `the median of ${count(peers.length)} ranks in ${which}`;
}

// Clocks of GPUs tick no finer.
const kSameNs = 50;
const kWorthShare = 0.01;

// A difference with its sign; what is worth a look, a hundredth of a step or more, in colour. The unknown is no difference.
function Difference({ of, step }: { of: { own: number | null; peers: number | null }; step: number }) {
  const value = difference(of);
  if (value === null) return <>–</>;
  if (Math.abs(value) < kSameNs) return <>0</>;
  const isMore = value > 0;
  const name = Math.abs(value) < kWorthShare * step ? undefined : isMore ? 'diff-more' : 'diff-less';
  return <span class={name}>{isMore ? '+' : '−'}{fineDuration(Math.abs(value))}</span>;
}

const stepOf = (summary: ProfileSummary, rank: number | null): number => summary.ranks.find((one) => one.rank === rank)?.step ?? 0;

function Kernels(props: Props & { others: Others }) {
  const { place, data, summary, rank, pickKernel, others } = props;
  const kernels = useMemo(() => compareKernels(summary, rank, others.peers), [summary, rank, others.peers]);
  const isCompared = others.peers.length > 0;
  const byTotal = place.sort === 'total' || !isCompared;
  const rows = useMemo(() => (byTotal ? [...kernels].sort((a, b) => b.all - a.all) : byDifference(kernels)), [kernels, byTotal]);
  const whole = kernels.reduce((sum, row) => sum + row.all, 0);
  const cut = [...summary.ranks, ...others.peers].some((one) => one.kernelNames > one.kernels.length);
  const own = `rank ${count(rank)}`;
  const step = stepOf(summary, rank);
  const columns: Column<ComparedKernel>[] = [
    { head: 'kernel', cell: (row) => <button type="button" class="plain kernel" title={row.name} aria-pressed={row.name === place.kernel} onClick={() => pickKernel(row.name)}><Swatch of={row.kernelClass} /><span>{shortKernel(row.name)}</span></button> },
    ...(byTotal
      ? [{ head: 'mean of all ranks', numeric: true, cell: (row: ComparedKernel) => fineDuration(row.all) },
        { head: 'share', numeric: true, cell: (row: ComparedKernel) => percent(whole > 0 ? row.all / whole : null) }]
      : [{ head: 'difference', numeric: true, cell: (row: ComparedKernel) => <Difference of={row} step={step} /> }]),
    { head: own, numeric: true, cell: (row) => fineDuration(row.own) },
    ...(isCompared ? [{ head: others.head, numeric: true, cell: (row: ComparedKernel) => fineDuration(row.peers) }] : []),
    { head: 'calls', numeric: true, cell: (row) => number(row.ownCalls) },
    ...(isCompared ? [{ head: `${others.head}, calls`, numeric: true, cell: (row: ComparedKernel) => number(row.peersCalls) }] : []),
    { head: 'longest', numeric: true, cell: (row) => fineDuration(row.row.most) },
    { head: 'kind', cell: (row) => [row.family || row.kernelClass, row.row.precision, row.row.tensorCores === false ? 'no tensor cores' : ''].filter(Boolean).join(', ') },
    { head: 'bound by', cell: (row) => boundWords(row) },
    { head: 'operator', cell: (row) => <span class="cut" title={row.row.op}>{row.row.op}</span> },
  ];
  const chosen = kernels.find((row) => row.name === place.kernel);
  return (
    <section class="card" aria-label="Kernels">
      <div class="chart-head">
        <h2>{byTotal ? 'Which kernels take the time of a step?' : data.before.value ? `What does rank ${count(rank)} run that it did not run then?` : `What does rank ${count(rank)} run that the others do not?`}</h2>
        <div class="controls">
          <label>rank
            <select value={String(rank)} onChange={(event) => go({ ...place, rank: Number(event.currentTarget.value) }, true)}>
              {summary.ranks.map((one) => <option key={one.rank} value={String(one.rank)}>{one.rank}</option>)}
            </select>
          </label>
          {data.others.value.length > 0 && <Against {...{ place, data }} />}
          {isCompared && (
            <label>sorted
              <select value={place.sort} title="x" onChange={(event) => go({ ...place, sort: event.currentTarget.value === 'total' ? 'total' : 'difference' }, true)}>
                <option value="difference">by difference</option>
                <option value="total">by total</option>
              </select>
            </label>
          )}
        </div>
        <span class="muted">time a step{others.words && `, against ${others.words}`}</span>
        <Menu label="Menu of the kernels" items={[
          { label: 'Copy as curl', run: () => copy(curl(paths.profileSummary(place.job, place.capture))) },
          { label: 'Download CSV', run: () => download(`${place.job}-${place.capture}-kernels.csv`, kernelsCsv(rows)) },
        ]} />
      </div>
      {place.against && data.notBefore.value && <p role="alert">Not compared: {data.notBefore.value}</p>}
      {data.before.value && incomparable(summary, data.before.value) && <p role="alert">Of little use: {incomparable(summary, data.before.value)}.</p>}
      {place.kernel && <Chosen {...props} chosen={chosen} />}
      <Table caption="Kernels" what="kernels" sorted={byTotal ? 'most time first' : 'what it has more of first'} rows={rows} total={rows.length} rowKey={(row) => row.name}
             chosen={(row) => row.name === place.kernel} pageRows={12} columns={columns} />
      {cut && <p class="muted">Of each rank its longest kernels were sent; – stands where a kernel is not among them.</p>}
    </section>
  );
}

// Before against after: the same rank in another capture of the job.
function Against({ place, data }: { place: ProfilePlace; data: ProfileData }) {
  return (
    <label>against
      <select value={place.against} onChange={(event) => go({ ...place, against: event.currentTarget.value }, true)}>
        <option value="">the others</option>
        {data.others.value.map((one) => <option key={one.capture} value={one.capture}>{stepsText(one)}, {clock(one.begun_unix_ns)}</option>)}
      </select>
    </label>
  );
}

const Swatch = ({ of }: { of: string }) => <span class="swatch" aria-hidden="true" style={{ backgroundColor: `var(--${classToken(of)})` }} />;

function boundWords({ row }: ComparedKernel): string {
  if (!row.bound || row.bound === 'unknown') return '?';
  return row.share === null ? row.bound : `${row.bound}, ${percent(row.share)} of peak`;
}

// The selected kernel in full: its whole name, and what each rank spends in it.
function Chosen({ place, summary, rank, chosen, pickKernel, find, others }: Props & { chosen: ComparedKernel | undefined; others: Others }) {
  const per = summary.ranks.flatMap((one) => {
    const row = one.kernels.find((kernel) => kernel.name === place.kernel);
    return row ? [{ rank: one.rank, ns: row.sum / stepsOf(one) }] : [];
  }).sort((a, b) => b.ns - a.ns);
  const most = per[0]?.ns ?? 0;
  return (
    <div class="numbers chosen-kernel" role="group" aria-label="Selected kernel">
      <p><code class="break">{place.kernel}</code></p>
      {chosen
        ? (
          <dl>
            <Fact name={`rank ${count(rank)}`}>{fineDuration(chosen.own)} a step in {number(chosen.ownCalls)} calls</Fact>
            {chosen.peers !== null && <Fact name={others.words}>{fineDuration(chosen.peers)} in {number(chosen.peersCalls)}</Fact>}
            {chosen.row.op && <Fact name="operator">{chosen.row.op}</Fact>}
            <Fact name="ranks that run it">{per.length === summary.ranks.length ? `all ${count(per.length)}` : `${count(per.length)} of ${count(summary.ranks.length)}`}</Fact>
            {per.length > 0 && <Fact name="most">rank {count(per[0]!.rank)}, {fineDuration(most)}</Fact>}
          </dl>
        )
        : <p class="muted">Not among the kernels that were sent; what it is shows in the timeline.</p>}
      <p>
        <button type="button" onClick={() => find(place.kernel)}>Find it in the timeline</button>
        <button type="button" class="plain" onClick={() => pickKernel(place.kernel)}>clear</button>
      </p>
    </div>
  );
}

const Fact = ({ name, children }: { name: string; children: ComponentChildren }) => <div><dt>{name}</dt>{' '}<dd>{children}</dd></div>;

function kernelsCsv(rows: readonly ComparedKernel[]): string {
  return csv(['kernel', 'class', 'family', 'operator', 'own_us_per_step', 'others_us_per_step', 'own_calls', 'others_calls', 'mean_of_all_us_per_step'],
    rows.map((row) => [row.name, row.kernelClass, row.family, row.row.op, row.own === null ? null : row.own / 1e3, row.peers === null ? null : row.peers / 1e3,
      row.ownCalls, row.peersCalls, row.all / 1e3]));
}

function Gaps({ summary, rank, others }: { summary: ProfileSummary; rank: number; others: Others }) {
  const rows = useMemo(() => compareGaps(summary, rank, others.peers), [summary, rank, others.peers]);
  const own = summary.ranks.find((one) => one.rank === rank);
  const step = own?.step ?? 0;
  return (
    <section class="card" aria-label="Gaps">
      <div class="chart-head"><h2>Why does the GPU of rank {count(rank)} stand idle?</h2></div>
      {own && (
        <p class="muted">
          {percent(own.total > 0 ? own.idle / own.total : null)} of its time.
          {own.busiest && ` Its busiest stream, ${count(own.busiest.stream)}, waited ${fineDuration(own.busiest.hostWait / stepsOf(own))} a step for the host, ${fineDuration(own.busiest.kernelWait / stepsOf(own))} between kernels already launched.`}
        </p>
      )}
      <Table caption="Gaps and what the host did in them" what="causes" sorted="what it has more of first" rows={rows} total={rows.length} rowKey={(row) => row.what} pageRows={10} columns={[
        { head: 'what the host did', cell: (row) => <span class="wrap">{row.what || 'unknown'}{row.dataLoading && <span class="muted"> · data loading</span>}</span> },
        ...(others.words ? [{ head: 'difference', numeric: true, cell: (row: (typeof rows)[number]) => <Difference of={row} step={step} /> }] : []),
        { head: `rank ${count(rank)}`, numeric: true, cell: (row) => fineDuration(row.own) },
        ...(others.words ? [{ head: others.head, numeric: true, cell: (row: (typeof rows)[number]) => fineDuration(row.peers) }] : []),
        { head: 'gaps', numeric: true, cell: (row) => number(row.count) },
        { head: 'longest', numeric: true, cell: (row) => fineDuration(row.most) },
      ]} />
    </section>
  );
}

function Parts({ summary, rank, others }: { summary: ProfileSummary; rank: number; others: Others }) {
  const rows = useMemo(() => compareParts(summary, rank, others.peers), [summary, rank, others.peers]);
  const step = stepOf(summary, rank);
  return (
    <section class="card" aria-label="Rank against its peers">
      <div class="chart-head"><h2>Rank {count(rank)}{others.words && ` against ${others.words}`}</h2></div>
      <Table caption="Parts of a step" what="parts" sorted="the step first" rows={rows} total={rows.length} rowKey={(row) => row.what} columns={[
        { head: 'time a step', cell: (row) => <span class="wrap">{row.what}</span> },
        { head: `rank ${count(rank)}`, numeric: true, cell: (row) => fineDuration(row.own) },
        ...(others.words ? [
          { head: others.head, numeric: true, cell: (row: (typeof rows)[number]) => fineDuration(row.peers) },
          { head: 'difference', numeric: true, cell: (row: (typeof rows)[number]) => <Difference of={row} step={step} /> },
        ] : []),
      ]} />
    </section>
  );
}

function Ranks({ place, summary, rank }: { place: ProfilePlace; summary: ProfileSummary; rank: number | null }) {
  const rows = useMemo(() => [...summary.ranks].sort((a, b) => a.waits / stepsOf(a) - b.waits / stepsOf(b)), [summary]);
  return (
    <section class="card" aria-label="Ranks">
      <div class="chart-head">
        <h2>Where does each rank spend its time?</h2>
        <ul class="legend">
          {kShares.map(([word, token]) => <li key={word}><span class="swatch" aria-hidden="true" style={{ backgroundColor: `var(--${token})` }} />{word}</li>)}
        </ul>
      </div>
      <Table caption="Ranks" what="ranks" sorted="who waits least first" rows={rows} total={rows.length} rowKey={(row) => row.rank} chosen={(row) => row.rank === rank}
             marked={(row) => summary.culprits.includes(row.rank)} columns={[
               { head: 'rank', numeric: true, cell: (row) => <PlaceLink to={{ ...place, rank: row.rank }}>{count(row.rank)}</PlaceLink> },
               { head: 'host', cell: (row) => <HostLink host={row.host} /> },
               { head: 'step', numeric: true, cell: (row) => fineDuration(row.step) },
               { head: 'its time', cell: (row) => <Shares of={row} /> },
               ...kShares.map(([word, , of]): Column<RankSummary> => ({ head: word, numeric: true, cell: (row) => percent(row.total > 0 ? of(row) / row.total : null) })),
               { head: 'waits a step', numeric: true, cell: (row) => fineDuration(row.waits / stepsOf(row)) },
               { head: 'came last', numeric: true, cell: (row) => `${count(row.cameLast)} of ${count(row.collectives)}` },
               { head: 'trace', cell: (row) => (row.truncated ? 'breaks off' : 'whole') },
             ]} />
    </section>
  );
}

const kShares: [string, string, (rank: RankSummary) => number][] = [
  ['compute', 'part-compute', (rank) => rank.compute],
  ['communication alone', 'part-communication', (rank) => rank.exposed],
  ['copies alone', 'part-checkpoint', (rank) => rank.memory],
  ['idle', 'part-idle', (rank) => rank.idle],
];

function Shares({ of }: { of: RankSummary }) {
  return (
    <span class="share-bar shares" aria-hidden="true">
      {kShares.map(([word, token, part]) => part(of) > 0 && <span key={word} style={{ width: `${(100 * part(of)) / Math.max(1, of.total)}%`, backgroundColor: `var(--${token})` }} />)}
    </span>
  );
}

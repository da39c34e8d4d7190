// The numbers of a step: who waited for whom, by communicator, by phase, by rank. Each says what it leaves out.
import { bytes, count, duration, excess, number } from '../base/format';
import { cell, type StepMatrix } from '../base/matrix';
import type { StepAnalysis, StepComm, StepPhase, StepRank, Wait } from '../base/step';
import type { Timeline } from '../base/timeline';
import type { StepPlace } from '../base/url';
import { fineDuration } from '../base/view';
import { HostLink } from '../widgets/place_links';
import { Table, type Column } from '../widgets/table';

interface Props {
  place: StepPlace;
  analysis: StepAnalysis | null;
  summary: StepMatrix;
  tile: Timeline | null;
  hostOf: (rank: number) => string;
  commName: (comm: string) => string;
  pick: (rank: number) => void;
}

export function StepTables({ analysis, summary, hostOf, commName, pick }: Props) {
  const rank = (value: number | null) => (value === null ? '–' : <button type="button" class="plain" onClick={() => pick(value)}>{count(value)}</button>);
  if (!analysis?.detail) {
    return (
      <>
        <Slowest {...{ summary, rank }} />
        {analysis && analysis.waits.length > 0 && <Waits {...{ analysis, rank, hostOf, commName }} />}
      </>
    );
  }
  return (
    <>
      <Ranks {...{ analysis, rank }} />
      <Waits {...{ analysis, rank, hostOf, commName }} />
      <div class="two">
        <Comms {...{ analysis, rank }} />
        <Phases {...{ analysis, rank }} />
      </div>
    </>
  );
}

const kRows = 12;

type RankCell = (value: number | null) => preact.ComponentChildren;

function Waits({ analysis, rank, hostOf, commName }: { analysis: StepAnalysis; rank: RankCell; hostOf: (rank: number) => string; commName: (comm: string) => string }) {
  const columns: Column<Wait>[] = [
    { head: 'rank', numeric: true, cell: (row) => rank(row.waiter) },
    { head: 'host', cell: (row) => hostOf(row.waiter) || '–' },
    { head: 'waited for rank', numeric: true, cell: (row) => rank(row.awaited) },
    { head: 'on host', cell: (row) => hostOf(row.awaited) || '–' },
    { head: 'in all', numeric: true, cell: (row) => fineDuration(row.wait) },
    { head: 'operations', numeric: true, cell: (row) => (row.fromSummary ? '–' : count(row.operations)) },
    { head: 'longest', numeric: true, cell: (row) => (row.fromSummary ? '–' : fineDuration(row.longest)) },
    { head: 'which was', cell: (row) => (row.fromSummary ? 'from summaries alone' : `${row.operation} of ${commName(row.comm)}`) },
  ];
  return (
    <section class="card" aria-label="Who waited for whom">
      <div class="chart-head"><h2>Who waited for whom?</h2><span class="muted">directly; who is waited for may itself wait for another</span></div>
      {analysis.waits.length === 0
        ? <p class="muted">Nobody waited long enough to be told from the clocks' error.</p>
        : <Table caption="Waits" what="pairs" sorted="longest wait first" columns={columns} rows={analysis.waits} total={analysis.waitsTotal}
                 rowKey={(row) => `${row.waiter}-${row.awaited}`} pageRows={kRows} />}
      {analysis.detail && analysis.ranksMissing && <p class="muted">Without detail: ranks {analysis.ranksMissing}. Their part is taken from summaries.</p>}
    </section>
  );
}

function Ranks({ analysis, rank }: { analysis: StepAnalysis; rank: RankCell }) {
  if (analysis.ranks.length === 0) return null;
  const columns: Column<StepRank>[] = [
    { head: 'rank', numeric: true, cell: (row) => rank(row.rank) },
    { head: 'host', cell: (row) => <HostLink host={row.host} /> },
    { head: 'made others wait', numeric: true, cell: (row) => fineDuration(row.caused) },
    { head: 'waited itself', numeric: true, cell: (row) => fineDuration(row.wait) },
    { head: 'own work', numeric: true, cell: (row) => fineDuration(row.own) },
    { head: 'exchange', numeric: true, cell: (row) => fineDuration(row.transfer) },
    { head: 'step', numeric: true, cell: (row) => fineDuration(row.duration) },
    { head: 'on the critical path', numeric: true, cell: (row) => (row.path ? fineDuration(row.path) : '–') },
    { head: 'detail', cell: (row) => (row.detail ? 'yes' : 'summary only') },
  ];
  return (
    <section class="card" aria-label="Ranks of the step">
      <div class="chart-head"><h2>Whose own work made the others wait?</h2><span class="muted">“made others wait” is summed over all who waited</span></div>
      <Table caption="Ranks" what="ranks" sorted="worst first" columns={columns} rows={analysis.ranks} total={analysis.ranksKnown} rowKey={(row) => row.rank}
             pageRows={kRows} />
    </section>
  );
}

function Comms({ analysis, rank }: { analysis: StepAnalysis; rank: RankCell }) {
  const columns: Column<StepComm>[] = [
    { head: 'group', cell: (row) => <span title={row.comm}>{row.name || row.comm}</span> },
    { head: 'ranks', cell: (row) => <span title={`${count(row.size)} ranks`}>{short(row.members) || count(row.size)}</span> },
    { head: 'waiting', numeric: true, cell: (row) => fineDuration(row.wait) },
    { head: 'exchange', numeric: true, cell: (row) => fineDuration(row.transfer) },
    { head: 'bytes', numeric: true, cell: (row) => bytes(row.bytes) },
    { head: 'bus GB/s', numeric: true, cell: (row) => (row.gbS ? number(row.gbS) : '–') },
    { head: 'last to come', numeric: true, cell: (row) => (row.lastRank === null ? 'nobody' : <>{rank(row.lastRank)} {count(row.last)}×</>) },
    { head: 'what', cell: (row) => row.functions },
  ];
  return (
    <section class="card" aria-label="Communicators">
      <div class="chart-head"><h2>In which group?</h2></div>
      <Table caption="Communicators" what="groups" sorted="most waiting first" columns={columns} rows={analysis.comms} total={analysis.commsTotal} rowKey={(row) => row.comm} pageRows={kRows} />
    </section>
  );
}

function Phases({ analysis, rank }: { analysis: StepAnalysis; rank: RankCell }) {
  const columns: Column<StepPhase>[] = [
    { head: 'phase', cell: (row) => row.name },
    { head: 'mean', numeric: true, cell: (row) => fineDuration(row.mean) },
    { head: 'of it own work', numeric: true, cell: (row) => fineDuration(row.own) },
    { head: 'longest', numeric: true, cell: (row) => fineDuration(row.longest) },
    { head: 'of rank', numeric: true, cell: (row) => rank(row.longestRank) },
    { head: 'ranks', numeric: true, cell: (row) => count(row.ranks) },
  ];
  return (
    <section class="card" aria-label="Phases">
      <div class="chart-head"><h2>In which phase?</h2></div>
      {analysis.phases.length === 0
        ? <p class="muted">The job reported no phases.</p>
        : <Table caption="Phases" what="phases" sorted="as they begin" columns={columns} rows={analysis.phases} total={analysis.phases.length} rowKey={(row) => row.name} />}
    </section>
  );
}

// Without the analysis: what the summaries of the step say.
function Slowest({ summary, rank }: { summary: StepMatrix; rank: RankCell }) {
  const rows = summary.ranks.map((_, row) => row).sort((a, b) => (cell(summary.excess, summary, b, 0) ?? 1e9) - (cell(summary.excess, summary, a, 0) ?? 1e9));
  if (summary.steps.length === 0) return null;
  return (
    <section class="card" aria-label="Ranks of the step">
      <div class="chart-head"><h2>Which rank is slower than its peers?</h2></div>
      <Table caption="Ranks" what="ranks" sorted="worst first" rows={rows} total={summary.ranksTotal} rowKey={(row) => summary.ranks[row]!} columns={[
        { head: 'rank', numeric: true, cell: (row) => rank(summary.ranks[row]!) },
        { head: 'host', cell: (row) => summary.hosts[row] || '–' },
        { head: 'excess', numeric: true, cell: (row) => excess(cell(summary.excess, summary, row, 0)) },
        { head: 'own time', numeric: true, cell: (row) => duration(cell(summary.self, summary, row, 0)) },
        { head: 'step', numeric: true, cell: (row) => duration(cell(summary.duration, summary, row, 0)) },
      ]} />
    </section>
  );
}

function short(members: string): string {
  return members.length > 20 ? `${members.slice(0, 19)}…` : members;
}

// The table twin of the charts.
import { paths } from '../base/api';
import type { RankList, RankRow, Why } from '../base/decode';
import { clock, count, duration, excess, utc } from '../base/format';
import { kParts, type StepMatrix } from '../base/matrix';
import { copy, csv, curl, download, whyCommand } from '../base/share';
import { go, type JobPlace } from '../base/url';
import { PlaceLink } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { Menu } from '../widgets/menu';
import { PartsLegend } from '../widgets/step_chart';
import { HostLink } from '../widgets/place_links';
import { Table, type Column } from '../widgets/table';
import { Controls } from './job_charts';
import { stepsCsv } from './job_csv';

interface Props {
  place: JobPlace;
  why: Why;
  matrix: StepMatrix;
  ranks: RankList | null;
  culprits: ReadonlySet<number>;
}

export function JobTables({ place, why, matrix, ranks, culprits }: Props) {
  const back = { label: 'Show as charts (t)', run: () => go({ ...place, view: 'chart' }, true) };
  const cli = { label: 'Copy as CLI', run: () => copy(whyCommand(place.job)) };
  const rankLink = (row: RankRow) => <PlaceLink to={{ ...place, rank: row.rank }}>{count(row.rank)}</PlaceLink>;
  const columns: Column<RankRow>[] = [
    { head: 'rank', numeric: true, cell: rankLink },
    { head: 'host', cell: (row) => <HostLink host={row.host} /> },
    { head: 'GPU', numeric: true, cell: (row) => <span title={row.gpu_uuid}>{count(row.local_rank)}</span> },
    { head: 'status', cell: (row) => row.status || 'unknown' },
    { head: 'excess', numeric: true, cell: (row) => excess(row.excess_ms) },
    { head: 'own time', numeric: true, cell: (row) => duration(row.self_ms) },
    { head: 'step', numeric: true, cell: (row) => duration(row.step_ms) },
    { head: 'communication', numeric: true, cell: (row) => duration(row.comm_ms) },
    { head: 'input', numeric: true, cell: (row) => duration(row.input_ms) },
    { head: 'steps heard', numeric: true, cell: (row) => count(row.steps) },
    { head: 'last heard', cell: (row) => <span title={utc(row.last_seen_unix_ns)}>{clock(row.last_seen_unix_ns, true)}</span> },
  ];
  const newestFirst = matrix.steps.map((_, index) => matrix.steps.length - 1 - index);
  return (
    <>
      <section class="card" aria-label="Ranks as a table">
        <div class="chart-head">
          <h2>Which rank is slower than its peers?</h2>
          {ranks && ranks.from_step !== null && <span class="muted">steps {count(ranks.from_step)}–{count(ranks.to_step)}</span>}
          <Controls place={place} matrix={matrix} />
          <Menu label="Menu of the rank table" items={[
            { label: 'Copy as curl', run: () => copy(curl(paths.ranks(place.job, place.last))) }, cli,
            { label: 'Download CSV', run: () => download(`${place.job}-ranks.csv`, ranksCsv(ranks)) }, back,
          ]} />
        </div>
        {ranks
          ? <Table caption="Ranks" what="ranks" sorted={kSorted[place.sort]} columns={columns} rows={sorted(ranks.ranks, place)} total={ranks.total}
                   rowKey={(row) => row.rank} marked={(row) => culprits.has(row.rank)} />
          : <Loading what="the ranks" />}
      </section>
      <section class="card" aria-label="Steps as a table">
        <div class="chart-head">
          <h2>Where does the time of a step go?</h2>
          <PartsLegend why={why} />
          <Menu label="Menu of the step table" items={[
            { label: 'Copy as curl', run: () => copy(curl(paths.steps(place.job, place.last))) }, cli,
            { label: 'Download CSV', run: () => download(`${place.job}-steps.csv`, stepsCsv(matrix)) }, back,
          ]} />
        </div>
        <Table caption="Steps" what="steps" sorted="newest first" rows={newestFirst} total={matrix.steps.length} rowKey={(column) => matrix.steps[column]!}
               columns={[
                 { head: 'step', numeric: true, cell: (column) => <PlaceLink to={{ ...place, rank: null, step: matrix.steps[column]! }}>{count(matrix.steps[column])}</PlaceLink> },
                 { head: 'median step', numeric: true, cell: (column) => duration(matrix.stepMs[column]) },
                 ...kParts.map((part): Column<number> => ({ head: part, numeric: true, cell: (column) => duration(matrix.parts[part][column]) })),
               ]} />
      </section>
    </>
  );
}

const kSorted = { badness: 'worst first', rank: 'by rank', host: 'by host' };

// The server's order is worst first; the others are ours.
function sorted(rows: RankRow[], place: JobPlace): RankRow[] {
  if (place.sort === 'badness') return rows;
  const compare = new Intl.Collator('en', { numeric: true }).compare;
  return [...rows].sort((a, b) => (place.sort === 'host' ? compare(a.host, b.host) : 0) || a.rank - b.rank);
}

function ranksCsv(ranks: RankList | null): string {
  return csv(['rank', 'host', 'local_rank', 'gpu_uuid', 'status', 'excess_ms', 'self_ms', 'step_ms', 'comm_ms', 'input_ms', 'steps'],
    (ranks?.ranks ?? []).map((row) => [row.rank, row.host, row.local_rank, row.gpu_uuid, row.status, row.excess_ms, row.self_ms,
      row.step_ms, row.comm_ms, row.input_ms, row.steps]));
}

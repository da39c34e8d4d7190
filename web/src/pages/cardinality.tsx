// Series in the metrics store: how many, who made the most of them, and what was refused.
import { useSignal } from '@preact/signals';
import { api, paths } from '../base/api';
import type { Cardinality, Creator } from '../base/cardinality';
import { clean, count, percent } from '../base/format';
import { usePoll } from '../base/poll';
import { copy, curl } from '../base/share';
import { Frame } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { Menu } from '../widgets/menu';
import { Table } from '../widgets/table';

const kEveryMs = 5_000;
const kNearLimit = 0.8;
const kReasons: Record<string, string> = {
  label_forbidden: 'a label that would make a series of every step, kernel or process',
  series_limit: 'the store is full of series; those that are there go on',
  metric_limit: 'their metric has too many series',
  job_limit: 'their job has too many series',
  tenant_limit: 'their tenant has too many series',
  agent_limit: 'their sender has too many series',
  too_old: 'older than what is still taken',
  future: 'ahead of this server’s clock',
  labels_invalid: 'labels that cannot be read',
};

export function CardinalityPage() {
  const told = useSignal<Cardinality | null>(null);
  const refused = useSignal<string | null>(null);
  usePoll([], async (signal) => { told.value = await api.cardinality(signal); }, (message) => { refused.value = message; }, () => kEveryMs);
  document.title = 'Series · Lockstep';
  const known = told.value;
  return (
    <Frame crumbs={[{ label: 'Fleet', to: { page: 'fleet' } }, { label: 'Series', to: { page: 'cardinality' } }]}
           state={known && <span><b>{count(known.series)}</b> series</span>}>
      {refused.value && <section class="card"><h2 class="sentence" role="alert">{refused.value}</h2></section>}
      {!known && !refused.value && <Loading what="the series" />}
      {known && !refused.value && (
        <>
          <section class={`card verdict ${near(known) ? 'tone-alarm' : 'tone-quiet'}`} aria-label="How many series">
            <p class="verdict-head"><span>written to lately</span><span>at most {count(known.limit)}</span></p>
            <h2 class="sentence">{sentence(known)}</h2>
          </section>
          <Creators title="Which metrics have the most series?" what="metrics" rows={known.metrics} all={known.series} limit={known.limits.metric} menu />
          <Creators title="Which jobs?" what="jobs" rows={known.jobs} all={known.series} limit={known.limits.job} />
          <Creators title="Which tenants?" what="tenants" rows={known.tenants} all={known.series} limit={known.limits.tenant} />
          <Creators title="Which senders?" what="senders" rows={known.streams} all={known.series} limit={known.limits.stream} />
          <Refusals told={known} />
        </>
      )}
    </Frame>
  );
}

function near(told: Cardinality): boolean {
  return told.series !== null && told.limit !== null && told.series >= kNearLimit * told.limit;
}

function sentence(told: Cardinality): string {
  if (told.series === null) return 'How many series there are is not known.';
  if (told.series === 0) return 'No series yet: nobody has sent metrics.';
  const first = told.metrics[0];
  const made = first ? ` ${clean(first.name)} makes ${percent(first.series / told.series)} of them.` : '';
  const samples = told.refused.reduce((sum, one) => sum + one.samples, 0);
  const lost = samples > 0 ? ` ${count(samples)} samples were refused since the start, most as ${told.refused[0]!.reason}.` : ' Nothing was refused.';
  return `${count(told.series)} series${near(told) ? ', near the limit' : ''}.${made}${lost}`;
}

function Creators({ title, what, rows, all, limit, menu = false }:
  { title: string; what: string; rows: Creator[]; all: number | null; limit: number | null; menu?: boolean }) {
  if (rows.length === 0) return null;
  return (
    <section class="card" aria-label={title}>
      <div class="chart-head">
        <h2>{title}</h2>
        {menu && <Menu label="Take this with you" items={[{ label: 'Copy as curl', run: () => copy(curl(paths.cardinality())) }]} />}
      </div>
      <Table caption={title} what={what} sorted="most series first" rows={rows} total={rows.length} rowKey={(row) => row.name}
             marked={(row) => limit !== null && row.series >= kNearLimit * limit} columns={[
               { head: what.slice(0, -1), cell: (row) => <code>{clean(row.name) || '(no name)'}</code> },
               { head: 'series', numeric: true, cell: (row) => count(row.series) },
               { head: 'of all', numeric: true, cell: (row) => (all ? percent(row.series / all) : '') },
               { head: 'of its limit', numeric: true, cell: (row) => (limit ? percent(row.series / limit) : '') },
             ]} />
    </section>
  );
}

function Refusals({ told }: { told: Cardinality }) {
  if (told.refused.length === 0) return null;
  return (
    <section class="card" aria-label="What was refused">
      <div class="chart-head"><h2>What was refused since the start?</h2></div>
      <Table caption="Refused samples" what="reasons" sorted="most samples first" rows={told.refused} total={told.refused.length} rowKey={(row) => row.reason} columns={[
        { head: 'reason', cell: (row) => <>{row.reason} <span class="muted">{kReasons[row.reason] ?? ''}</span></> },
        { head: 'samples', numeric: true, cell: (row) => count(row.samples) },
      ]} />
    </section>
  );
}

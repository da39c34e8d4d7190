// Incidents: what is broken now first, then what was; which components are guilty again and again.
import { useSignal } from '@preact/signals';
import { api, paths } from '../base/api';
import { clean, clip, count, utc, when } from '../base/format';
import { incidentMark, type IncidentList, type IncidentRow } from '../base/incident';
import { usePoll } from '../base/poll';
import { copy, curl } from '../base/share';
import { incidentPlace, nodePlace } from '../base/url';
import { Frame, PlaceLink } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { MarkView } from '../widgets/mark';
import { Menu } from '../widgets/menu';
import { Table } from '../widgets/table';

const kEveryMs = 3_000;

export function IncidentsPage() {
  const told = useSignal<IncidentList | null>(null);
  const refused = useSignal<string | null>(null);
  usePoll([], async (signal) => { told.value = await api.incidents(signal); }, (message) => { refused.value = message; }, () => kEveryMs);
  document.title = 'Incidents · Lockstep';
  const known = told.value;
  const needed = known?.incidents.some((one) => one.state === 'open' && one.active) ?? false;
  return (
    <Frame crumbs={[{ label: 'Fleet', to: { page: 'fleet' } }, { label: 'Incidents', to: { page: 'incidents' } }]}
           state={known && <span><b>{count(known.open)}</b> not resolved</span>}>
      {refused.value && <section class="card"><h2 class="sentence" role="alert">{refused.value}</h2></section>}
      {!known && !refused.value && <Loading what="the incidents" />}
      {known && !refused.value && (
        <>
          <section class={`card verdict ${needed ? 'tone-alarm' : 'tone-quiet'}`} aria-label="What is broken">
            <h2 class="sentence">{sentence(known)}</h2>
            {known.offenders.length > 0 && (
              <ul class="next" aria-label="Guilty more than once">
                {known.offenders.map((one) => <li key={one.newest}><PlaceLink to={incidentPlace(one.newest)}>{one.sentence}</PlaceLink></li>)}
              </ul>
            )}
          </section>
          <section class="card" aria-label="All incidents">
            <div class="chart-head">
              <h2>Which incidents?</h2>
              <Menu label="Take this with you" items={[{ label: 'Copy as curl', run: () => copy(curl(paths.incidents())) }]} />
            </div>
            <Table caption="Incidents" what="incidents" sorted="not resolved first, gravest first" rows={known.incidents} total={known.total} rowKey={(row) => row.id}
                   marked={(row) => row.state === 'open' && row.active} columns={[
                     { head: 'state', cell: (row) => <MarkView mark={incidentMark(row)} /> },
                     { head: 'what', wide: true, cell: (row) => <PlaceLink to={incidentPlace(row.id)}>{row.sentence || row.component}</PlaceLink> },
                     { head: 'where', wide: true, cell: (row) => (row.host ? <PlaceLink to={nodePlace(row.host)}>{row.component}</PlaceLink> : row.component) },
                     { head: 'jobs', cell: (row) => jobs(row) },
                     { head: 'since', cell: (row) => <span title={times(row)}>{when(row.beginNs)}</span> },
                     { head: 'cost', cell: (row) => cost(row) },
                     { head: 'in 30 days', numeric: true, cell: (row) => count(row.times) },
                   ]} />
          </section>
        </>
      )}
    </Frame>
  );
}

// GPU time, and money below it; what of it has no price is in the title.
function cost(row: IncidentRow) {
  const [money, more] = row.money.split(', and ', 2);
  return <span title={row.cost}>{row.cost.split(',', 1)[0] || '–'}{money && <><br /><span class="muted">{money}{more && ' …'}</span></>}</span>;
}

function jobs(row: IncidentRow) {
  if (row.jobs.length === 0) return <span class="muted">none</span>;
  return <span title={row.jobs.map(clean).join('\n')}>{row.jobs.length === 1 ? clip(clean(row.jobs[0]!), 32) : `${count(row.jobs.length)} jobs`}</span>;
}

function times(row: IncidentRow): string {
  return row.endNs === null ? `since ${utc(row.beginNs)}` : `${utc(row.beginNs)} to ${utc(row.endNs)}`;
}

function sentence(told: IncidentList): string {
  const first = told.incidents.find((one) => one.state !== 'resolved');
  if (!first) return told.incidents.length === 0 ? 'No incident is open, and there was none.' : 'No incident is open.';
  return told.open === 1 ? first.sentence : `${count(told.open)} incidents are not resolved; first: ${first.sentence}`;
}

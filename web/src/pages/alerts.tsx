// Alerts: what fires first, since when, what it costs, who was told, and the way to the evidence.
import { useSignal } from '@preact/signals';
import type { Alert, AlertList } from '../base/alert';
import { api, paths } from '../base/api';
import { clean, clock, count, utc } from '../base/format';
import { usePoll } from '../base/poll';
import { copy, curl } from '../base/share';
import type { AlertsPlace } from '../base/url';
import { incidentPlace, parsePlace } from '../base/url';
import { Frame, PlaceLink } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { Menu } from '../widgets/menu';
import { Table } from '../widgets/table';

const kEveryMs = 3_000;

export function AlertsPage({ place }: { place: AlertsPlace }) {
  const told = useSignal<AlertList | null>(null);
  const refused = useSignal<string | null>(null);
  usePoll([], async (signal) => { told.value = await api.alerts(signal); }, (message) => { refused.value = message; }, () => kEveryMs);
  document.title = 'Alerts · Lockstep';
  const known = told.value;
  const linked = place.id ? known?.alerts.find((alert) => alert.id === place.id) : undefined;
  return (
    <Frame crumbs={[{ label: 'Fleet', to: { page: 'fleet' } }, { label: 'Alerts', to: { page: 'alerts', id: '' } }]}
           state={known && <span><b>{count(known.firing)}</b> firing</span>}>
      {refused.value && <section class="card"><h2 class="sentence" role="alert">{refused.value}</h2></section>}
      {!known && !refused.value && <Loading what="the alerts" />}
      {known && !refused.value && (
        <>
          <section class={`card verdict ${known.firing > 0 ? 'tone-alarm' : 'tone-quiet'}`} aria-label="What fires">
            <p class="verdict-head">
              <span>{linked ? clean(linked.name) : 'alerts'}</span>
              <span>{known.receivers > 0 ? `${count(known.receivers)} to be told` : 'nobody is told: see lockstepd --notify'}</span>
            </p>
            <h2 class="sentence">{linked ? clean(linked.sentence) : sentence(known)}</h2>
            {linked?.action && <p>{clean(linked.action)}</p>}
            {linked?.incident && <p><PlaceLink to={incidentPlace(linked.incident)}>The incident that it is of</PlaceLink></p>}
          </section>
          <section class="card" aria-label="All alerts">
            <div class="chart-head">
              <h2>Which alerts?</h2>
              <Menu label="Take this with you" items={[{ label: 'Copy as curl', run: () => copy(curl(paths.alerts())) }]} />
            </div>
            <Table caption="Alerts" what="alerts" sorted="firing first" rows={known.alerts} total={known.total} rowKey={(row) => row.id}
                   marked={(row) => row.firing || row === linked} columns={[
                     { head: 'state', cell: (row) => (row.firing ? <b>{row.severity}</b> : <span class="muted">over</span>) },
                     { head: 'what', cell: (row) => <PlaceLink to={evidence(row)}>{clean(row.sentence)}</PlaceLink> },
                     { head: 'incident', cell: (row) => (row.incident ? <PlaceLink to={incidentPlace(row.incident)}>{row.incident}</PlaceLink> : '–') },
                     { head: 'since', cell: (row) => <span title={times(row)}>{clock(row.startsNs, true) || '–'}</span> },
                     { head: 'cost', cell: (row) => <span title={clean(row.cost)}>{clean(row.cost.split(',', 1)[0] ?? '') || '–'}</span> },
                     { head: 'told', cell: (row) => <span title={row.problems.map(clean).join('\n') || undefined}>{row.delivery}</span> },
                     { head: 'times', numeric: true, cell: (row) => count(row.episodes) },
                   ]} />
          </section>
        </>
      )}
    </Frame>
  );
}

function evidence(alert: Alert) {
  const [path, search] = alert.path.split('?', 2);
  return parsePlace(path ?? '/', search ?? '');
}

function times(alert: Alert): string {
  return alert.endsNs === null ? `since ${utc(alert.startsNs)}` : `${utc(alert.startsNs)} to ${utc(alert.endsNs)}`;
}

function sentence(told: AlertList): string {
  const first = told.alerts.find((alert) => alert.firing);
  if (!first) return told.alerts.length === 0 ? 'No alert fires, and none has.' : 'No alert fires.';
  if (told.firing === 1) return clean(first.sentence);
  return `${count(told.firing)} alerts fire; first: ${clean(first.sentence)}`;
}

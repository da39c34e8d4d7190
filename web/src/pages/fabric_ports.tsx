// Ports or whole switches, the worst first.
import type { ComponentChildren } from 'preact';
import { paths } from '../base/api';
import { bytes, clean, count, number, percent } from '../base/format';
import { kPortSorts, worstPortsQuery, type PortMeasure, type PortRow, type PortSort } from '../base/ports';
import { copy, csv, curl, download } from '../base/share';
import { fabricPlace, go, type FabricPlace } from '../base/url';
import { PlaceLink } from '../widgets/frame';
import { Menu } from '../widgets/menu';
import { Table, type Column } from '../widgets/table';
import { switchOf, type FabricData } from './fabric_data';

const kSortWords: Partial<Record<PortSort, string>> = { worst: 'the worst first', used: 'the fullest first', errors: 'most errors first', discards: 'most discards first', ecn: 'most ECN marks first', pause: 'most pauses first', queue: 'the deepest queue first' };

export function PortsCard({ place, data }: { place: FabricPlace; data: FabricData }) {
  const rows = data.ports.value;
  const of = switchOf(data.focus.value);
  const query = worstPortsQuery(place.by, of);
  const rate = (head: string, measure: PortMeasure): Column<PortRow> => ({ head, unit: '/s', numeric: true, cell: ({ values }) => <Odd bad={(measure === 'errors' || measure === 'discards') && (values[measure] ?? 0) > 0}>{number(values[measure])}</Odd> });
  const columns: Column<PortRow>[] = [
    { head: 'switch', cell: (row) => <PlaceLink to={fabricPlace(row.switchName)}>{clean(row.switchName)}</PlaceLink> },
    ...(place.by === 'port' ? [{ head: 'port', cell: (row: PortRow) => clean(row.port) }] : []),
    { head: 'state', cell: ({ values }) => <Odd bad={(values.down ?? 0) > 0}>{(values.down ?? 0) === 0 ? '–' : place.by === 'port' ? 'went down' : `${count(values.down)} went down`}</Odd> },
    rate('errors', 'errors'), rate('discards', 'discards'), rate('ECN marks', 'ecn'), rate('PFC pauses', 'pause'),
    { head: 'queue', numeric: true, cell: ({ values }) => bytes(values.queue) },
    { head: place.by === 'port' ? 'load' : 'load of its busiest port', numeric: true, cell: ({ values }) => (values.load === null ? '–' : `${bytes(values.load)}/s`) },
    { head: 'of its speed', numeric: true, cell: ({ values }) => percent(values.used) },
  ];
  return (
    <section class="card" aria-label="Ports">
      <div class="chart-head">
        <h2>{place.by === 'port' ? 'Which ports' : 'Which switches'}{of && ` of ${clean(of)}`} are worst?</h2>
        <div class="controls">
          <label>by
            <select value={place.by} title="x" onChange={(event) => go({ ...place, by: event.currentTarget.value === 'switch' ? 'switch' : 'port' }, true)}>
              <option value="port">port</option>
              <option value="switch">switch</option>
            </select>
          </label>
          <label>sorted
            <select value={place.sort} onChange={(event) => go({ ...place, sort: kPortSorts.find((one) => one === event.currentTarget.value) ?? 'worst' }, true)}>
              {kPortSorts.map((sort) => <option key={sort} value={sort}>{kSortWords[sort]}</option>)}
            </select>
          </label>
        </div>
        <span class="muted">over 5 min</span>
        <Menu label="Menu of the ports" items={[
          { label: 'Copy as PromQL', run: () => copy(query) },
          { label: 'Copy as curl', run: () => copy(curl(paths.promql(query, place.at))) },
          { label: 'Download CSV', run: () => download('fabric-ports.csv', portsCsv(rows ?? [])) },
        ]} />
      </div>
      {rows && rows.length === 0
        ? <p class="muted">No switch {of && `of this name `}reports its ports. They come by sFlow (<code>lockstepd --sflow-listen :6343</code>), or from gnmic and snmp_exporter by remote write or a scrape.</p>
        : <Table caption="Ports of switches" what={place.by === 'port' ? 'worst ports' : 'worst switches'} sorted={kSortWords[place.sort] ?? ''} rows={rows ?? []} total={(rows ?? []).length} rowKey={(row) => `${row.switchName}\n${row.port}`}
                 pageRows={12} columns={columns} />}
    </section>
  );
}

const Odd = ({ bad, children }: { bad: boolean; children: ComponentChildren }) => (bad ? <b><span aria-hidden="true">▲ </span>{children}</b> : <>{children}</>);

function portsCsv(rows: readonly PortRow[]): string {
  return csv(['switch', 'port', 'went_down', 'errors_per_s', 'discards_per_s', 'ecn_marked_per_s', 'pauses_per_s', 'queue_bytes', 'bytes_per_s', 'share_of_speed'],
    rows.map(({ switchName, port, values }) => [switchName, port, values.down ?? 0, values.errors, values.discards, values.ecn, values.pause, values.queue, values.load, values.used]));
}

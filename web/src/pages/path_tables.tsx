// The numbers of a path: every port that has counters, in the order of the way; and the pairs beside it, the worst first.
import { endText, isGuess, kHopMeasures, kMeasureWords, measureOf, oddPorts, portsOf, sureText, valueText, type FabricPath, type HopMeasure, type HopPort, type HopValue } from '../base/fabric';
import { clean, count, percent } from '../base/format';
import { csv, download } from '../base/share';
import { pathPlace, type PathPlace } from '../base/url';
import { PlaceLink } from '../widgets/frame';
import { Menu } from '../widgets/menu';
import { Table, type Column } from '../widgets/table';

// With what its siblings have, where there is something to compare.
function Value({ of }: { of: HopValue | null }) {
  if (of === null) return <>–</>;
  const beside = of.siblings === null || (of.value === 0 && of.siblings === 0) ? null : <span class="muted"> ({valueText(of, of.siblings)})</span>;
  return <span title={of.metric}>{of.isOdd ? <b><span aria-hidden="true">▲ </span>{valueText(of)}</b> : valueText(of)}{beside}</span>;
}

const measured = (ports: readonly HopPort[], meaning: HopMeasure): boolean => ports.some((port) => measureOf(port.values, meaning) !== null);

export function PortTable({ path }: { path: FabricPath }) {
  const ports = portsOf(path);
  const rest = kHopMeasures.filter((meaning) => meaning !== 'load' && measured(ports, meaning));
  const columns: Column<HopPort>[] = [
    { head: 'port', cell: (port) => clean(port.name) },
    { head: 'of the way', numeric: true, cell: ({ hop }) => percent(hop.share) },
    { head: 'how it is known', cell: ({ hop }) => (isGuess(hop) ? <span class="muted">{sureText(hop)}</span> : sureText(hop)) },
    { head: 'load out', numeric: true, cell: (port) => <Value of={measureOf(port.values, 'load', 'out')} /> },
    { head: 'load in', numeric: true, cell: (port) => <Value of={measureOf(port.values, 'load', 'in')} /> },
    ...rest.map((meaning): Column<HopPort> => ({ head: kMeasureWords[meaning], numeric: true, cell: (port) => <Value of={measureOf(port.values, meaning)} /> })),
  ];
  return (
    <section class="card" aria-label="Ports on the way">
      <div class="chart-head">
        <h2>What did the ports on the way do in the minute before?</h2>
        <span class="muted">in brackets: median of their siblings, on the same leaf or beside them on the way</span>
        <Menu label="Menu of the ports" items={[{ label: 'Download CSV', run: () => download('path-ports.csv', portsCsv(ports)) }]} />
      </div>
      {ports.length === 0
        ? <p class="muted">Nobody reports counters of ports on this way: agents report those of adapters, switches theirs over sFlow or a collector.</p>
        : <Table caption="Ports on the way" what="ports" sorted="in the order of the way" rows={ports} total={ports.length} rowKey={(port) => `${port.hop.position}/${port.name}`}
                 pageRows={20} columns={columns} />}
    </section>
  );
}

function portsCsv(ports: readonly HopPort[]): string {
  return csv(['position', 'port', 'share', 'sure', 'meaning', 'direction', 'value', 'siblings', 'odd', 'metric'],
    ports.flatMap(({ name, hop, values }) => values.map((value) => [hop.position, name, hop.share, hop.sure, value.meaning, value.direction, value.value, value.siblings, value.isOdd ? 1 : 0, value.metric])));
}

interface Pair {
  path: FabricPath;
  isThis: boolean;
  odd: number;  // ports that stand out
  values: Map<HopMeasure, HopValue | null>;
}

// Of each measure the worst on the way; of load what the sender's adapter puts out.
function pairOf(path: FabricPath, isThis: boolean): Pair {
  const ports = portsOf(path);
  const values = new Map(kHopMeasures.map((meaning): [HopMeasure, HopValue | null] => {
    if (meaning === 'load') return [meaning, measureOf(ports[0]?.values ?? [], 'load', 'out')];
    return [meaning, measureOf(ports.flatMap((port) => port.values), meaning)];
  }));
  return { path, isThis, odd: oddPorts(path).length, values };
}

export function SiblingPairs({ path, place, siblings }: { path: FabricPath; place: PathPlace; siblings: readonly FabricPath[] }) {
  // Without counters there is nothing to compare.
  if (siblings.length === 0 || ![path, ...siblings].some((one) => portsOf(one).length > 0)) return null;
  const pairs = [pairOf(path, true), ...siblings.map((one) => pairOf(one, false))].sort((a, b) => b.odd - a.odd || Number(b.isThis) - Number(a.isThis));
  const rest = kHopMeasures.filter((meaning) => pairs.some((pair) => pair.values.get(meaning)));
  return (
    <section class="card" aria-label="Sibling pairs">
      <div class="chart-head">
        <h2>Is it this pair alone?</h2>
        <span class="muted">the other GPUs of {clean(path.a.host)} and {clean(path.b.host)}, number by number</span>
      </div>
      <p>{siblingSentence(pairs)}</p>
      <Table caption="Sibling pairs" what="pairs" sorted="where most stands out first" rows={pairs} total={pairs.length} rowKey={(pair) => `${pair.path.a.gpu}/${pair.path.b.gpu}`} chosen={(pair) => pair.isThis} pageRows={12} columns={[
        { head: 'pair', cell: (pair: Pair) => (pair.isThis ? <b>{pairText(pair.path)}</b> : <PlaceLink to={{ ...pathPlace(nameOf(pair.path.a), nameOf(pair.path.b)), at: place.at }}>{pairText(pair.path)}</PlaceLink>) },
        { head: 'ports that stand out', numeric: true, cell: (pair) => (pair.odd > 0 ? <b><span aria-hidden="true">▲ </span>{count(pair.odd)}</b> : '–') },
        { head: 'equal paths', numeric: true, cell: (pair) => count(pair.path.equalPaths) },
        ...rest.map((meaning): Column<Pair> => ({ head: meaning === 'load' ? 'load out' : `worst ${kMeasureWords[meaning]}`, numeric: true, cell: (pair) => <Value of={pair.values.get(meaning) ?? null} /> })),
      ]} />
    </section>
  );
}

const nameOf = ({ host, index }: FabricPath['a']): string => `${host}:gpu${index}`;
const pairText = (path: FabricPath): string => `${endText({ ...path.a, rank: null })} → ${endText({ ...path.b, rank: null })}`;

function siblingSentence(pairs: readonly Pair[]): string {
  const own = pairs.find((pair) => pair.isThis)!.odd;
  const others = pairs.filter((pair) => !pair.isThis && pair.odd > 0).length;
  const all = count(pairs.length - 1);
  if (own === 0) return others === 0 ? `Nothing stands out here, nor on ${all} pairs beside it.` : `Nothing stands out here; on ${count(others)} of ${all} pairs beside it something does.`;
  return others === 0 ? `It is this pair alone: on ${all} pairs beside it nothing stands out.` : `Not this pair alone: something stands out on ${count(others)} of ${all} pairs beside it, too.`;
}

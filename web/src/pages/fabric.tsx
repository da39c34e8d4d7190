// The fabric: which port is in trouble and where cables are not as declared, in one sentence; then what depends on what, from a focus
// outwards; then ports, differences and changes.
import { fabricSentence, type Fabric } from '../base/fabric';
import { count } from '../base/format';
import { useKeys } from '../base/hooks';
import type { PortRow } from '../base/ports';
import { fabricPlace, go, pathPlace, type FabricPlace } from '../base/url';
import { Frame, PlaceLink, type Crumb } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { useFabricData } from './fabric_data';
import { GraphCard } from './fabric_graph';
import { PortsCard } from './fabric_ports';
import { Changes, Differences } from './fabric_tables';
import '../style/fabric.css';

export function FabricPage({ place }: { place: FabricPlace }) {
  const data = useFabricData(place);
  const fabric = data.fabric.value;
  useKeys((key) => {
    if (key === 'Escape') go(place.focus ? { ...place, focus: '', open: [], depth: null } : { page: 'fleet' });
    else if (key === 't') go({ ...place, view: place.view === 'table' ? 'chart' : 'table' }, true);
    else if (key === 'x') go({ ...place, by: place.by === 'port' ? 'switch' : 'port' }, true);
    else return false;
    return true;
  });
  document.title = 'Fabric · Lockstep';
  const crumbs: Crumb[] = [{ label: 'Fleet', to: { page: 'fleet' } }, { label: 'Fabric', to: fabricPlace() }];
  if (data.refused.value && !fabric) {
    return <Frame crumbs={crumbs}><section class="card"><h2 class="sentence" role="alert">{data.refused.value}</h2></section></Frame>;
  }
  const bad = data.bad.value ?? kNone;
  return (
    <Frame crumbs={crumbs} state={<PlaceLink to={pathPlace('', '')}>path between two GPUs</PlaceLink>}>
      {!fabric && <Loading what="the fabric" />}
      {fabric && (
        <section class={`card verdict ${bad.length > 0 ? 'tone-doubt' : 'tone-quiet'}`} aria-label="What is wrong in the fabric">
          <p class="verdict-head">{partsOf(fabric).map((part) => <span key={part}>{part}</span>)}</p>
          <h2 class="sentence">{fabricSentence(fabric, data.bad.value)}</h2>
        </section>
      )}
      {fabric && fabric.nodes.length > 0 && <GraphCard {...{ place, data, bad }} />}
      {fabric && fabric.nodes.length > 0 && <PortsCard {...{ place, data }} />}
      {fabric && fabric.differencesTotal > 0 && <Differences fabric={fabric} />}
      {fabric && fabric.changesTotal > 0 && <Changes fabric={fabric} />}
    </Frame>
  );
}

const kNone: readonly PortRow[] = [];

const kKinds: Record<string, [one: string, many: string]> = {
  host: ['host', 'hosts'], gpu: ['GPU', 'GPUs'], nvlink: ['NVLink domain', 'NVLink domains'], pcie: ['PCIe switch', 'PCIe switches'], nic: ['adapter', 'adapters'],
  leaf: ['leaf', 'leaves'], spine: ['spine', 'spines'], switch: ['switch', 'switches'], storage: ['storage server', 'storage servers'],
};

function partsOf(fabric: Fabric): string[] {
  const parts = fabric.nodes.map(([kind, many]) => `${count(many)} ${Object.hasOwn(kKinds, kind) ? kKinds[kind]![many === 1 ? 0 : 1] : kind}`);
  return parts.length > 0 ? [...parts, `${count(fabric.links)} links`] : [];
}

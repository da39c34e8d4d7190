// What the fabric page knows: counts, differences and changes; the graph around the focus and whatever was followed further; who depends on
// the focus; ports of switches, the worst first.
import { useComputed, useSignal, type ReadonlySignal } from '@preact/signals';
import { api } from '../base/api';
import { joinGraphs, type Affected, type Fabric, type Graph } from '../base/fabric';
import { everyAt, unlessRefused, usePoll } from '../base/poll';
import { decodePorts, isBadPort, kPortsShown, portValuesQuery, sortPorts, worstPortsQuery, type PortRow, type PortsBy } from '../base/ports';
import type { FabricPlace } from '../base/url';

export interface FabricData {
  fabric: ReadonlySignal<Fabric | null>;
  refused: ReadonlySignal<string | null>;      // there is no topology at all
  focus: ReadonlySignal<string>;               // as it was found; empty: there is nothing to focus on
  graph: ReadonlySignal<Graph | null>;
  noGraph: ReadonlySignal<string | null>;      // why there is none
  affected: ReadonlySignal<Affected | null>;   // null for jobs and ranks: they depend, nobody depends on them; and for versions
  ports: ReadonlySignal<PortRow[] | null>;     // of the focus where that is a switch; null: not asked yet
  bad: ReadonlySignal<PortRow[] | null>;       // of all switches, those in trouble; null: not known yet, or nobody reports ports
}

export const kNodesMost = 300;
const kDepths: [prefix: string, depth: number][] = [['job:', 4], ['rank:', 3]];
const kDepthElse = 2;

// So far that the switches above come into view.
export const usualDepth = (focus: string): number => kDepths.find(([prefix]) => focus.startsWith(prefix))?.[1] ?? kDepthElse;

// Its name where the focus is a switch.
export const switchOf = (focus: string): string => /^(?:leaf|spine|switch):(.+)$/s.exec(focus)?.[1] ?? '';

export function useFabricData(place: FabricPlace): FabricData {
  const fabric = useSignal<Fabric | null>(null);
  const refused = useSignal<string | null>(null);
  const focus = useSignal(place.focus);
  const graph = useSignal<Graph | null>(null);
  const noGraph = useSignal<string | null>(null);
  const affected = useSignal<Affected | null>(null);
  const asked = useSignal<{ of: string; rows: PortRow[] } | null>(null);
  const bad = useSignal<PortRow[] | null>(null);
  const every = everyAt(place.at);

  usePoll([], async (signal) => { fabric.value = await api.fabric(signal); }, (message) => { refused.value = message; }, everyAt(null));

  usePoll([place.focus, place.depth, place.open.join('\n'), place.at], async (signal) => {
    const worst = place.focus ? null : (await api.jobs({}, signal)).jobs[0];
    const wanted = place.focus || (worst ? `job:${worst.job_id}` : '');
    if (!wanted) {
      focus.value = '';
      graph.value = null;
      return;
    }
    const [around, ...further] = await Promise.all([
      api.graph(wanted, place.depth ?? usualDepth(wanted), kNodesMost, place.at, signal),
      ...place.open.map((id) => unlessRefused(api.graph(id, 1, kNodesMost, place.at, signal))),
    ]);
    const found = around.nodes[0];
    const component = found && !['job', 'rank', 'version'].includes(found.kind) ? found.id : '';
    const hit = component ? await unlessRefused(api.affected(component, place.at, signal)) : null;
    focus.value = found?.id ?? wanted;
    graph.value = joinGraphs(around, further.filter((one): one is Graph => one !== null));
    affected.value = hit;
  }, (message) => { noGraph.value = message; }, every);

  const of = switchOf(focus.value);
  usePoll([place.by, of, place.sort, place.at], async (signal) => {
    const ask = async (by: PortsBy, name: string): Promise<PortRow[]> => decodePorts(await unlessRefused(api.promql(worstPortsQuery(by, name), place.at, signal)));
    const everywhere = await ask('port', '');
    bad.value = everywhere.length === 0 ? null : sortPorts(everywhere.filter(isBadPort), 'worst');
    // The dearest of all questions: not asked twice.
    const found = place.by === 'port' && !of ? everywhere : await ask(place.by, of);
    const worst = sortPorts(found, place.sort).slice(0, kPortsShown);
    if (worst.length === 0) {
      asked.value = { of, rows: [] };
      return;
    }
    const all = decodePorts(await unlessRefused(api.promql(portValuesQuery(place.by, worst), place.at, signal)));
    const wanted = new Set(worst.map((row) => `${row.switchName}\n${row.port}`));
    asked.value = { of, rows: sortPorts(all.filter((row) => wanted.has(`${row.switchName}\n${row.port}`)), place.sort) };
  }, () => {}, every);
  // What was answered of another focus is not shown as this one's.
  const ports = useComputed(() => (asked.value?.of === switchOf(focus.value) ? asked.value.rows : null));

  return { fabric, refused, focus, graph, noGraph, affected, ports, bad };
}

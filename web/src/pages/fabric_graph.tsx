// The graph with its search, its depth and its table twin; below it who depends on the focus.
import { useMemo, useState } from 'preact/hooks';
import { paths } from '../base/api';
import { kindWords, type Affected, type Graph, type GraphNode } from '../base/fabric';
import { clean, count, duration, percent } from '../base/format';
import type { PortRow } from '../base/ports';
import { affectedCommand, copy, csv, curl, download } from '../base/share';
import { go, jobPlace, kFabricDepthMax, kFabricOpenMax, type FabricPlace } from '../base/url';
import { DependencyGraph } from '../widgets/dependency_graph';
import { PlaceLink } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { Menu } from '../widgets/menu';
import { MomentField } from '../widgets/moment_field';
import { Table } from '../widgets/table';
import { kNodesMost, usualDepth, type FabricData } from './fabric_data';

interface Props {
  place: FabricPlace;
  data: FabricData;
  bad: readonly PortRow[];
}

export function GraphCard({ place, data, bad }: Props) {
  const graph = data.graph.value;
  const focus = data.focus.value;
  const depth = place.depth ?? usualDepth(focus);
  const trouble = useMemo(() => new Set(bad.map((row) => `${row.switchName}:${row.port}`)), [bad]);
  const isBad = ({ label }: { label: string }): boolean => label.split(' - ').some((port) => trouble.has(port));
  // What stands at the edge of what was asked for may go on.
  const canOpen = (node: GraphNode): boolean => node.depth >= depth && !place.open.includes(node.id) && place.open.length < kFabricOpenMax;
  const asTable = place.view === 'table';
  const address = paths.graph(focus, depth, kNodesMost, place.at);
  return (
    <section class="card charts" aria-label="Graph">
      <div class="chart-head">
        <h2>What depends on what{focus && <>, around {clean(focus.replace(':', ' '))}</>}?</h2>
        <Menu label="Menu of the graph" items={[
          { label: 'Copy as curl', run: () => copy(curl(address)) },
          { label: 'Copy as CLI', run: () => copy(affectedCommand(focus)) },
          { label: 'Download CSV', run: () => download('fabric-graph.csv', edgesCsv(graph)) },
          { label: asTable ? 'Show as chart (t)' : 'Show as table (t)', run: () => go({ ...place, view: asTable ? 'chart' : 'table' }, true) },
        ]} />
      </div>
      <div class="chart-head second">
        <Search onFocus={(wanted) => go({ ...place, focus: wanted, open: [], depth: null })} />
        <div class="controls">
          <label>steps outwards
            <select value={String(depth)} onChange={(event) => go({ ...place, depth: Number(event.currentTarget.value) }, true)}>
              {Array.from({ length: kFabricDepthMax }, (_, index) => <option key={index} value={String(index + 1)}>{index + 1}</option>)}
            </select>
          </label>
        </div>
        <MomentField at={place.at} onAt={(at) => go({ ...place, at })} />
        {graph && <span class="muted">{summary(graph)}</span>}
      </div>
      {data.noGraph.value && <p role="alert">{data.noGraph.value}</p>}
      {!data.noGraph.value && !graph && (focus || !place.focus) && <Loading what="the graph" />}
      {!data.noGraph.value && graph && (asTable
        ? <NodeTable {...{ graph, place }} />
        : (
          <>
            <DependencyGraph {...{ graph, focus, canOpen, isBad }} onFocus={(id) => go({ ...place, focus: id, open: [], depth: null })}
                             onOpen={(id) => go({ ...place, open: [...place.open, id] })} />
            <p class="hint muted">
              {waitWords(graph)}<span class="keys"><kbd>click</kbd> <kbd>Enter</kbd> focus <kbd>+</kbd> <kbd>e</kbd> follow further <kbd>↑</kbd> <kbd>↓</kbd> <kbd>←</kbd> <kbd>→</kbd> box <kbd>t</kbd> table <kbd>Esc</kbd> up</span>
            </p>
          </>
        ))}
      {!data.noGraph.value && data.affected.value && <AffectedJobs affected={data.affected.value} />}
    </section>
  );
}

function Search({ onFocus }: { onFocus: (focus: string) => void }) {
  const [typed, setTyped] = useState('');
  return (
    <form class="ranks-field" onSubmit={(event) => { event.preventDefault(); if (typed.trim()) onFocus(typed.trim()); }}>
      <label>focus
        <input type="text" value={typed} size={24} placeholder="leaf-3, node-07, rank:JOB/5" title="A job, rank:JOB/5, a host, a switch, an adapter or a GPU" onInput={(event) => setTyped(event.currentTarget.value)} />
      </label>
      <button type="submit" disabled={!typed.trim()}>Show</button>
    </form>
  );
}

function summary(graph: Graph): string {
  const left = graph.nodes.reduce((sum, node) => sum + node.leftOut, 0);
  const ill = graph.nodes.filter((node) => node.trouble).length;
  return [`${count(graph.nodes.length)} shown, the worst first`, left > 0 ? `${count(left)} of their neighbours left out` : '', ill > 0 ? `${count(ill)} in an open verdict` : ''].filter(Boolean).join(' · ');
}

// The longest wait in the picture, in words; in the last ten minutes before the moment that is shown.
function waitWords(graph: Graph): string {
  const names = new Map(graph.nodes.map((node) => [node.id, node.name]));
  const waits = graph.edges.filter((edge) => edge.kind === 'waits-for').sort((a, b) => b.weight - a.weight);
  return waits[0] ? `Longest wait: ${names.get(waits[0].from)} for ${names.get(waits[0].to)}, ${duration(1000 * waits[0].weight)} in ten minutes. ` : '';
}

// The twin of the picture.
function NodeTable({ graph, place }: { graph: Graph; place: FabricPlace }) {
  const names = new Map(graph.nodes.map((node) => [node.id, node.name]));
  const beside = new Map<string, string[]>();
  for (const edge of graph.edges) {
    const { from, to } = edge;
    beside.set(from, [...(beside.get(from) ?? []), `${kindWords(edge)} ${names.get(to)}`]);
    beside.set(to, [...(beside.get(to) ?? []), `${names.get(from)} ${kindWords(edge)} it`]);
  }
  const rows = [...graph.nodes].sort((a, b) => Number(b.trouble !== '') - Number(a.trouble !== '') || a.depth - b.depth);
  return (
    <Table caption="Parts of the graph" what="parts" sorted="the worst first" rows={rows} total={rows.length} rowKey={(node) => node.id} marked={(node) => node.trouble !== ''} pageRows={20} columns={[
      { head: 'what', cell: (node: GraphNode) => node.kind },
      { head: 'name', cell: (node) => <PlaceLink to={{ ...place, focus: node.id, open: [], depth: null }}>{node.name}</PlaceLink> },
      { head: 'trouble', cell: (node) => <span class="wrap">{node.trouble || '–'}</span> },
      { head: 'from the focus', numeric: true, cell: (node) => count(node.depth) },
      { head: 'beside', cell: (node) => <span class="wrap">{(beside.get(node.id) ?? []).slice(0, 4).join(', ')}{(beside.get(node.id) ?? []).length > 4 && ' …'}</span> },
      { head: 'left out', numeric: true, cell: (node) => count(node.leftOut) },
    ]} />
  );
}

// The blast radius of the focus.
function AffectedJobs({ affected }: { affected: Affected }) {
  return (
    <div class="affected">
      <h3>Who depends on {affected.kind} {affected.component}?</h3>
      <p class="muted">
        {affected.jobs.length === 0 ? 'No job that runs now.' : `${count(affected.gpus)} GPUs on ${count(affected.hosts)} ${affected.hosts === 1 ? 'host' : 'hosts'}.`}
        {affected.note && ` ${affected.note[0]!.toUpperCase()}${affected.note.slice(1)}.`}
      </p>
      {affected.jobs.length > 0 && (
        <Table caption={`Jobs that depend on ${affected.component}`} what="jobs" sorted="the most hit first" rows={affected.jobs} total={affected.total} rowKey={(row) => row.job} pageRows={8} columns={[
          { head: 'job', cell: (row) => <PlaceLink to={jobPlace(row.job)}>{clean(row.job)}</PlaceLink> },
          { head: 'ranks', numeric: true, cell: (row) => `${count(row.ranksHit)} of ${count(row.ranks)}` },
          { head: 'of their traffic', numeric: true, cell: (row) => percent(row.share) },
          { head: 'which', cell: (row) => `${row.firstRanks.map((rank) => count(rank)).join(', ')}${row.ranksHit > row.firstRanks.length ? ' …' : ''}` },
        ]} />
      )}
    </div>
  );
}

function edgesCsv(graph: Graph | null): string {
  return csv(['from', 'kind', 'to', 'weight', 'label', 'known_by', 'at_unix_ns'], (graph?.edges ?? []).map((edge) => [edge.from, edge.kind, edge.to, edge.weight, edge.label, edge.known, edge.at ?? '']));
}

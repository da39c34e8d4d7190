// Every node, worst first: what is open there, who runs there, which of its GPUs nobody uses.
import { useSignal } from '@preact/signals';
import { api, paths } from '../base/api';
import { clean, count, utc, when } from '../base/format';
import type { NodeList, NodeRow } from '../base/node';
import { usePoll } from '../base/poll';
import { copy, curl } from '../base/share';
import { go, jobPlace, type NodesPlace } from '../base/url';
import { Frame, PlaceLink } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { MarkView } from '../widgets/mark';
import { Menu } from '../widgets/menu';
import { HostLink } from '../widgets/place_links';
import { Table } from '../widgets/table';
import { nodeMark } from './node_parts';
import '../style/node.css';

const kEveryMs = 5_000;

export function NodesPage({ place }: { place: NodesPlace }) {
  const told = useSignal<NodeList | null>(null);
  const refused = useSignal<string | null>(null);
  usePoll([place.host], async (signal) => { told.value = await api.nodes(place.host, signal); }, (message) => { refused.value = message; }, () => kEveryMs);
  document.title = 'Nodes · Lockstep';
  const known = told.value;
  return (
    <Frame crumbs={[{ label: 'Fleet', to: { page: 'fleet' } }, { label: 'Nodes', to: place }]}
           state={known && <span><b>{count(known.total)}</b> nodes, <b>{count(known.gpus)}</b> GPUs, <b>{count(known.idle)}</b> idle</span>}>
      {refused.value && <section class="card"><h2 class="sentence" role="alert">{refused.value}</h2></section>}
      {!known && !refused.value && <Loading what="the nodes" />}
      {known && !refused.value && (
        <section class="card" aria-label="Nodes">
          <div class="chart-head">
            <h2>Which node needs a look?</h2>
            <label class="node-filter">host contains
              <input type="search" value={place.host} maxLength={100} onInput={(event) => go({ ...place, host: event.currentTarget.value }, true)} />
            </label>
            <Menu label="Take this list with you" items={[{ label: 'Copy as curl', run: () => copy(curl(paths.nodes(place.host))) }]} />
          </div>
          {known.nodes.length === 0 && (place.host
            ? <p>No node’s name contains “{clean(place.host)}”.</p>
            : <p>No node has been heard of yet. Start an agent on each: <code>lockstep-agent --data DIR --server URL</code></p>)}
          {known.nodes.length > 0 && <Rows list={known} />}
        </section>
      )}
    </Frame>
  );
}

function Rows({ list }: { list: NodeList }) {
  return (
    <Table caption="Nodes" what="nodes" sorted="worst first" rows={list.nodes} total={list.total} rowKey={(row) => row.host} marked={(row) => row.verdicts > 0} columns={[
      { head: 'state', cell: (row) => <MarkView mark={nodeMark(row)} /> },
      { head: 'node', cell: (row) => <HostLink host={row.host} /> },
      { head: 'open verdicts', numeric: true, cell: (row) => count(row.verdicts) },
      { head: 'incidents', numeric: true, cell: (row) => count(row.incidents) },
      { head: 'GPUs', numeric: true, cell: (row) => count(row.gpus) },
      { head: 'idle', numeric: true, cell: (row) => count(row.idle) },
      { head: 'ranks', numeric: true, cell: (row) => count(row.ranks) },
      { head: 'jobs', cell: (row) => <Jobs row={row} /> },
      { head: 'last heard', cell: (row) => <span title={utc(row.lastSeenNs)}>{when(row.lastSeenNs, true)}</span> },
    ]} />
  );
}

function Jobs({ row }: { row: NodeRow }) {
  if (row.jobs.length === 0) return <span class="muted">none</span>;
  const first = row.jobs[0]!;
  return <><PlaceLink to={jobPlace(first)}>{clean(first) || '(no name)'}</PlaceLink>{row.jobsTotal > 1 && <span class="muted"> and {count(row.jobsTotal - 1)} more</span>}</>;
}

// A node, or one GPU of it: what is wrong there, who runs there now, how its hardware did beside the steps of its ranks, and what
// happened there this week.
import { useSignal } from '@preact/signals';
import { api, paths } from '../base/api';
import { clean, clock, count, utc, when } from '../base/format';
import { useKeys } from '../base/hooks';
import { gpuName, type Lane, type Line, type NodeDetail, type NodeSeries } from '../base/node';
import { usePoll } from '../base/poll';
import { copy, curl } from '../base/share';
import { go, gpuPlace, jobPlace, kNodeLastChoices, nodePlace, nodesPlace, type GpuPlace, type NodePlace } from '../base/url';
import { Frame, PlaceLink, type Crumb } from '../widgets/frame';
import { Lanes } from '../widgets/lanes';
import { Loading } from '../widgets/loading';
import { MarkView } from '../widgets/mark';
import { Menu } from '../widgets/menu';
import { Warnings } from '../widgets/warnings';
import { Answer, Events, Gpus, Incidents, nodeMark, oddest, openVerdicts, SeriesTable, spanText, Verdicts } from './node_parts';
import '../style/node.css';

const kEveryMs = 5_000;
const kSeriesEveryMs = 10_000;

export function NodePage({ place }: { place: NodePlace | GpuPlace }) {
  const told = useSignal<NodeDetail | null>(null);
  const series = useSignal<NodeSeries | null>(null);
  const refused = useSignal<string | null>(null);
  const name = place.page === 'node' ? place.host : place.uuid;
  const path = place.page === 'node' ? paths.node(place.host) : paths.gpu(place.uuid);
  usePoll([path], async (signal) => { told.value = await api.node(path, signal); }, (message) => { refused.value = message; }, () => kEveryMs);
  const known = told.value;
  const names = new Map((known?.gpus ?? []).map((gpu) => [gpu.uuid, gpuName(gpu)]));
  usePoll([path, place.last, known !== null], async (signal) => {
    if (known) series.value = await api.nodeSeries(path, place.last, names, signal);
  }, () => {}, () => kSeriesEveryMs);
  useKeys((key) => {
    if (key === 'Escape') go(place.page === 'gpu' && known ? nodePlace(known.host) : nodesPlace());
    else if (key === 't') go({ ...place, view: place.view === 'table' ? 'chart' : 'table' }, true);
    else return false;
    return true;
  });
  const title = place.page === 'node' ? clean(name) : names.get(name) ?? clean(name);
  document.title = `${title} · Lockstep`;
  const crumbs: Crumb[] = [{ label: 'Fleet', to: { page: 'fleet' } }, { label: 'Nodes', to: nodesPlace() }];
  if (place.page === 'gpu' && known) crumbs.push({ label: clean(known.host), to: nodePlace(known.host) });
  crumbs.push({ label: title, to: place });
  return (
    <Frame crumbs={crumbs} state={known && <State node={known} />}>
      {refused.value && <section class="card"><h2 class="sentence" role="alert">{refused.value}</h2><p class="muted">The page <PlaceLink to={nodesPlace()}>Nodes</PlaceLink> lists those that are known.</p></section>}
      {!known && !refused.value && <Loading what={place.page === 'node' ? 'the node' : 'the GPU'} />}
      {known && !refused.value && (
        <>
          <Answer node={known} what={place.page === 'node' ? clean(known.host) : `${title} of ${clean(known.host)}`} />
          <Warnings warnings={known.warnings} total={known.warnings.length} />
          <Gpus node={known} />
          <Picture place={place} node={known} series={series.value} path={path} />
          <Verdicts node={known} />
          <Incidents node={known} />
          <Events node={known} />
        </>
      )}
    </Frame>
  );
}

function State({ node }: { node: NodeDetail }) {
  return (
    <>
      <MarkView mark={nodeMark({ state: node.state, verdicts: 0 })} />
      <span title={utc(node.lastSeenNs)}>{when(node.lastSeenNs, true)}</span>
      {node.recordsLost > 0 && <span>{count(node.recordsLost)} records lost</span>}
    </>
  );
}

function Picture({ place, node, series, path }: { place: NodePlace | GpuPlace; node: NodeDetail; series: NodeSeries | null; path: string }) {
  const open = openVerdicts(node);
  const ranks = new Set(open.flatMap(({ verdict, job }) => verdict.culprit.ranks.map((rank) => `${job}\n${rank}`)));
  const guilty = new Set(node.ranks.filter((rank) => ranks.has(`${rank.job}\n${rank.rank}`)).map((rank) => rank.uuid));
  // In the step's own time everybody is alike: they wait for each other.
  const accused = (line: Line, lane: Lane): boolean => lane.key !== 'step' && (line.rank === null ? guilty.has(line.id) : ranks.has(`${lane.job}\n${line.rank}`));
  const pick = (lane: Lane, line: Line): void => {
    if (line.rank !== null) go({ ...jobPlace(lane.job), rank: line.rank });
    else if (node.gpus.some((gpu) => gpu.uuid === line.id)) go({ ...gpuPlace(line.id), last: place.last });
  };
  const odd = series ? oddest(node, series) : '';
  const choices = [...new Set<number>([...kNodeLastChoices, place.last])].sort((a, b) => a - b);
  return (
    <section class="card" aria-label="Over time">
      <div class="chart-head">
        <h2>How did it do, beside the steps of its ranks?</h2>
        <div class="controls">
          <label>last
            <select value={String(place.last)} onChange={(event) => go({ ...place, last: Number(event.currentTarget.value) }, true)}>
              {choices.map((seconds) => <option key={seconds} value={String(seconds)}>{spanText(seconds)}</option>)}
            </select>
          </label>
        </div>
        <Menu label="Take this with you" items={[
          { label: 'Copy as curl', run: () => copy(curl(paths.nodeSeries(path, place.last))) },
          { label: place.view === 'table' ? 'Show as picture (t)' : 'Show as table (t)', run: () => go({ ...place, view: place.view === 'table' ? 'chart' : 'table' }, true) },
        ]} />
      </div>
      {!series && <Loading what="the series" />}
      {series && series.lanes.length === 0 && (
        <p>Nothing was reported in the last {spanText(place.last)}: no step of a rank here, and no metric of the node. {node.hasAgent
          ? 'The agent may read no GPU here; lockstep doctor on the node says why.'
          : 'No agent was heard of on it.'}</p>
      )}
      {series && series.lanes.length > 0 && (
        <>
          {odd && <p>{odd}</p>}
          {place.view === 'table' ? <SeriesTable series={series} /> : <Lanes series={series} accused={accused} onPick={pick} />}
          <Legend series={series} loud={open.length > 0} />
        </>
      )}
    </section>
  );
}

function Legend({ series, loud }: { series: NodeSeries; loud: boolean }) {
  const hardware = series.lanes.some((lane) => lane.key !== 'excess' && lane.key !== 'step');
  return (
    <p class="hint muted">
      One line for each rank, GPU or adapter{loud && '; red: named by an open verdict'}. Hatched: nothing was reported.
      {series.isLater && ` Nothing is known before ${clock(series.fromNs, true)}.`}
      {!hardware && ' The node reports no metrics: lockstep-agent on it would.'}
      {series.leftOut > 0 && ` ${count(series.leftOut)} more series are left out.`}
    </p>
  );
}
